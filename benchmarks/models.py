"""The shipped models side by side, next to a multilingual model of 118 M parameters, and the field they compete in.

    python benchmarks/models.py --data DATA --work WORK --e5 FOLDER --write docs/results/models.md

The shipped models are their int8 ONNX programs, as `load_encoder` gives them. FOLDER is multilingual-e5-small as a
folder of sentence-transformers (without it only the shipped models are measured); it runs in float32 with its prompts.
Figures of other models are those of the files in bench/accuracy/published, sorted by size: all students of Ding et al.
2022, and public models with scores of the same tracks. `--plot` also draws quality against megabytes.
"""

import argparse
import csv
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from results_page import ROOT, KeptRows, model_version, options_for, spread, table, write_page
from search import LANGUAGES

import msdc
from msdc.bench import evaluate_all
from msdc.bench.accuracy.search import ranking, read_collection, relevance_scores, vector_scores
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.commands.models import shipped_models
from msdc.files import write_text
from msdc.text.quickstart import parallel_table

PUBLISHED = ROOT / "bench" / "accuracy" / "published"
TRACKS = ("en-en", "es-es", "ar-ar", "en-es", "en-ar", "en-tr")
TASKS = "sts17,stsb,stsb-cross,flores"
E5 = "multilingual-e5-small, 4-bit weights"
TOKENIZER_MB = 5.1  # XLM-R's sentencepiece file, for models of other authors
ROUNDS, TEXTS = 5, 100


def megabytes(name: str) -> float:
    """Weights and tokenizer of a shipped model."""
    return next(model.bytes for model in shipped_models() if model.name == name) / 1e6


def milliseconds(model: Any, texts: list[str]) -> float:
    """Processor time per text, one by one."""
    start = time.process_time()
    for text in texts:
        model.encode([text])
    return 1000 * (time.process_time() - start) / len(texts)


def xquad(store: CachedEncoder, data: Path) -> dict[str, float]:
    """MRR@10 x 100 of vectors (and of words, in one language): within each language, and to English paragraphs."""
    sets = {code: read_collection(data / "retrieval" / f"xquad-{code}").content for code in LANGUAGES}
    scores: dict[str, float] = {}

    def score(asking: str, answering: str) -> None:
        asked, answers = sets[asking], sets[answering]
        row_of_key = {key: row for row, key in enumerate(answers.documents)}
        grades = [{row_of_key[key]: grade for key, grade in asked.grades[query].items()} for query in asked.queries]
        documents, queries = list(answers.documents.values()), list(asked.queries.values())
        vectors_QM, _ = vector_scores(store, documents, queries)
        name = asking if asking == answering else f"{asking} > {answering}"
        scores[name] = 100 * float(ranking(vectors_QM, grades)["mrr"].mean())
        if asking == answering:
            for mode, score_QM in relevance_scores(documents, queries, vectors_QM, store.cosines()).items():
                scores[f"{name} {mode}"] = 100 * float(ranking(score_QM, grades)["mrr"].mean())

    for code in LANGUAGES:
        score(code, code)
        if code != "en":
            score(code, "en")
    return scores


def measured(name: str, model: Any, data: Path) -> dict[str, Any]:
    """All scores of a model."""
    document = json.loads(json.dumps(evaluate_all(model, TASKS, data=data).as_json()))
    scores = {result["name"]: result[result["main"]] for result in document["results"]}
    return {
        "name": name,
        "scores": scores | {f"xquad/{key}": x for key, x in xquad(CachedEncoder(model), data).items()},
    }


def mean(scores: dict[str, float], names: list[str]) -> str:
    """The mean of some scores, with one decimal."""
    return f"{np.mean([scores[name] for name in names]):.1f}"


def field(rows: list[dict[str, Any]]) -> list[tuple[float, list[str]]]:
    """(megabytes, cells) of the shipped and the published models, the smallest first."""
    entries = []
    for row in rows:
        if row["name"] == E5:
            continue
        values = [row["scores"][f"sts17/{track}"] for track in TRACKS]
        entries.append((megabytes(row["name"]), [f"**{row['name']}**", f"{megabytes(row['name']):.1f}", *values]))
    for file in ("msd_sts2017", "mteb_sts17"):
        for line in csv.DictReader((PUBLISHED / f"{file}.csv").read_text("utf-8").splitlines()[1:]):
            if file == "msd_sts2017" and not line["system"].startswith("MSD "):
                continue
            size = float(line.get("parameters_M") or float(line["embedding_M"]) + float(line["encoder_M"]))
            size += TOKENIZER_MB
            entries.append((size, [line["system"].replace(", B ", ", bottleneck "), f"{size:.0f}",
                                 *(float(line[track]) for track in TRACKS)]))  # fmt: skip
    return [
        (size, [*cells[:2], *(f"{x:.1f}" for x in cells[2:]), f"{np.mean(cells[2:]):.1f}"])
        for size, cells in sorted(entries, key=lambda entry: entry[0])
    ]


def plot(points: list[tuple[float, list[str]]]) -> str:
    """Mean Spearman of the tracks against megabytes (logarithmic), as SVG."""
    width, height, margin, bottom = 760, 400, 56, 46
    sizes, means = [size for size, _ in points], [float(cells[-1]) for _, cells in points]
    low, high = np.log10(min(sizes) * 0.85), np.log10(max(sizes) * 1.6)
    floor, top = min(means) - 2, max(means) + 2

    def position(size: float, value: float) -> tuple[float, float]:
        across = margin + (np.log10(size) - low) / (high - low) * (width - margin - 10)
        return float(across), float(height - bottom - (value - floor) / (top - floor) * (height - bottom - 14))

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
             f'font-size="11"><rect width="{width}" height="{height}" fill="white"/>']  # fmt: skip
    for tick in (10, 20, 50, 100, 200):
        column, line = position(tick, floor)
        parts.append(f'<line x1="{column:.0f}" y1="14" x2="{column:.0f}" y2="{line:.0f}" stroke="#ddd"/>'
                     f'<text x="{column:.0f}" y="{line + 16:.0f}" text-anchor="middle">{tick} MB</text>')  # fmt: skip
    for tick in range(int(floor) // 5 * 5 + 5, int(top) + 1, 5):
        _, line = position(min(sizes), tick)
        parts.append(f'<line x1="{margin}" y1="{line:.0f}" x2="{width - 10}" y2="{line:.0f}" stroke="#ddd"/>'
                     f'<text x="{margin - 6}" y="{line + 4:.0f}" text-anchor="end">{tick}</text>')  # fmt: skip
    for (size, cells), value in zip(points, means, strict=True):
        column, line = position(size, value)
        ours, name = cells[0].startswith("**"), cells[0].strip("*")
        color = "#c0392b" if ours else "#34495e"
        parts.append(f'<circle cx="{column:.0f}" cy="{line:.0f}" r="{6 if ours else 4}" fill="{color}"/>')
        if not name.startswith("MSD "):
            end = column > 0.72 * width
            parts.append(f'<text x="{column - 9 if end else column + 9:.0f}" y="{line + 4:.0f}" fill="{color}" '
                         f'text-anchor="{"end" if end else "start"}">{name}</text>')  # fmt: skip
    parts.append(f'<text x="{width / 2:.0f}" y="{height - 6}" text-anchor="middle">Weights and tokenizer, int8; '
                 "mean Spearman x 100, six tracks of STS2017; no name: MSD's students</text></svg>")  # fmt: skip
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = options_for(__doc__, "models")
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, required=True, help="folder for rows; kept")
    parser.add_argument("--e5", type=Path, help="multilingual-e5-small as a folder of sentence-transformers")
    parser.add_argument("--plot", type=Path, help="write the drawing of the field, an SVG file")
    options: argparse.Namespace = parser.parse_args()
    rows = KeptRows(options.work / "models.jsonl")
    names = [model.name for model in shipped_models()]
    models = {name: msdc.load_encoder(name) for name in names}
    if options.e5:
        models[E5] = msdc.load_encoder(options.e5, precision="float")
    for name, model in models.items():
        if not rows.has(name=name):
            rows.add(measured(name, model, options.data))
    texts = [text for sentences in parallel_table()[1][:40] for text in sentences if text][:TEXTS]
    long = [" ".join(texts[number * 5 : number * 5 + 5]) for number in range(len(texts) // 5)]
    times: dict[str, list[list[float]]] = {name: [[], []] for name in models}
    for _ in range(ROUNDS):
        for name, model in models.items():
            for rounds, batch in zip(times[name], (texts, long), strict=True):
                rounds.append(milliseconds(model, batch))
    ordered = [next(row for row in rows if row["name"] == name) for name in models]
    within, across = [f"sts17/{t}" for t in TRACKS[:3]], [f"sts17/{t}" for t in TRACKS[3:]]
    columns: list[tuple[str, list[str]]] = []
    for row in ordered:
        scores, name = row["scores"], row["name"]
        flores = [key for key in scores if key.startswith("flores/")]
        columns.append((name, [
            f"{megabytes(name):.1f}" if name != E5 else "71.6 + 5.1",
            spread(times[name][0]), spread(times[name][1]),
            mean(scores, within), mean(scores, across), mean(scores, ["stsb"]),
            mean(scores, ["stsb-cross/en-de", "stsb-cross/en-es"]), mean(scores, flores),
            *(mean(scores, [f"xquad/{code}"]) for code in LANGUAGES),
            *(mean(scores, [f"xquad/{code} both"]) for code in LANGUAGES),
            *(mean(scores, [f"xquad/{code} > en"]) for code in LANGUAGES[1:]),
        ]))  # fmt: skip
    heads = [
        "MB, weights and tokenizer", "ms, a sentence", "ms, five sentences", "STS2017, one language (3 tracks)",
        "STS2017, two languages (3 tracks)", "STSb test, English", "STSb test, English with German, Spanish",
        "FLORES devtest, 13 languages",
        *(f"XQuAD {code}, vectors" for code in LANGUAGES), *(f"XQuAD {code}, both" for code in LANGUAGES),
        *(f"XQuAD {code} to English, vectors" for code in LANGUAGES[1:]),
    ]  # fmt: skip
    words = [mean(ordered[0]["scores"], [f"xquad/{code} words"]) for code in LANGUAGES]
    points = field(ordered)
    if options.plot:
        write_text(options.plot, plot(points))
    body = f"""Processor time on one thread, median [range] of {
        ROUNDS
    } rounds. STS: Spearman x 100; FLORES: nearest translation,
accuracy x 100; XQuAD: question to paragraph, MRR@10 x 100. Words alone (BM25) have {
        ", ".join(f"{code} {value}" for code, value in zip(LANGUAGES, words, strict=True))
    }.

{table(("measure", *(name for name, _ in columns)), list(zip(heads, *(cells for _, cells in columns), strict=True)))}

## The field

STS2017, Spearman x 100. Sizes of other models: a byte per parameter and {
        TOKENIZER_MB
    } MB of tokenizer; their scores are
float. `mteb_sts17.csv` and `msd_sts2017.csv` in `bench/accuracy/published` name the sources.

{table(("model", "MB", *TRACKS, "mean"), [cells for _, cells in points])}"""
    described = "; ".join(model_version(name) for name in names)
    write_page(options.write, "The models side by side", described, body, "onnxruntime torch numpy")


if __name__ == "__main__":
    main()
