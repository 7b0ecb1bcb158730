"""A results page from one run of `msdc evaluate`.

    python benchmarks/evaluation.py msdc-mini --tasks card --data DATA --write docs/results/msdc-mini.md

Everything but `--write` and `--title` goes to `msdc evaluate` as it is; the page is what the command wrote, below a
header with model version, date and machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from results_page import add_write_option, model_version, write_page


def without_title(text: str) -> str:
    """The document below its own first heading, which the page replaces."""
    first, _, rest = text.lstrip().partition("\n")
    return rest if first.startswith("# ") else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="shipped name or folder")
    parser.add_argument("--title", help="heading of the page; default: accuracy of MODEL")
    add_write_option(parser, "msdc-mini")
    options, passed = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        document = Path(folder) / "document.md"
        command = [sys.executable, "-m", "msdc.cli", "evaluate", options.model, *passed, "-o", str(document)]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
        text = document.read_text(encoding="utf-8")
    if options.write:
        write_page(options.write, options.title or f"Accuracy of {options.model}", model_version(options.model),
                   without_title(text), libraries=("torch", "executorch", "onnxruntime", "numpy"))  # fmt: skip
    else:
        print(text)


if __name__ == "__main__":
    main()
