"""A virtual environment that holds what `pip install msdc` installs, and nothing of any extra.

Its packages are links to those of the running environment: the closure of pyproject.toml's dependencies. So torch and
the others are absent for every way of looking for them, and nothing is downloaded.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import tomllib
import venv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ENTRY = "import sys\nfrom msdc.cli import main\nsys.exit(main())\n"


def project() -> dict:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def closure(requirements: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Installed distributions that the requirements bring, by name."""
    found: dict[str, importlib.metadata.Distribution] = {}
    todo = [Requirement(line) for line in requirements]
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        for line in found[name].requires or []:
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)):
                todo.append(needed)
    return found


def _link_distribution(distribution: importlib.metadata.Distribution, site: Path) -> None:
    # Top-level names below site-packages; scripts in bin/ are left out.
    tops = {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
    for top in tops:
        source, target = Path(str(distribution.locate_file(top))), site / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def _write_metadata(site: Path) -> None:
    facts = project()
    folder = site / "msdc-0.0.0.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: msdc", "Version: 0.0.0"]
    lines += [f"Requires-Dist: {line}" for line in facts["dependencies"]]
    for extra, listed in facts["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {line}; extra == "{extra}"' for line in listed]
    (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class BaseInstall:
    """The environment's folder."""

    folder: Path

    def run(self, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """`msdc WORDS...` in the folder `cwd`, as the installed script runs it; it ends with code 0."""
        return self.call([str(self.folder / "bin" / "msdc"), *words], cwd)

    def script(self, source: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Python source in the folder `cwd`."""
        return self.call([str(self.folder / "bin" / "python"), "-c", source], cwd)

    def call(self, command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
        """A program with the environment's variables: a cache of its own, no hub, no path from outside."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MSDC_", "VIRTUAL"))}
        own = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        done = subprocess.run(
            command, cwd=cwd, env=kept | own, input="", capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, (command, done.returncode, done.stdout[-2000:], done.stderr[-2000:])
        return done


def make(folder: Path) -> BaseInstall:
    """The environment in `folder`."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for distribution in closure(project()["dependencies"]).values():
        _link_distribution(distribution, site)
    (site / "msdc").symlink_to(ROOT / "msdc")
    _write_metadata(site)
    script = folder / "bin" / "msdc"
    script.write_text(f"#!{folder / 'bin' / 'python'}\n{ENTRY}", encoding="utf-8")
    script.chmod(0o755)
    return BaseInstall(folder)
