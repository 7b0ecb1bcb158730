"""No line of the project installs `msdc` by its name, which nobody registered on PyPI: whoever does would be run."""

import re
import subprocess
from pathlib import Path

import pytest
from places import ROOT

from msdc.extras import EXTRAS, install_command

NAME = "msdc"
# An installer's verb, its options, and the name as a requirement; a path, an address and "in the checkout of" are none.
COMMAND = re.compile(
    rf"\b(?:install|add|inject|pipx run|uvx)[ \t]+(?:-\S+[ \t]+)*(['\"]?){NAME}(?:\[[\w,-]*\])?(?![\w./-])"
)
# The same in a list of requirements; pyproject.toml names its own extras so.
QUOTED = re.compile(rf"""['"]{NAME}\[[\w,-]+\]""")
OWN_EXTRAS = "pyproject.toml"


def tracked() -> list[Path]:
    """All files of the repository; of an unpacked source archive, those of the tree."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"], capture_output=True)
    if listed.returncode == 0:
        return [path for name in listed.stdout.decode().splitlines() if (path := ROOT / name).is_file()]
    inside = (
        path for path in ROOT.rglob("*") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    )
    return [path for path in inside if path.is_file()]


def installed_by_name(text: str, name: str) -> list[str]:
    commands = [match[0] for match in COMMAND.finditer(text)]
    return commands + ([] if name == OWN_EXTRAS else [match[0] for match in QUOTED.finditer(text)])


def test_no_file_installs_it_by_name():
    lines_by_file, read = {}, 0
    for path in tracked():
        raw = path.read_bytes()
        if path.is_symlink() or b"\0" in raw or path == Path(__file__).resolve():
            continue
        read += 1
        if lines := installed_by_name(raw.decode("utf-8", "replace"), path.relative_to(ROOT).as_posix()):
            lines_by_file[str(path.relative_to(ROOT))] = lines
    assert lines_by_file == {}
    assert read > 300


@pytest.mark.parametrize(("line", "bad"), [
    (f"pip install {NAME}", True), (f"pip install '{NAME}[train]'", True), (f"pip3 install -q -U {NAME}[all]", True),
    (f"uv add {NAME}", True), (f"uv tool install {NAME}", True), (f"`pipx run {NAME}`.", True),
    (f"dependencies = ['{NAME}[train]']", True), (f"pip install --upgrade \"{NAME}\"", True),
    ("pip install '.[train]'", False), (f"pip install git+https://example.com/{NAME}", False),
    (f'pip install "$TEMP/{NAME}[all]"', False), (f"pip install ./{NAME}", False), (f"run {NAME}-runner", False),
    (f"{NAME} encode", False), *((install_command(extra), False) for extra in EXTRAS),
])  # fmt: skip
def test_what_is_such_a_line(line, bad):
    assert bool(installed_by_name(line, "a.md")) == bad
