"""A results page from sweeps over the papers' recipes at small size.

    python benchmarks/papers.py --data DATA --write docs/results/papers.md
    python benchmarks/papers.py --data DATA --sweep msd:small table=5 --runs runs/papers --write PAGE

Runs `msdc distill RECIPE --sweep POINTS` for each sweep and puts the tables that it writes on one page. A finished
sweep in --runs is read, not run again; an unfinished one continues.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from results_page import add_write_option, write_page

# About five hours on two cores.
SWEEPS = (
    ("msd:small", "table=5"),
    ("msd:small", "table=3+4"),
    ("msd:small", "table=6"),
    ("msd:small", "table=1"),
    ("distilcse:small", "variant=ckd,kd,pkd,metakd,ckd-2"),
    ("lightweight:small", "variant=mlm,ugt,ugt-align-sim"),
)


def run_sweep(recipe: str, points: str, folder: Path, environment: dict[str, str]) -> str:
    """The table of a sweep, which is run where it does not exist."""
    table = folder / "table.md"
    if not table.is_file():
        command = [sys.executable, "-m", "msdc.cli", "distill", recipe, "--sweep", points, "-o", str(folder)]
        done = subprocess.run(command, env=environment, check=False)
        if done.returncode:
            raise SystemExit(done.returncode)
    return table.read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="data folder of the recipes; default: MSDC_DATA")
    parser.add_argument("--sweep", nargs=2, action="append", metavar=("RECIPE", "POINTS"), help="default: all")
    parser.add_argument("--runs", type=Path, default=Path("runs/papers"), help="folder of the runs")
    add_write_option(parser, "papers")
    options = parser.parse_args()
    environment = os.environ | ({"MSDC_DATA": options.data} if options.data else {})
    parts = []
    for recipe, points in options.sweep or SWEEPS:
        folder = options.runs / re.sub(r"[^a-z0-9]+", "-", f"{recipe}-{points}".lower())
        parts.append(f"## `msdc distill {recipe} --sweep {points}`\n\n{run_sweep(recipe, points, folder, environment)}")
    text = "\n".join(parts)
    if options.write:
        write_page(options.write, "The papers' tables at small size", "students taught in this run", text,
                   libraries=("torch", "transformers"))  # fmt: skip
    else:
        print(text)


if __name__ == "__main__":
    main()
