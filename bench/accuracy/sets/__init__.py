"""Named data sets, suites of them, and what a `--tasks` word means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.registry import TASKS, find_task
from msdc.bench.accuracy.sets import labels, similarity, translation
from msdc.bench.accuracy.sets.place import ENVIRONMENT, NamedSet, Part, Place, data_place
from msdc.bench.accuracy.task import Task
from msdc.errors import InputError

__all__ = ["SETS", "SUITES", "Job", "NamedSet", "Part", "Place", "Plan", "data_place", "plan"]

SETS: dict[str, NamedSet] = {one.name: one for one in (*similarity.SETS, *translation.SETS, *labels.SETS)}

# Suites take what the data folder holds and report the rest as absent; a set named by itself must be there.
SUITES: dict[str, tuple[str, ...]] = {
    "quick": ("graded-pairs", "quickstart", "bias/graded-pairs", "drift/quickstart"),
    "paper-msd": ("sts17",),
    "paper-mkd": ("sts17", "bucc", "tatoeba", "bias/sts17"),
    "paper-dcse": ("sts12", "sts13", "sts14", "sts15", "sts16", "stsb", "sickr", "geometry", "senteval"),
    "paper-lxs": ("mldoc", "xsr"),
    "card": (
        "sts17", "stsb", "stsb-multi", "stsb-cross", "stsb-multi-dev", "stsb-tr-dev", "graded-pairs",
        "tatoeba", "flores", "flores-mining", "bias", "flores-topics", "geometry", "drift",
    ),
}  # fmt: skip
SUITES["paper"] = tuple(
    dict.fromkeys(word for name in ("paper-msd", "paper-mkd", "paper-dcse", "paper-lxs") for word in SUITES[name])
)


@dataclass(frozen=True)
class Job:
    """One data set to load and the task that scores it."""

    name: str
    task: Task
    load: Callable[[], Any]


@dataclass
class Plan:
    """What will be scored, and what a suite wanted and did not find."""

    jobs: list[Job] = field(default_factory=list)
    absent: list[dict[str, str]] = field(default_factory=list)


def plan(words: Iterable[str], place: Place) -> Plan:
    """Turn `--tasks` words into jobs: a suite, a set (`sts17`), a part (`sts17/en-en`), or `task=PATH`.

    Raises:
        InputError: an unknown word (the known ones are listed), or a set named by itself whose files are absent.
    """
    found = Plan()
    for word in words:
        if "=" in word:
            name, _, path = word.partition("=")
            task = find_task(name)
            found.jobs.append(Job(word, task, partial(_read_path, task, path)))
        elif word in SUITES:
            for member in SUITES[word]:
                _add_set(found, member, place, suite=True)
        else:
            _add_set(found, word, place, suite=False)
    unique = {job.name: job for job in found.jobs}
    return Plan(list(unique.values()), found.absent)


def _read_path(task: Task, path: str) -> Any:
    from msdc.bench.accuracy.sets.remote import read_remote

    return read_remote(task, path) if path.startswith(("hub:", "mteb:")) else task.read(Path(path))


def _add_set(found: Plan, word: str, place: Place, suite: bool) -> None:
    name, _, part_name = word.partition("/")
    if name not in SETS:
        raise InputError(
            f"unknown task {word!r}; sets: {', '.join(SETS)}; suites: {', '.join(SUITES)}; "
            f"or TASK=PATH with TASK one of {', '.join(TASKS)}"
        )
    one = SETS[name]
    parts = list(one.parts(place))
    if part_name:
        parts = [part for part in parts if part.name == word]
        if not parts:
            known = ", ".join(part.name for part in one.parts(place)) or "none"
            raise InputError(f"{name} has no part {part_name!r}; known parts: {known}")
    elif suite or len(parts) > 1:
        parts = [part for part in parts if not part.extra]
    here = [part for part in parts if part.load is not None]
    if not here and not suite:
        raise InputError(_absent_message(word, parts, place))
    for part in parts:
        if part.load is None:
            found.absent.append({"task": one.task.name, "name": part.name, "looked_for": part.looked_for})
        else:
            found.jobs.append(Job(part.name, one.task, part.load))


def _absent_message(word: str, parts: list[Part], place: Place) -> str:
    if place.folder is None:
        return f"{word} needs a data folder: pass --data FOLDER or set {ENVIRONMENT}"
    looked = parts[0].looked_for if parts else "its files"
    return f"{word}: no {looked} under {place.folder}; put the files there, or score a file with TASK=PATH"
