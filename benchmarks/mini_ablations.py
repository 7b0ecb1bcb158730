"""What could make msdc-mini better for its bytes: more tokens, rounding in training, two mixtures merged.

    python benchmarks/mini_ablations.py --data DATA --work WORK --write docs/results/mini-ablations.md

Trains the settings seed by seed from the shipped msdc-mini and appends each to WORK/rows.jsonl; finished runs are not
trained again, so a stopped run continues.

The plan, written before the first run:

* All settings start from the shipped weights and have 1,200 steps of 64 pairs of the parallel text of the recipe
  msdc-mini (no text translated word by word), its objective, and half its learning rates, falling to 0.
* control: nothing else. tokens: 16,000 tokens more, trained on the Korean, Japanese, Polish, Turkish and Portuguese
  sides, whose words are split most. qat: the weights are rounded to int8-embed4 in training. merged: 600 steps on
  everyday sentences and captions, 600 on all other text, both from the start; the mean of the two weights.
* Every student is stored as it would ship (int8-embed4) and scored then: STSb dev within ten languages and across
  English with nine (500 pairs each), and held-out pairs of the thirteen languages: the cosine to the teacher's vector
  of the English side, and how often the translation is the nearest. FLORES dev is in the training text and says
  nothing.
* A setting is better than control if it is so in both seeds, by within and across. No test set is read.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from development import stsb_correlations
from results_page import KeptRows, options_for, table, write_page

from msdc.compress import quantize
from msdc.compress.loading import load_torch_encoder
from msdc.compress.student.io import save_student
from msdc.compress.student.stock import to_student
from msdc.distill import distill
from msdc.distill.catalog import load_recipe
from msdc.distill.data import Row
from msdc.distill.recipe import Recipe, parse
from msdc.distill.run import Run
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import locate_model
from msdc.loading import load_encoder
from msdc.scores import cosine_rows
from msdc.text.answers import nearest_accuracy

STEPS, SEEDS, PAIRS, PRECISION = 1200, (1, 2), 500, "int8-embed4"
EVERYDAY = ("tatoeba", "opus-tatoeba-test", "tanaka", "xvnli", "xgqa", "nlvr2-mt")
SPLIT_WORDS = ("ko", "ja", "pl", "tr", "pt")
TOKENS = 16_000
TRANSLATED = ("de", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru")  # STSb dev in these
SETTINGS = ("control", "tokens", "qat", "merged")
HALVES = ("everyday", "other")


def recipe_of(setting: str, seed: int, data: Path) -> Recipe:
    """The recipe of msdc-mini, changed as the plan says."""
    tree = json.loads(load_recipe("msdc-mini", (), data).model_dump_json())
    parallel = [corpus for corpus in tree["corpora"] if not corpus["word_by_word"]]
    everyday = [corpus for corpus in parallel if any(f"/{name}/" in corpus["path"] for name in EVERYDAY)]
    text = {"everyday": everyday, "other": [corpus for corpus in parallel if corpus not in everyday]}
    (stage,) = tree["stages"]
    rates = {key: stage[key] / 2 for key in ("learning_rate", "table_learning_rate", "code_learning_rate")}
    steps = STEPS // len(HALVES) if setting in HALVES else STEPS
    stage |= rates | {"steps": steps, "evaluate_every": steps, "choose": "heldout", "start_share": 0.0}
    student: dict[str, Any] = {"model": "msdc-mini"}
    corpora = text.get(setting, parallel)
    if setting == "tokens":
        student["vocabulary"] = {"add": TOKENS}
        stage["corpora"] = parallel
        languages = [[code for code in corpus["languages"] if code in SPLIT_WORDS] for corpus in parallel]
        corpora = [corpus | {"languages": codes} for corpus, codes in zip(parallel, languages, strict=True) if codes]
    if setting == "qat":
        stage["quantize"] = PRECISION
    changes = {"name": "mini-ablations", "student": student, "assistant": None, "corpora": corpora, "seed": seed,
               "threads": 1, "heldout": {"pairs": 100}, "report": []}  # fmt: skip
    return parse(Recipe, tree | changes, "the ablations of msdc-mini")


def merge(students: Sequence[Path], output: Path) -> Path:
    """The first student with the mean of all weights; integers are those of the first."""
    encoders = [load_torch_encoder(student) for student in students]
    modules = [to_student(encoder) for encoder in encoders]
    states = [module.state_dict() for module in modules]
    # Rows of a coded table are chosen by integers, which no setting changes.
    mean = {
        name: torch.stack([state[name] for state in states]).mean(0) if first.is_floating_point() else first
        for name, first in states[0].items()
    }
    modules[0].load_state_dict(mean)
    save_student(modules[0], encoders[0].tokenizer, output, force=True, defaults=encoders[0].defaults)
    return output


def student_of(setting: str, seed: int, work: Path, data: Path) -> Path:
    """The trained student in float."""
    if setting == "merged":
        return merge([student_of(half, seed, work, data) for half in HALVES], work / f"merged-{seed}")
    folder = work / "runs" / f"{setting}-{seed}"
    if not (folder / "result.json").is_file():
        distill(recipe_of(setting, seed, data), folder, resume=(folder / "recipe.yaml").is_file())
    return folder / "student"


def held_out_pairs(work: Path, data: Path) -> dict[str, list[Row]]:
    """The pairs by language that no setting trains on, nor did the shipped weights: the share is the recipe's."""
    return Run(recipe_of("control", SEEDS[0], data), work / "held-out").text().heldout_rows()


Pairs = tuple[list[str], list[str], np.ndarray]  # English, translations, the teacher's vectors of the English [N, D]


def development_scores(encoder: Encoder, pairs: dict[str, Pairs], data: Path) -> dict[str, float]:
    """STSb dev within each language and across, and held-out pairs by language (cosine and accuracy), x 100."""

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(encoder.encode(texts))

    stsb = stsb_correlations(encode, data, ("en", *TRANSLATED), PAIRS)
    scores = {f"within-{code}": stsb[code, code] for code in ("en", *TRANSLATED)}
    scores |= {f"across-{code}": stsb["en", code] for code in TRANSLATED}
    for code, (english, translations, teacher_ND) in pairs.items():
        vectors_ND = encode(translations)
        scores[f"cosine-{code}"] = 100 * float(cosine_rows(vectors_ND, teacher_ND).mean())
        accuracy = nearest_accuracy(encode(english), vectors_ND, english, translations)
        scores[f"accuracy-{code}"] = float(np.mean(accuracy))
    return scores


def mean_of(row: dict[str, Any], kind: str) -> float:
    return float(np.mean([value for name, value in row["scores"].items() if name.startswith(f"{kind}-")]))


def page(rows: Sequence[dict[str, Any]]) -> str:
    kinds = ("within", "across", "cosine", "accuracy")
    lines, by_language = [], []
    for row in sorted(rows, key=lambda row: (row["seed"], [*SETTINGS, "shipped"].index(row["setting"]))):
        cells = [f"{mean_of(row, kind):.2f}" for kind in kinds]
        lines.append((row["setting"], row["seed"] or "", f"{row['bytes']:,}", *cells))
        cosines = (f"{value:.1f}" for name, value in row["scores"].items() if name.startswith("cosine-"))
        by_language.append((row["setting"], row["seed"] or "", *cosines))
    codes = [name.removeprefix("cosine-") for name in rows[0]["scores"] if name.startswith("cosine-")]
    plan = (__doc__ or "").split("The plan, written before the first run:")[1].strip()
    return "\n\n".join([
        "## The plan, written before the first run",
        plan,
        "## Means",
        table(("student", "seed", "bytes of weights and tokenizer", *kinds), lines),
        "## The cosine of held-out pairs, by language",
        table(("student", "seed", *codes), by_language),
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "mini-ablations")
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, default=Path("runs/mini-ablations"), help="folder of runs and rows")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = KeptRows(options.work / "rows.jsonl")
    teacher, pairs = load_encoder("all-MiniLM-L6-v2"), dict[str, Pairs]()
    for code, rows in sorted(held_out_pairs(options.work, options.data).items()):
        english = [row.source for row in rows]
        pairs[code] = english, [row.target for row in rows], np.asarray(teacher.encode(english))

    def score(setting: str, seed: int, folder: Path) -> None:
        files = [folder / name for name in ("model.safetensors", "tokenizer.model")]
        scores = development_scores(load_encoder(folder, precision="float"), pairs, options.data)
        stored.add({"setting": setting, "seed": seed, "bytes": sum(file.stat().st_size for file in files),
                    "scores": scores})  # fmt: skip

    if not stored.has(setting="shipped"):
        score("shipped", 0, locate_model("msdc-mini"))
    for seed in SEEDS:
        for setting in SETTINGS:
            if stored.has(setting=setting, seed=seed):
                continue
            print(f"{setting}, seed {seed}", file=sys.stderr, flush=True)
            student = student_of(setting, seed, options.work, options.data)
            rounded = options.work / "rounded" / f"{setting}-{seed}"
            quantize(student, output=rounded, precision=PRECISION, force=True)
            score(setting, seed, rounded)
    if options.write:
        write_page(options.write, "What could make msdc-mini better for its bytes", "students trained in these runs",
                   page(stored), "torch transformers")  # fmt: skip


if __name__ == "__main__":
    main()
