"""The code of documentation pages, executed in a folder as a reader would."""

import contextlib
import os
import re
import shlex
import sys
from pathlib import Path

from click.testing import CliRunner
from markdown import Block
from places import ROOT
from programs import run

from msdc.cli import msdc

SHELL_SYNTAX = re.compile(r"[|<>$`;&]")


def environment(folder: Path) -> dict[str, str]:
    """Variables for programs: `msdc` on the path is this checkout's, whether or not it is installed."""
    script = folder / "bin/msdc"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m msdc.cli "$@"\n')
    script.chmod(0o755)
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return os.environ | threads | {"PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def run_block(block: Block, folder: Path) -> str:
    """What a block of Bash or Python prints, in a process of its own."""
    command = ["bash", "-eu", "-c"] if block.language == "bash" else [sys.executable, "-c"]
    return run(*command, block.text, cwd=folder, env=environment(folder))


def call_block(block: Block, folder: Path) -> None:
    """Execute a block in this process, which has loaded its packages; lines of other programs and pipes in Bash."""
    if block.language == "python":
        call_python(block.text, folder)
        return
    for line in block.text.replace("\\\n", " ").splitlines():
        if line.startswith("msdc ") and not SHELL_SYNTAX.search(line.partition(" #")[0]):
            call_msdc(shlex.split(line, comments=True)[1:], folder)
        else:
            run("bash", "-eu", "-c", line, cwd=folder, env=environment(folder))


def call_msdc(words: list[str], folder: Path) -> str:
    """What `msdc WORDS` prints in `folder`, called in this process."""
    with contextlib.chdir(folder):
        done = CliRunner().invoke(msdc, words, prog_name="msdc", catch_exceptions=False)
    assert done.exit_code == 0, f"msdc {' '.join(words)}: {done.output[-3000:]}"
    return done.stdout


def call_python(code: str, folder: Path) -> None:
    """Execute Python in this process, in `folder`."""
    with contextlib.chdir(folder):
        exec(compile(code, "page", "exec"), {"__name__": "page"})
