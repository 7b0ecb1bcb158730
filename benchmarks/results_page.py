"""Write a results page: docs/results/NAME.md, the output of one benchmark run.

A page is generated whole and never edited by hand: title, date, what was measured (model and sha256), code version,
machine, command, then the tables. Every benchmark in this folder has `--write docs/results/NAME.md`.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Values of these options are folders of one machine; the page names them by their role.
PLACEHOLDERS = {"--data": "DATA", "--work": "WORK", "--peer-python": "PEER/bin/python", "--keep": "FOLDER"}
# What these options say is about the page, not about the measurement.
SKIPPED = ("-o", "--output", "--write")


def add_write_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add `--write`; `name` is the page that the benchmark usually writes."""
    parser.add_argument("--write", type=Path, metavar="PAGE", help=f"write this page, e.g. docs/results/{name}.md")


def command_line(argv: Sequence[str]) -> str:
    """The command to repeat the run: local folders by their role, other absolute paths by their last part."""
    words = ["python", str(Path(argv[0]).resolve().relative_to(ROOT))]
    rest = iter(argv[1:])
    for word in rest:
        option, equals, _ = word.partition("=")
        if option in SKIPPED:
            if not equals:
                next(rest, None)
        elif option in PLACEHOLDERS:
            if not equals:
                next(rest, None)
            words += [option, PLACEHOLDERS[option]]
        else:
            name, _, folder = word.rpartition("=")
            if name and os.path.isabs(folder):
                # NAME=FOLDER of a run
                word = f"{name}=RUN/{Path(folder).name}"
            words.append(f"DATA/{Path(word).name}" if os.path.isabs(word) else word)
    return shlex.join(words)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def code_version() -> str:
    """Version of the package and commit of the checkout, with a note when files were changed."""
    from msdc import __version__

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short=12", "HEAD")
    changed = ", with local changes" if git("status", "--porcelain", "--untracked-files=no") else ""
    return f"msdc {__version__}" + (f", commit {commit}{changed}" if commit else "")


def model_version(name: str) -> str:
    """Name of a model and the sha256 of its weights."""
    from msdc.encoders.folder import locate_model
    from msdc.files import sha256_file

    weights = Path(locate_model(name)) / "model.safetensors"
    return f"{name} (`model.safetensors` sha256 `{sha256_file(weights)}`)"


def machine_lines() -> list[str]:
    """Processor, cores, instruction sets, system, load."""
    from msdc.machine import read_machine

    machine = read_machine()
    load = f", load average {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    instructions = " ".join(machine.isa) or "none of note"
    return [
        f"{machine.cpu or machine.arch}, {machine.cores} cores, {machine.memory_mib / 1024:.0f} GiB{load}",
        f"instruction sets: {instructions}; {machine.os.partition(',')[0]}",
    ]


def library_versions(names: Sequence[str]) -> str:
    """Installed versions of the libraries that decide a result."""
    found = [f"python {platform.python_version()}"]
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found.append(f"{name} {version(name)}")
    return ", ".join(found)


def write_page(
    path: Path, title: str, measured: str, body: str, *, libraries: Sequence[str], argv: Sequence[str] | None = None
) -> None:
    """Write the whole page to `path`.

    Args:
        path: the page, usually docs/results/NAME.md; an earlier one is replaced.
        title: heading of the page.
        measured: model version or shape, one line.
        body: Markdown below the header.
        libraries: packages whose versions are stated.
        argv: command line of the run; default: sys.argv.
    """
    from msdc.files import write_text

    arguments = sys.argv if argv is None else argv
    script = Path(arguments[0]).resolve().relative_to(ROOT)
    processor, system = machine_lines()
    # The page lies `depth` folders below the root; links to the script go up as many.
    up = os.path.relpath(ROOT, path.resolve().parent) if path.resolve().is_relative_to(ROOT) else "../.."
    header = [
        f"# {title}",
        "",
        f"<!-- Generated by {script}; do not edit. -->",
        "",
        f"* Measured on {datetime.date.today().isoformat()} by [`{script}`]({up}/{script})",
        f"* Model: {measured}",
        f"* Code: {code_version()}",
        f"* Machine: {processor}; {system}",
        f"* Libraries: {library_versions(libraries)}",
        "",
        "```",
        command_line(arguments),
        "```",
        "",
    ]
    write_text(path, "\n".join([*header, ""]) + body.strip() + "\n")
    print(f"wrote {path}", file=sys.stderr)


def plot_by_bytes(points: Sequence[tuple[float, float, str, str]], what: str) -> str:
    """MB against a score, with the Pareto line: an SVG that stands alone.

    Args:
        points: MB, score, name, and the group that decides a point's mark and is listed in the legend.
        what: the score in words.
    """
    from msdc.bench.report.charts import pareto_line
    from msdc.bench.report.drawing import linear_axis, plot

    places = [(x, y) for x, y, *_ in points]
    axes = linear_axis([x for x, _ in places]), linear_axis([y for _, y in places], pad=0.15)
    frame = plot(*axes, "MB of program and tokenizer", what, height=280)
    frame.canvas.polyline([frame.point(*places[i]) for i in pareto_line(places)], "axis", 1.5, "5 4")
    groups = list(dict.fromkeys(group for *_, group in points))
    marks = [
        (("circle", "square", "triangle", "diamond", "cross", "ring")[i % 6], f"c{i % 6 + 1}")
        for i in range(len(groups))
    ]
    for x, y, name, group in points:
        shape, color = marks[groups.index(group)]
        frame.canvas.marker(shape, *frame.point(x, y), color, f"{name}: {y:.1f}")
    # Below the points: the largest programs are the best.
    left, top = frame.right - 165, frame.bottom - 18 * len(groups)
    for number, (group, (shape, color)) in enumerate(zip(groups, marks, strict=True)):
        frame.canvas.marker(shape, left, top + 6 + 18 * number, color)
        frame.canvas.text(left + 10, top + 10 + 18 * number, group)
    return standing_alone(frame.canvas.svg(f"{what} by bytes"))


def standing_alone(svg: str) -> str:
    """A report's figure as a file of its own: with the colors that the report's page would give it."""
    style = (
        "<style>svg{--c1:#1f6fb5;--c2:#c2561a;--c3:#23834f;--c4:#8446b0;--c5:#8c6d0a;--c6:#bd3566;--grid:#e3e3e3;"
        "--axis:#8a8a8a;--ink2:#444;--ground:#fff;background:#fff;font-family:sans-serif}</style>"
    )
    return re.sub(r"(<svg[^>]*>)", rf"\1{style}", svg, count=1) + "\n"
