"""Named data sets, suites of them, and the words of `--tasks`. A new set is one record in its kind's module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.registry import TASKS, find_task
from msdc.bench.accuracy.sets import labels, similarity, translation
from msdc.bench.accuracy.sets.named_set import ENVIRONMENT, DataFolder, NamedSet, Part
from msdc.bench.accuracy.task import Task
from msdc.errors import InputError

SETS: dict[str, NamedSet] = {one.name: one for one in (*similarity.SETS, *translation.SETS, *labels.SETS)}

CARD = "card"
# A suite scores what the data folder holds and reports the rest as absent; a set named by itself must be there.
SUITES: dict[str, tuple[str, ...]] = {
    "quick": ("graded-pairs", "quickstart", "bias/graded-pairs", "drift/quickstart"),
    "paper-msd": ("sts17",),
    "paper-mkd": ("sts17", "bucc", "tatoeba", "bias/sts17"),
    "paper-dcse": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "geometry", "senteval"),
    "paper-lxs": ("mldoc", "xsr"),
    CARD: (
        "sts17", "stsb", "stsb-multi", "stsb-cross", "stsb-multi-dev", "stsb-tr-dev", "graded-pairs",
        "tatoeba", "flores", "flores-mining", "bias", "flores-topics", "geometry", "drift",
    ),
}  # fmt: skip
SUITES["paper"] = tuple(
    dict.fromkeys(word for name in ("paper-msd", "paper-mkd", "paper-dcse", "paper-lxs") for word in SUITES[name])
)


@dataclass(frozen=True)
class DataSet:
    """One data set to load and the task that scores it."""

    name: str
    task: Task
    load: Callable[[], Any]


@dataclass
class Selection:
    """The data sets to score, and those of a suite that the data folder lacks."""

    sets: list[DataSet] = field(default_factory=list)
    absent: list[dict[str, str]] = field(default_factory=list)


def select_sets(words: Iterable[str], data: DataFolder) -> Selection:
    """The data sets that the words of `--tasks` name: a suite, a set (`sts17`), a part (`sts17/en-en`), or `task=PATH`.

    Raises:
        InputError: an unknown word (lists the known ones), or files of a set named by itself that are absent.
    """
    found = Selection()
    for word in words:
        if "=" in word:
            name, _, path = word.partition("=")
            task = find_task(name)
            found.sets.append(DataSet(word, task, partial(_read_path, task, path)))
        elif word in SUITES:
            for member in SUITES[word]:
                _add_set(found, member, data, suite=True)
        else:
            _add_set(found, word, data, suite=False)
    unique = {one.name: one for one in found.sets}
    return Selection(list(unique.values()), found.absent)


def _read_path(task: Task, path: str) -> Any:
    from msdc.bench.accuracy.sets.remote import read_remote

    return read_remote(task, path) if path.startswith(("hub:", "mteb:")) else task.read(Path(path))


def _add_set(found: Selection, word: str, data: DataFolder, suite: bool) -> None:
    name, _, part_name = word.partition("/")
    if name not in SETS:
        raise InputError(
            f"unknown task {word!r}; sets: {', '.join(SETS)}; suites: {', '.join(SUITES)}; "
            f"or TASK=PATH with TASK one of {', '.join(TASKS)}"
        )
    one = SETS[name]
    parts = list(one.parts(data))
    if part_name:
        parts = [part for part in parts if part.name == word]
        if not parts:
            known = ", ".join(part.name for part in one.parts(data)) or "none"
            raise InputError(f"{name} has no part {part_name!r}; known parts: {known}")
    elif suite or len(parts) > 1:
        parts = [part for part in parts if not part.extra]
    here = [part for part in parts if part.load is not None]
    if not here and not suite:
        raise InputError(_absent_message(word, parts, data))
    for part in parts:
        if part.load is None:
            found.absent.append({"task": one.task.name, "name": part.name, "looked_for": part.looked_for})
        else:
            found.sets.append(DataSet(part.name, one.task, part.load))


def _absent_message(word: str, parts: list[Part], data: DataFolder) -> str:
    if data.folder is None:
        return f"{word} needs a data folder: pass --data FOLDER or set {ENVIRONMENT}"
    looked = parts[0].looked_for if parts else "its files"
    return f"{word}: no {looked} under {data.folder}; put the files there, or score a file with TASK=PATH"
