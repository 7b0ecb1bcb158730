"""Validation during training: held-out parallel sentences and graded development sets.

Never a test set: the paper's own code chose checkpoints on STS2017, this does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data import Row
from msdc.distill.data.corpora import refuse_test_set
from msdc.distill.teacher_cache import CachedTeacher
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.scores import cosine_rows, mse, nearest_accuracy, spearman
from msdc.text.scored_pairs import ScoredPairs, read_pairs

ANY_SCORE = (-math.inf, math.inf)


def read_graded(path: str, choosing: bool = True, limit: int | None = None) -> ScoredPairs:
    """A development file in any layout of `msdc.text.scored_pairs`, whatever the range of its scores.

    Rows without a score are left out; of the others at most `limit` are taken, evenly spread.

    Raises:
        InputError: missing, a name that says it is a test set while `choosing`, or fewer than two graded pairs.
    """
    file = Path(path).expanduser()
    if choosing:
        refuse_test_set(file, "choose checkpoints; name a development set")
    name = re.sub(r"(\.(tsv|csv|txt|gz))+$", "", file.name)
    pairs = read_pairs(file, name, ANY_SCORE, skip_bad=True)
    if len(pairs) < 2:
        raise InputError(f"{path}: one graded pair, at least two are required")
    return pairs if limit is None else pairs.spread(limit)


@dataclass
class Validator:
    """Scores a student: MSE and nearest-neighbour accuracy on held-out pairs by language, Spearman on graded pairs.

    `project` maps its vectors to the guide's width for the MSE, where the stage trains such a map; a student of another
    width without one has no MSE.
    """

    heldout: dict[str, list[Row]]
    graded: list[ScoredPairs]
    guide: CachedTeacher | None
    choose: str = "auto"
    project: Callable[[Tensor], Tensor] | None = None

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Numbers by name; weights are chosen by `choice`, larger is better."""
        numbers: dict[str, float] = {}
        errors, accuracies = [], []
        for code, rows in sorted(self.heldout.items()):
            source_ND = encoder.encode([row.source for row in rows])
            target_ND = encoder.encode([row.target for row in rows]) if any(row.target for row in rows) else source_ND
            compared_ND = self._to_guide_width(target_ND)
            if self.guide is not None and self.guide.width == compared_ND.shape[1]:
                guide_ND = self.guide.vectors([row.source for row in rows])
                numbers[f"mse_{code}"] = mse(guide_ND, compared_ND)
                errors.append(numbers[f"mse_{code}"])
            numbers[f"accuracy_{code}"] = float(np.mean(nearest_accuracy(source_ND, target_ND)))
            accuracies.append(numbers[f"accuracy_{code}"])
        correlations = []
        for graded in self.graded:
            cosines = cosine_rows(encoder.encode(graded.first), encoder.encode(graded.second))
            # A collapsed student ranks nothing; that is a score of zero, not a reason to stop the run.
            value = 0.0 if np.ptp(cosines) == 0 else spearman(cosines, graded.gold_N)
            numbers[f"spearman_{graded.name}"] = value
            correlations.append(value)
        if errors:
            numbers["heldout_mse"] = float(np.mean(errors))
        if accuracies:
            numbers["heldout_accuracy"] = float(np.mean(accuracies))
        width = encoder.width if self.guide is None else self.guide.width
        numbers["choice"] = self._choice(numbers, bool(correlations), bool(errors), width)
        if correlations:
            numbers["graded"] = float(np.mean(correlations))
        return numbers

    def _to_guide_width(self, vectors_ND: np.ndarray) -> np.ndarray:
        if self.project is None:
            return vectors_ND
        with torch.no_grad():
            return self.project(torch.from_numpy(vectors_ND)).float().cpu().numpy()

    def _choice(self, numbers: dict[str, float], graded: bool, errors: bool, width: int) -> float:
        """The number to choose by: from graded and held-out pairs together, or from those that the stage names."""
        graded = graded and self.choose != "heldout"
        errors = errors and (self.choose != "graded" or not graded)
        spearmans = [value for name, value in numbers.items() if name.startswith("spearman_")]
        choice = float(np.mean(spearmans)) if graded else 0.0
        if errors:
            choice -= 100.0 * float(np.sqrt(numbers["heldout_mse"] * width)) / (4.0 if graded else 1.0)
        elif not graded and "heldout_accuracy" in numbers:
            choice = numbers["heldout_accuracy"]
        return choice
