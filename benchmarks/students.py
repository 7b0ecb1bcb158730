"""Students side by side on the test sets: seeds of one recipe, sizes of it, other text.

    python benchmarks/students.py --data DATA --work WORK --part seeds --student 'seed 2=RUN/student' \\
        --part sizes --student '20 MB=BUNDLE' --write docs/results/students.md

`--student NAME=MODEL` is a shipped name, a folder or a bundle of ExecuTorch, which runs as it is; `--part TITLE` and
`--note TEXT` begin a table and say what its students are. Scores are kept in WORK by the model's bytes: a later call
measures what is new. Nothing here chooses anything.
"""

import argparse
import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from results_page import options_for, plot_by_bytes, table, write_page

from msdc.bench import evaluate
from msdc.encoders.folder import locate_model
from msdc.errors import InputError
from msdc.export.manifest import read_manifest
from msdc.files import read_json, write_json, write_text

TASKS = ("sts17", "stsb", "stsb-cross", "flores", "tatoeba")
LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "tr", "ar")
SCORES = {
    "STS2017 en-en": ("sts17/en-en",), "es-es": ("sts17/es-es",), "es-en": ("sts17/en-es",), "STSb": ("stsb",),
    "STSb en-de": ("stsb-cross/en-de",), "en-es": ("stsb-cross/en-es",),
    "FLORES": tuple(f"flores/en-{code}" for code in ("ar", "de", "es", "fr", "it", "nl", "tr")),
    "Tatoeba de": ("tatoeba/de",), "es": ("tatoeba/es",),
}  # fmt: skip
LEGEND = (
    "STS: Spearman x 100; FLORES devtest: accuracy x 100, mean of seven languages with English; Tatoeba: LASER's 1,000 "
    "pairs, accuracy x 100. A student with bytes is its ExecuTorch program, run as it is; one without is the run's "
    "float weights. A MB is 1,000,000 bytes."
)


class Part(NamedTuple):
    """One table: its title, then what its students are, and the students."""

    title: str
    notes: list[str]
    students: list[tuple[str, str]]


class AddPart(argparse.Action):
    """`--part`, `--note` and `--student` in the order of the command line."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        parts: list[Part] = namespace.parts
        name, equals, model = values.partition("=")
        if option_string == "--part":
            parts.append(Part(values, [], []))
        elif not parts:
            parser.error(f"{option_string} stands behind a --part")
        elif option_string == "--note":
            parts[-1].notes.append(values)
        elif equals:
            parts[-1].students.append((name, model))
        else:
            parser.error(f"--student {values}: NAME=MODEL")


def identity(folder: Path) -> str:
    """sha256 over the files that decide what the model computes."""
    found = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.suffix in (".safetensors", ".pte", ".onnx", ".model", ".json", ".bin"):
            found.update(file.name.encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()


def measure(model: str, data: Path, work: Path) -> dict[str, Any]:
    folder = locate_model(model)
    kept = work / f"{identity(folder)[:24]}.json"
    if kept.is_file():
        return read_json(kept)
    try:
        part = read_manifest(folder).part("executorch")
    except InputError:
        size, runtime = None, None
    else:
        program = sum((folder / name).stat().st_size for name in part.files())
        size, runtime = (program, (folder / "tokenizer.model").stat().st_size), "executorch"
    found = evaluate(folder, TASKS, runtime=runtime, data=data, languages=LANGUAGES, resamples=0, threads=1)
    row = {"bytes": size, "scores": {one.name: one.value for one in found.results}}
    work.mkdir(parents=True, exist_ok=True)
    write_json(kept, row)
    return row


def cells(row: dict[str, Any]) -> Iterator[str]:
    program, tokenizer = row["bytes"] or (None, None)
    yield from (f"{program:,}", f"{tokenizer:,}") if program else ("–", "–")
    yield from (f"{np.mean([row['scores'][name] for name in names]):.1f}" for names in SCORES.values())


def main() -> None:
    parser = options_for(__doc__, "students")
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--work", type=Path, required=True, help="scores are kept here")
    parser.add_argument("--part", action=AddPart, dest="parts", default=[], metavar="TITLE")
    parser.add_argument("--note", action=AddPart, dest="parts", metavar="TEXT")
    parser.add_argument("--student", action=AddPart, dest="parts", metavar="NAME=MODEL")
    options = parser.parse_args()
    text, bundles = [LEGEND], []
    for part in options.parts:
        rows = []
        for name, model in part.students:
            row = measure(model, options.data, options.work)
            print(name, *cells(row), file=sys.stderr, flush=True)
            rows.append((name, *cells(row)))
            if row["bytes"] and name not in [known for known, _ in bundles]:
                bundles.append((name, row))
        text += [f"## {part.title}", *part.notes, table(("student", "program", "tokenizer", *SCORES), rows)]
    if options.write:
        image = options.write.parent.parent / "images" / "students.svg"
        sets = [name for names in SCORES.values() for name in names if name.startswith("sts")]
        points = [(sum(row["bytes"]) / 1e6, float(np.mean([row["scores"][one] for one in sets])), name, name)
                  for name, row in bundles]  # fmt: skip
        write_text(image, plot_by_bytes(points, "Spearman x 100, mean of six sets"))
        text.append(f"![Spearman x 100 by bytes](../images/{image.name})")
    write_page(options.write, "Students side by side", "as named in the tables", "\n\n".join(text),
               "torch executorch numpy")  # fmt: skip


if __name__ == "__main__":
    main()
