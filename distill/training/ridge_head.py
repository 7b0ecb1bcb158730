"""A linear head fitted in closed form, before the first step of training.

A student that is cut from a model has that model's offset, which all its vectors share, and spends its first steps on
learning the teacher's instead. Ridge regression from the pooled states to the teacher's vectors finds both offsets and
the map between them at once.

Shapes: N texts, H width of the pooled states, D width of the teacher's vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from msdc.compress.mean_vector import unnormalised
from msdc.compress.student.config import DENSE, DENSE_BIAS
from msdc.encoders.encoder import Encoder
from msdc.scores import explained_variance

PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # times the mean variance of a pooled dimension
HELD_OUT = 5  # every so many texts choose the penalty


def pooled_states(learner: Encoder, texts: Sequence[str], precision: str) -> np.ndarray:
    """The states of a student's texts before its head, averaged over the tokens, float32 [N, H].

    Texts come with their prompts.
    """
    headless = unnormalised(learner, learner.module, head=False)
    return np.asarray(headless.encode(texts, prompt="", precision=precision), np.float32)


def ridge(pooled_NH: np.ndarray, teacher_ND: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """The map [D, H] and the bias [D] with the least squared error plus `penalty` times the map's squared norm.

    Hoerl and Kennard 1970. The bias is not penalised; `penalty` is in units of the summed variance of a dimension.
    """
    x_NH, y_ND = pooled_NH.astype(np.float64), teacher_ND.astype(np.float64)
    x_mean_H, y_mean_D = x_NH.mean(0), y_ND.mean(0)
    x_NH, y_ND = x_NH - x_mean_H, y_ND - y_mean_D
    gram_HH = x_NH.T @ x_NH
    gram_HH += penalty * np.trace(gram_HH) / len(gram_HH) * np.eye(len(gram_HH))
    map_HD = np.linalg.solve(gram_HH, x_NH.T @ y_ND)
    return map_HD.T.astype(np.float32), (y_mean_D - x_mean_H @ map_HD).astype(np.float32)


def fit_head(learner: Encoder, pooled_NH: np.ndarray, teacher_ND: np.ndarray) -> float:
    """Fit the student's head to the teacher's vectors; returns the explained variance of held-out texts (R²).

    A fifth of the texts chooses the penalty, then all of them give the head.
    """
    held_N = np.arange(len(pooled_NH)) % HELD_OUT == 0
    scores = {}
    for penalty in PENALTIES:
        map_DH, bias_D = ridge(pooled_NH[~held_N], teacher_ND[~held_N], penalty)
        scores[penalty] = explained_variance(teacher_ND[held_N], pooled_NH[held_N] @ map_DH.T + bias_D)
    best = max(scores, key=lambda penalty: scores[penalty])
    map_DH, bias_D = ridge(pooled_NH, teacher_ND, best)
    student: Any = learner.module
    head = {DENSE: torch.from_numpy(map_DH), DENSE_BIAS: torch.from_numpy(bias_D)}
    student.load_state_dict(student.state_dict() | head)
    return scores[best]
