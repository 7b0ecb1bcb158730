"""A results page from one run of `msdc evaluate`.

    python benchmarks/evaluation.py msdc-mini --tasks card --data DATA --write docs/results/msdc-mini.md

Everything but `--write` and `--title` goes to `msdc evaluate` as it is; the page is what the command wrote, below a
header with model version, date and machine.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

from results_page import model_version, options_for, write_page


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
    title = options.title or f"Accuracy of {options.model}"
    write_page(options.write, title, model_version(options.model), text, "torch executorch onnxruntime numpy")


if __name__ == "__main__":
    main()
