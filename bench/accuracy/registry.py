"""Every task by name. Adding one is a module in `tasks/` and its name in `MODULES`."""

from __future__ import annotations

from msdc.bench.accuracy.task import Task
from msdc.bench.accuracy.tasks import (
    bias,
    classification,
    drift,
    geometry,
    mining,
    mse,
    retrieval,
    sts,
    tatoeba,
    transfer,
)
from msdc.errors import InputError

MODULES = (sts, mining, tatoeba, retrieval, bias, classification, transfer, geometry, mse, drift)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in MODULES}


def find_task(name: str) -> Task:
    """Task by name.

    Raises:
        InputError: unknown name; lists the known ones.
    """
    if name not in TASKS:
        raise InputError(f"unknown task {name!r}; known tasks: {', '.join(TASKS)}")
    return TASKS[name]
