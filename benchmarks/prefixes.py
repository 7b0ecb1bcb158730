"""The first numbers of a vector: cut, after a rotation by principal components, and trained to be vectors (Matryoshka).

    python benchmarks/prefixes.py --data DATA --output RUNS --write docs/results/prefixes.md

A student is taught on with and without `dimensions:`, everything else alike, for each seed; training goes on where a
stopped call left it. The rotation is that of the vectors of the student's own training sentences.
"""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from development_sets import LANGUAGES, DevelopmentSets
from results_page import options_for, table, write_page

from msdc import load_encoder
from msdc.distill import distill
from msdc.text.text_files import iterate_lines

WIDTHS = (32, 64, 128, 384)
TEXT = ("tatoeba", "ntrex", "pud", "tico19")
ROTATED_BY = 2000  # sentences
ROWS = 300  # of STSb dev
PARTS = ("within", "across", "news")


def recipe(options: Any, seed: int, dimensions: tuple[int, ...]) -> dict[str, Any]:
    codes = [code for code in LANGUAGES if code != "en"]
    return {
        "name": "prefixes", "teacher": "all-MiniLM-L6-v2", "assistant": None, "student": options.student, "seed": seed,
        "corpora": [{"path": f"{{data}}/{one}/*.tsv.gz", "languages": codes} for one in TEXT],
        "exclude": ["{data}/stsb/sts-dev.tsv.gz"], "threads": options.threads, "stock_twin": False,
        "stages": [{"name": "train", "objective": ["multilingual_mse", "multilingual_contrastive"], "batch": 32,
                    "steps": options.steps, "learning_rate": 1e-4, "table_learning_rate": 4e-4, "max_length": 48,
                    "evaluate_every": options.steps, "dimensions": dimensions}],
    }  # fmt: skip


def scores(folder: str | Path, sets: DevelopmentSets, data: Path) -> dict[str, list[float]]:
    """Scores by part, for each width: as `cut PART`, and after the rotation as `rotated PART`."""
    encoder, found = load_encoder(folder), {}
    files = [path for path in sorted((data / "ntrex").glob("*.en-*.tsv.gz")) if path.name[-9:-7] in LANGUAGES]
    texts = [text for path in files for _, line in iterate_lines(path) for text in line.split("\t")[:2]]
    own_ND = encoder.encode(texts[:: max(1, len(texts) // ROTATED_BY)])
    # No mean is taken off: a rotation keeps all cosines.
    rotation_DD = np.linalg.eigh(own_ND.T @ own_ND)[1][:, ::-1]
    encode = functools.cache(lambda texts: encoder.encode(list(texts)))
    for name, by_DD in (("cut", np.eye(encoder.width, dtype=np.float32)), ("rotated", rotation_DD)):
        for width in WIDTHS:
            values = sets.scores(lambda texts, by=by_DD[:, :width]: encode(tuple(texts)) @ by)
            for part in PARTS:
                found.setdefault(f"{name} {part}", []).append(values[part])
    return found


def main() -> None:
    parser = options_for(__doc__, "prefixes")
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--output", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--student", default="msdc-mini")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sets = DevelopmentSets(options.data, ("de", "es", "tr"), ROWS)
    students: dict[str, list[str | Path]] = {options.student: [options.student]}
    for seed in range(1, options.seeds + 1):
        for name, dimensions in (("taught on", ()), ("taught on with dimensions 32, 64, 128", (32, 64, 128))):
            folder = options.output / f"{'trained' if dimensions else 'plain'}-{seed}"
            run = distill(recipe(options, seed, dimensions), folder, folder.is_dir(), data=options.data)
            students.setdefault(name, []).append(run.student)
    rows: dict[str, list[dict[str, list[float]]]] = {}
    for name, folders in students.items():
        for folder in folders:
            kept = options.output / f"{Path(folder).parent.name or options.student}.scores.json"
            if not kept.is_file():
                kept.write_text(json.dumps(scores(folder, sets, options.data)))
            rows.setdefault(name, []).append(json.loads(kept.read_text()))
    parts = [
        f"{options.seeds} seeds" * (options.seeds > 1)
        + "One seed, no interval" * (options.seeds == 1)
        + (", mean and largest distance from it" if options.seeds > 1 else "")
        + f"; {options.steps} steps of 32 pairs by "
        f"`multilingual_mse` and `multilingual_contrastive`. The first {ROWS} pairs of STSb dev, Spearman x 100: "
        "within seven languages, and across English and each other; news (WMT): share of sentences whose nearest "
        f"neighbour is their translation (de, es, tr). Rotated: by the principal components of {ROTATED_BY} sentences, "
        "which costs a matrix in every program; cut: the first numbers as they are."
    ]
    for part, title in zip(PARTS, ("STSb dev within", "STSb dev across", "news (WMT)"), strict=True):
        lines = []
        for name, found in rows.items():
            for how in ("cut", "rotated"):
                values = np.array([one[f"{how} {part}"] for one in found])
                mean, away = values.mean(0), np.abs(values - values.mean(0)).max(0)
                cells = [
                    f"{m:.1f}" + (f" ± {a:.1f}" if len(values) > 1 else "") for m, a in zip(mean, away, strict=True)
                ]
                lines.append((name, how, *cells))
        parts.append(table((title, "first numbers", *map(str, WIDTHS)), lines))
    write_page(
        options.write, "The first numbers of a vector", f"{options.student}, taught on", "\n\n".join(parts), "torch"
    )


if __name__ == "__main__":
    main()
