"""Graded development and report files of a recipe."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from msdc.distill.data.corpora import refuse_test_set
from msdc.errors import InputError
from msdc.text.scored_pairs import ANY_SCORE, ScoredPairs, read_pairs


def read_graded(path: str, choosing: bool = True, limit: int | None = None) -> ScoredPairs:
    """A development file in any layout of `msdc.text.scored_pairs` and any range of scores.

    Rows without a score are skipped; `limit` takes that many of the others, evenly spread.
    """
    file = Path(path).expanduser()
    if choosing:
        refuse_test_set(file, "choose checkpoints; name a development set")
    name = re.sub(r"(\.(tsv|csv|txt|gz))+$", "", file.name)
    pairs = read_pairs(file, name, ANY_SCORE, skip_bad=True)
    if len(pairs) < 2:
        raise InputError(f"{path}: one graded pair, at least two are required")
    if np.ptp(pairs.gold_N) == 0:
        raise InputError(f"{path}: all {len(pairs)} pairs have the score {pairs.gold_N[0]:g}, which ranks nothing")
    return pairs if limit is None else pairs.spread(limit)
