"""Mean squared error to the teacher on held-out parallel sentences: MKD's development measure (eq. 1)."""

from __future__ import annotations

import numpy as np

from msdc.bench.accuracy.readers.parallel import Parallel, read_parallel
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import cosine_rows, mse


def score(store: VectorStore, data: Parallel, options: Options) -> Outcome:
    """MSE x 100 between the teacher's vectors of the first language and the model's of both; lower is better.

    Raises:
        InputError: no teacher (`--reference`), or one of another width.
    """
    teacher = options.reference
    if teacher is None:
        raise InputError("mse compares with a teacher: name it with --reference MODEL")
    if len(data.languages) != 2:
        raise InputError(f"{data.name}: needs two languages, got {data.languages}")
    first, second = data.sides.values()
    goal_ND = teacher.encode(first, data.where)
    source_ND, target_ND = np.split(store.encode(data.texts(), data.where), 2)
    if goal_ND.shape[1] != source_ND.shape[1]:
        raise InputError(f"the teacher has width {goal_ND.shape[1]} and {store.name} {source_ND.shape[1]}")
    source, target = mse(goal_ND, source_ND), mse(goal_ND, target_ND)
    return Outcome(
        {
            "mse": 100.0 * target,
            "mse_source": 100.0 * source,
            "cosine_to_teacher": float(cosine_rows(goal_ND, target_ND).mean()),
            "languages": data.languages,
            "teacher": teacher.name,
            "pairs": len(second),
        }
    )


TASK = Task("mse", "MSE x 100 to the teacher on parallel sentences", "mse", read_parallel, score, needs_reference=True)
