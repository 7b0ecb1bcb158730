"""Several teachers of one stage as one, in the proportions that the stage gives.

Shapes: N texts, D the sum of the teachers' sentence widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from msdc.distill.teacher.cached import CachedTeacher
from msdc.scores import joined_rows


class JoinedTeacher:
    """Teachers whose vectors, at unit length, are joined: each is scaled by the root of its share of the weights.

    A joined vector has length 1, and the cosine of two is the weighted mean of the teachers' cosines. An objective on
    similarities thus learns from the mean; the squared error of a learned map to D dimensions is the weighted sum of
    the teachers' own. Each teacher keeps its own store, which runs with it alone share.

    Args:
        teachers: teachers without layers, with their weights.
    """

    layers: tuple[int, ...] = ()
    hidden = 0

    def __init__(self, teachers: Mapping[CachedTeacher, float]) -> None:
        self.weights = dict(teachers)
        self.width = self.row_width = sum(teacher.width for teacher in teachers)

    def _joined(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Rows [N, D] of the teachers' rows; NaN throughout where one of them is missing."""
        joined_ND = joined_rows(rows, [*self.weights.values()])
        joined_ND[np.isnan(joined_ND).any(axis=1)] = np.nan
        return joined_ND

    def vectors(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> np.ndarray:
        """Joined vectors of `texts`, float32 [N, D]; arguments and errors as of `CachedTeacher.rows`."""
        return self._joined([teacher.vectors(texts, shared, progress) for teacher in self.weights])

    rows = vectors

    def stored(self, keys: np.ndarray) -> np.ndarray:
        """Stored rows float32 [N, D]; NaN where one is missing."""
        return self._joined([teacher.stored(keys) for teacher in self.weights])


Teacher = CachedTeacher | JoinedTeacher
