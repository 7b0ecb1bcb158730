"""Validation during training: held-out parallel sentences and graded development sets.

Never a test set: the paper's own code chose checkpoints on STS2017, this does not.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data import Row
from msdc.distill.data.corpora import refuse_test_set
from msdc.distill.recipe import Corpus
from msdc.distill.teacher_cache import CachedTeacher
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.scores import cosine_rows, mse, nearest_accuracy, spearman
from msdc.text.scored_pairs import ScoredPairs, read_pairs

ANY_SCORE = (-math.inf, math.inf)


def read_graded(path: str, choosing: bool = True, limit: int | None = None) -> ScoredPairs:
    """A development file in any layout of `msdc.text.scored_pairs`, whatever the range of its scores.

    Rows without a score are left out; of the others at most `limit` are taken, evenly spread.
    """
    file = Path(path).expanduser()
    if choosing:
        refuse_test_set(file, "choose checkpoints; name a development set")
    name = re.sub(r"(\.(tsv|csv|txt|gz))+$", "", file.name)
    pairs = read_pairs(file, name, ANY_SCORE, skip_bad=True)
    if len(pairs) < 2:
        raise InputError(f"{path}: one graded pair, at least two are required")
    return pairs if limit is None else pairs.spread(limit)


def scored_heldout(
    heldout: dict[str, list[Row]], corpora: Sequence[Corpus]
) -> tuple[list[ScoredPairs], dict[str, list[Row]]]:
    """Held-out rows of scored corpora as one graded set, and the other rows by language.

    Nearest neighbours say nothing about pairs that are alike to a degree; their correlation with the scores does.
    """

    def of_kind(row: Row) -> bool:
        return corpora[row.domain].kind == "scored"

    scored = [row for rows in heldout.values() for row in rows if row.label is not None and of_kind(row)]
    if len({row.label for row in scored}) < 2:
        return [], heldout
    gold_N = np.array([row.label for row in scored])
    numbers = list(range(1, len(scored) + 1))
    first, second = [row.source for row in scored], [row.target for row in scored]
    pairs = ScoredPairs("heldout", first, second, gold_N, ["heldout"] * len(scored), numbers, [])
    others = {code: [row for row in rows if row.label is None or not of_kind(row)] for code, rows in heldout.items()}
    return [pairs], {code: rows for code, rows in others.items() if rows}


@dataclass
class Validator:
    """Scores a student: MSE and nearest-neighbour accuracy on held-out pairs by language, Spearman on graded pairs.

    `project` maps its vectors to the teacher's width for the MSE, where the stage trains such a map; a student of
    another width without one has no MSE. `dimensions`: so many first numbers are scored on graded pairs too.
    """

    heldout: dict[str, list[Row]]
    graded: list[ScoredPairs]
    teacher: CachedTeacher | None
    choose: str = "auto"
    project: Callable[[Tensor], Tensor] | None = None
    dimensions: tuple[int, ...] = ()

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Numbers by name; weights are chosen by `choice`, larger is better."""
        numbers: dict[str, float] = {}
        errors, accuracies, correlations = [], [], []
        for code, rows in sorted(self.heldout.items()):
            source_ND = encoder.encode([row.source for row in rows])
            target_ND = encoder.encode([row.target for row in rows]) if any(row.target for row in rows) else source_ND
            compared_ND = target_ND
            if self.project is not None:
                with torch.no_grad():
                    compared_ND = self.project(torch.from_numpy(target_ND)).float().cpu().numpy()
            if self.teacher is not None and self.teacher.width == compared_ND.shape[1]:
                errors.append(mse(self.teacher.vectors([row.source for row in rows]), compared_ND))
                numbers[f"mse_{code}"] = errors[-1]
            accuracies.append(float(np.mean(nearest_accuracy(source_ND, target_ND))))
            numbers[f"accuracy_{code}"] = accuracies[-1]
        for graded in self.graded:
            first_ND, second_ND = encoder.encode(graded.first), encoder.encode(graded.second)
            cosines = cosine_rows(first_ND, second_ND)
            # A collapsed student ranks nothing; that is a score of zero, not a reason to stop the run.
            correlations.append(0.0 if np.ptp(cosines) == 0 else spearman(cosines, graded.gold_N))
            numbers[f"spearman_{graded.name}"] = correlations[-1]
            for width in self.dimensions:
                cut = cosine_rows(first_ND[:, :width], second_ND[:, :width])
                numbers[f"spearman_{graded.name}_{width}"] = 0.0 if np.ptp(cut) == 0 else spearman(cut, graded.gold_N)
        means = {"heldout_mse": errors, "heldout_accuracy": accuracies, "graded": correlations}
        found = {name: float(np.mean(values)) for name, values in means.items() if values}
        width = encoder.width if self.teacher is None else self.teacher.width
        choice = chosen_by(self.choose, width, *(found.get(name) for name in means))
        graded_mean = {"graded": found.pop("graded")} if correlations else {}
        return {**numbers, **found, "choice": choice, **graded_mean}


def chosen_by(choose: str, width: int, error: float | None, accuracy: float | None, graded: float | None) -> float:
    """The number to choose weights by: from graded and held-out pairs together, or those that the stage names.

    `error` is the mean squared error per number of vectors of `width`; what was not measured is None.
    """
    if choose == "heldout" and (error is not None or accuracy is not None):
        graded = None
    if error is not None and (choose != "graded" or graded is None):
        distance = 100.0 * float(np.sqrt(error * width))
        return -distance if graded is None else graded - distance / 4.0
    return graded if graded is not None else accuracy or 0.0
