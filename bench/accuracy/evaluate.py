"""One model on one task's file: the stable Python interface."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from pydantic import JsonValue

from msdc.bench.accuracy.registry import find_task
from msdc.bench.accuracy.sets.named_set import find_data_folder
from msdc.bench.accuracy.sets.registry import select_sets
from msdc.bench.accuracy.task import Data, Options, Outcome, Settings, Task
from msdc.bench.accuracy.vectors import SupportsEncode, VectorStore
from msdc.errors import InputError


def result_of(task: Task, store: VectorStore, data: Data, options: Options) -> tuple[dict[str, Any], Outcome]:
    """Score one data set; the result names the files that its rows come from."""
    started = time.perf_counter()
    outcome = task.score(store, data, options)
    result: dict[str, Any] = {
        "task": task.name,
        "name": data.name,
        "model": store.name,
        "main": task.main,
        **outcome.scores,
        "data": [source.as_dict() for source in data.sources],
    }
    if data.notes:
        result["notes"] = list(data.notes)
    result["seconds"] = round(time.perf_counter() - started, 3)
    return plain(result), outcome


def plain(value: Any) -> Any:
    """JSON values: numpy scalars and tuples become plain, numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def evaluate(
    model: SupportsEncode,
    task: str = "sts",
    path: str | Path | None = None,
    *,
    data: str | Path | None = None,
    **settings: Unpack[Settings],
) -> dict[str, JsonValue]:
    """Score `model` (anything with `.encode(texts) -> float32 [N, D]`) on one file or folder of a task.

    Without `path`, `task` names a data set (`graded-pairs`, `sts17/en-en`), read from the folder `data`, from that of
    MSDC_DATA, or from the package. Correlations, accuracies and F1 are x 100. `settings` are the fields of `Options`
    (resamples=0 skips the bootstrap).

    Raises:
        InputError: unknown task or set, a set of several parts, or a bad file; with the line number.
        MsdcError: the model's vectors cannot be scored (NaN, all the same).
    """
    store = model if isinstance(model, VectorStore) else VectorStore(model)
    if path is not None:
        chosen = find_task(task)
        return result_of(chosen, store, chosen.read(Path(path)), Options(**settings))[0]
    found = select_sets([task], find_data_folder(data)).sets
    if len(found) != 1:
        raise InputError(f"{task} is {len(found)} data sets; name one of: {', '.join(one.name for one in found)}")
    result, _ = result_of(found[0].task, store, found[0].load(), Options(**settings))
    return result | {"name": found[0].name}
