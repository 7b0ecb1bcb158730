"""The negatives that a teacher finds in the text of a stage.

Shapes: N sentences, D sentence width, B rows of a block, M texts to choose from.
"""

from __future__ import annotations

import torch

from msdc.distill.data import Row
from msdc.distill.objectives.shared import unit_vectors
from msdc.distill.teacher.joined import Teacher
from msdc.errors import InputError
from msdc.text.answers import equal_form

MINED_TOGETHER = 1024  # rows whose similarities with all targets are computed at once


def mined(
    rows: list[Row], teacher: Teacher, count: int, margin: float = 0.0, prompts: tuple[str, str] = ("", "")
) -> list[Row]:
    """The rows with `count` negatives each: of all their targets the nearest to the source, by the teacher.

    Targets nearer than the row's own less `margin` are not negatives: by the teacher they are as good. Nor is the
    source itself, or a target of another row with the same source; texts are the same if their `equal_form` is. Rows
    with fewer than `count` negatives are dropped.

    `prompts` are the teacher's, of sources and of targets.

    Raises:
        InputError: all rows are dropped.

    Source: Moreira et al. 2024 (NV-Retriever), mining with a margin below the positive's score.
    """
    targets = list(dict.fromkeys(row.target or row.source for row in rows))
    number = {text: index for index, text in enumerate(targets)}
    normal = {text: equal_form(text) for text in dict.fromkeys([*(row.source for row in rows), *targets])}
    equal: dict[str, list[int]] = {}  # targets by normal form
    for index, text in enumerate(targets):
        equal.setdefault(normal[text], []).append(index)
    answers: dict[str, set[str]] = {}  # normal forms that are no negatives, by that of the source
    for row in rows:
        answers.setdefault(normal[row.source], {normal[row.source]}).add(normal[row.target or row.source])
    excluded = {
        source: [index for text in targets_of_source for index in equal.get(text, ())]
        for source, targets_of_source in answers.items()
    }
    found_ND = teacher.vectors(
        [*(prompts[0] + row.source for row in rows), *(prompts[1] + text for text in targets)], shared=True
    )
    vectors = unit_vectors(torch.from_numpy(found_ND))
    sources_BD, targets_MD = vectors[: len(rows)], vectors[len(rows) :]
    mined_rows = []
    for start in range(0, len(rows), MINED_TOGETHER):
        block = rows[start : start + MINED_TOGETHER]
        scores_BM = sources_BD[start : start + len(block)] @ targets_MD.T
        own_B1 = torch.tensor([[number[row.target or row.source]] for row in block])
        limit_B1 = scores_BM.gather(1, own_B1) - margin
        scores_BM = scores_BM.masked_fill(scores_BM >= limit_B1, -torch.inf)
        for scores_M, row in zip(scores_BM, block, strict=True):
            scores_M[excluded[normal[row.source]]] = -torch.inf
        best, places = scores_BM.topk(min(count, len(targets)), dim=1)
        for row, values, candidates in zip(block, best.tolist(), places.tolist(), strict=True):
            near = [targets[i] for value, i in zip(values, candidates, strict=True) if value > -1e30]
            if len(near) == count:
                mined_rows.append(row._replace(negatives=tuple(near)))
    if not mined_rows:
        raise InputError(
            f"mined_negatives: {count}: none of {len(rows)} rows has as many targets that the teacher finds further"
        )
    return mined_rows
