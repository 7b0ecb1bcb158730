"""Shared by the scripts of this folder: options, kept rows, child processes, spreads, and the results page.

A page is generated whole: title, date, what was measured (model and sha256), code version, machine, command, then the
tables. Scripts write it with `--write docs/results/NAME.md`, from a clean commit only, and rows are of one commit: a
figure can be measured again from the code that the page names.
"""

import argparse
import contextlib
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msdc import __version__
from msdc.encoders.folder import locate_model
from msdc.files import sha256_file, write_text
from msdc.machine import read_machine
from msdc.text.text_files import iterate_lines

ROOT = Path(__file__).resolve().parents[1]
# Values of these options are folders of one machine; the page names them by their role.
PLACEHOLDERS = {"--data": "DATA", "--run": "RUN", "--work": "WORK", "--keep": "FOLDER",
                "--e5": "FOLDER", "--pruned": "FOLDER",
                "--peer-python": "PEER/bin/python", "--litert-python": "LITERT/bin/python",
                "--cluster-python": "CLUSTER/bin/python"}  # fmt: skip
# These options are about the page, not about the measurement.
SKIPPED = ("-o", "--output", "--write")


def options_for(doc: str | None, page: str) -> argparse.ArgumentParser:
    """The parser of a script that usually writes `page`: the script's own text, and `--write`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--write", type=page_to_write, metavar="PAGE", help=f"write this page, e.g. docs/results/{page}.md"
    )
    return parser


def page_to_write(text: str) -> Path:
    """The page that `--write` names, before anything is measured.

    Raises:
        argparse.ArgumentTypeError: the checkout has no commit, or has local changes or files that git does not track,
            other than of results pages.
    """
    changed = local_changes()
    if not git("rev-parse", "HEAD"):
        raise argparse.ArgumentTypeError("a page names the commit that it was measured with: this is no git checkout")
    if changed:
        raise argparse.ArgumentTypeError(f"commit first, a page is measured from a commit; changed: {changed}")
    return Path(text)


class KeptRows(list[dict[str, Any]]):
    """Measured rows, kept in `file` as JSON lines if given: a later call measures only what is missing.

    Every row has the `code` that measured it; rows of another commit end the script.
    """

    def __init__(self, file: Path | None) -> None:
        self.file, self.code = file, code_version()
        super().__init__(json.loads(line) for _, line in (iterate_lines(file) if file and file.is_file() else ()))
        others = sorted({str(row.get("code", "unknown code")) for row in self} - {self.code})
        if others:
            raise SystemExit(f"{file} has rows of {'; '.join(others)}: move it away to measure them with {self.code}")

    def has(self, **keys: Any) -> bool:
        return any(keys.items() <= row.items() for row in self)

    def add(self, row: dict[str, Any]) -> None:
        row = {"code": self.code, **row}
        self.append(row)
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr, flush=True)
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("a", encoding="utf-8") as handle:
                handle.write(json.dumps(row, ensure_ascii=False) + "\n")


def run_json(*words: object, threads: int | None = None, python: str = sys.executable) -> Any:
    """The last line of a Python child process, as JSON; `threads` bounds those of every library in it."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
    environment = os.environ | (dict.fromkeys(names, str(threads)) if threads else {})
    command = [python, *map(str, words)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"|{'|'.join(map(str, line))}|" for line in lines)


def command_line(argv: Sequence[str]) -> str:
    """The command to repeat the run: local folders by their role, other absolute paths by their last part."""
    script = Path(argv[0]).resolve().relative_to(ROOT)
    words = ["PYTHONPATH=benchmarks"] * (script.parent.name == "research") + ["python", str(script)]
    rest = iter(argv[1:])
    for word in rest:
        option, equals, _ = word.partition("=")
        if option in (*SKIPPED, *PLACEHOLDERS):
            if not equals:
                next(rest, None)
            words += [option, PLACEHOLDERS[option]] if option in PLACEHOLDERS else []
            continue
        name, _, folder = word.rpartition("=")
        if name and os.path.isabs(folder):
            # NAME=FOLDER of a run
            word = f"{name}=RUN/{Path(folder).name}"
        words.append(f"DATA/{Path(word).name}" if os.path.isabs(word) else word)
    return shlex.join(words)


def git(*words: str) -> str:
    """Output of git in the checkout; empty where it fails."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def local_changes() -> str:
    """Changed files and those that git does not track, other than results pages."""
    return git("status", "--porcelain", "--untracked-files=all", "--", ".", ":!docs/results", ":!docs/images")


def measured_files(folder: Path) -> list[Path]:
    """What decides a model's vectors: weights, the vocabulary that msdc reads, prompts.

    Raises:
        SystemExit: a file of a shipped model differs from the commit, or is not in it.
    """
    vocabulary = "tokenizer.model" if (folder / "tokenizer.model").is_file() else "tokenizer.json"
    names = ("model.safetensors", vocabulary, "config_sentence_transformers.json")
    files = [folder / name for name in names if (folder / name).is_file()]
    if folder.resolve().is_relative_to(ROOT):
        for file in files:
            committed = git("rev-parse", f"HEAD:{file.resolve().relative_to(ROOT).as_posix()}")
            if committed != git("hash-object", str(file.resolve())):
                raise SystemExit(f"{file.name} of {folder.name} is not the one of the commit: commit it, then measure")
    return files


def code_version() -> str:
    """Version of the package and commit of the checkout, with a note when files other than results pages changed."""
    commit = git("rev-parse", "--short=12", "HEAD")
    changed = local_changes()
    return f"msdc {__version__}" + (f", commit {commit}{', with local changes' if changed else ''}" if commit else "")


def model_version(name: str) -> str:
    """Name of a model and the sha256 of its weights and of its vocabulary."""
    files = measured_files(Path(locate_model(name)))
    return f"{name} ({', '.join(f'`{file.name}` sha256 `{sha256_file(file)}`' for file in files)})"


def newest(instruction_sets: Sequence[str]) -> list[str]:
    """Instruction sets without those that another one of them implies."""
    implied = {"avx2": {"sse4_2", "avx", "f16c", "fma"}, "avx512_vnni": {"avx2", "avx512f", "avx512bw", "avx512vl"}}
    hidden = set().union(*(implied.get(name, ()) for name in instruction_sets))
    return [name for name in instruction_sets if name not in hidden]


def write_page(path: Path | None, title: str, measured: str, body: str, libraries: str) -> None:
    """Print the body, and write the whole page if there is a path.

    The summary ("In short") of an earlier page is written by hand: it is kept, to be checked against the new tables.

    Args:
        path: the page, usually docs/results/NAME.md; an earlier one is replaced.
        title: heading of the page.
        measured: model version or shape, one line.
        body: Markdown below the header.
        libraries: packages whose versions decide a result, by spaces.
    """
    print(body)
    if path is None:
        return
    script = Path(sys.argv[0]).resolve().relative_to(ROOT)
    versions = [f"python {platform.python_version()}"]
    for name in libraries.split():
        with contextlib.suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    machine = read_machine()
    load = f", load average {os.getloadavg()[0]:.1f} at the end" if hasattr(os, "getloadavg") else ""
    # From the page up to the root, for the link to the script.
    up = os.path.relpath(ROOT, path.resolve().parent) if path.resolve().is_relative_to(ROOT) else "../.."
    earlier = path.read_text("utf-8") if path.is_file() else ""
    short = re.search(r"^\*\*In short:\*\* .+?\n\n", earlier, re.MULTILINE | re.DOTALL)
    if short:
        print(f"{path}: check whether this still holds: {short[0].strip()}", file=sys.stderr)
    lines = [
        f"# {title}", "", *([short[0].strip(), ""] if short else []),
        f"<!-- Generated by {script}; do not edit. -->", "",
        f"* Measured on {datetime.date.today().isoformat()} by [`{script}`]({up}/{script})",
        f"* Model: {measured}",
        f"* Code: {code_version()}",
        f"* Machine: {machine.cpu or machine.arch}, {machine.cores} cores, {machine.memory_mib / 1024:.0f} GiB{load}; "
        f"instruction sets: {' '.join(newest(machine.isa)) or 'none of note'}; {machine.os.partition(',')[0]}",
        f"* Libraries: {', '.join(versions)}", "",
        "```", command_line(sys.argv), "```", "",
        body.strip(), "",
    ]  # fmt: skip
    write_text(path, "\n".join(lines))
    print(f"wrote {path}", file=sys.stderr)
