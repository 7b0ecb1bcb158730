"""A results page from one run of `msdc evaluate`.

    python benchmarks/evaluation.py msdc-mini --tasks card --data DATA --write docs/results/msdc-mini.md

Everything but `--write` and `--title` goes to `msdc evaluate` unchanged. The page is the document that it writes,
without sections on the data, tests of differences between models, details of bias, drift and the shipped pairs, files
with no test sentence, and mining by language; intervals are those of the ExecuTorch program.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from results_page import model_version, options_for, write_page

# Headings of sections that the page leaves out, `##` and bold.
LEFT_OUT = (
    "Differences between models",
    "Not scored",
    "Notes on the data",
    "Language bias in detail",
    "drift/",
    "graded-pairs by part",
)
INTERVALS_OF = "(executorch)"
SEARCHED = "## Training text searched for test sentences\n"


def shortened(document: str) -> str:
    """The document without what a reader of the page does not need; a row of unseen pairs only if it differs."""
    parts = re.split(r"\n(?=## |\*\*[^*\n]+\*\*\n)", document)
    text = "\n".join(part for part in parts if not part.lstrip("#* ").startswith(LEFT_OUT))
    lines: list[str] = []
    has_intervals: list[bool] = []  # by column: whether it has intervals
    for line in text.replace(SEARCHED, f"{SEARCHED}\nFiles with none are not listed.\n").splitlines():
        if line.startswith("| flores-mining/"):
            continue
        cells = line.split("|")
        if line.startswith("| set "):
            has_intervals = [INTERVALS_OF in cell for cell in cells]
        elif line.startswith("| ") and len(cells) == len(has_intervals) and any(has_intervals):
            cells = [
                cell if keep else re.sub(r" \[.+\]", "", cell) for cell, keep in zip(cells, has_intervals, strict=True)
            ]
            line = "|".join(cells).replace("| 0 + 0 near of", "| 0 of")
        unseen = ", unseen pairs |" in line and line.split("|")[2:-3] == lines[-1].split("|")[2:-3]
        if not unseen and not line.endswith(": 0 exact, 0 near"):
            lines.append(line)
    text = "\n".join(lines)
    return text if ", unseen pairs |" in text else re.sub(r" Unseen pairs: .+", "", text)


def main() -> None:
    parser = options_for(__doc__, "msdc-mini")
    parser.add_argument("model", help="shipped name or folder")
    parser.add_argument("--title", help="heading of the page; default: accuracy of MODEL")
    options, passed = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "document.md"
        command = [sys.executable, "-m", "msdc.cli", "evaluate", options.model, *passed, "-o", str(document)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        # The page has a heading of its own.
        text = document.read_text(encoding="utf-8").lstrip()
    text = text.partition("\n")[2] if text.startswith("# ") else text
    text = shortened(text)
    title = options.title or f"Accuracy of {options.model}"
    write_page(options.write, title, model_version(options.model), text, "torch executorch onnxruntime numpy")


if __name__ == "__main__":
    main()
