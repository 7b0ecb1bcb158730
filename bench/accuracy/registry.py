"""Every task by name. Explicit imports: a new task is one file and one line here."""

from __future__ import annotations

from bench.accuracy.task import Task
from bench.accuracy.tasks import sts
from msdc.errors import InputError

TASKS: dict[str, Task] = {task.name: task for task in (sts.TASK,)}


def find_task(name: str) -> Task:
    """Task by name.

    Raises:
        InputError: unknown name; the message lists the known ones.
    """
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; known tasks: {', '.join(TASKS)}")
    return TASKS[name]
