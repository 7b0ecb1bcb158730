"""How a checkpoint is judged while it is being taught: held-out parallel sentences and a graded development set.

Never a test set: the paper's own code chose on STS2017, this does not.
"""

from __future__ import annotations

import csv
import gzip
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msdc.distill.data.sources import Row
from msdc.distill.guide import Guide
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.scores import cosine_rows, mse, nearest_accuracy, spearman


@dataclass(frozen=True)
class Graded:
    """A graded development file: (score, sentence, sentence)."""

    name: str
    scores: list[float]
    first: list[str]
    second: list[str]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def read_graded(path: str, choosing: bool = True, limit: int | None = None) -> Graded:
    """A development file: tsv or csv, gzipped or not; the score in any column, the sentences in the last two others.

    Knows STSb's own form (genre, file, year, id, score, s1, s2), (score, s1, s2) and (s1, s2, score); a header is
    passed over. Rows without a score are left out; of the others at most `limit` are taken, evenly spread.

    Raises:
        InputError: missing, a name that says it is a test set while `choosing`, or no graded pair in it.
    """
    file = Path(path).expanduser()
    if choosing and re.search(r"test|sts-?20\d\d|sts1[2-6]", file.name.lower()):
        raise InputError(f"{path}: a test set is not for choosing checkpoints; name a development set")
    if not file.is_file():
        raise InputError(f"{path}: no such graded file")
    comma = ".csv" in file.suffixes
    scores, first, second = [], [], []
    with (
        gzip.open(file, "rt", encoding="utf-8", newline="")
        if file.suffix == ".gz"
        else open(file, encoding="utf-8", newline="")
    ) as handle:
        rows = csv.reader(handle) if comma else (line.rstrip("\r\n").split("\t") for line in handle)
        for cells in rows:
            if comma and len(cells) == 3:
                score, one, two = _number(cells[2]), cells[0], cells[1]
            elif len(cells) >= 7:
                score, one, two = _number(cells[4]), cells[5], cells[6]
            elif len(cells) == 5:
                score, one, two = _number(cells[0]), cells[3], cells[4]
            elif len(cells) == 3:
                score, one, two = _number(cells[0]), cells[1], cells[2]
            else:
                continue
            if score is not None:
                scores.append(score)
                first.append(one)
                second.append(two)
    if len(scores) < 2:
        raise InputError(f"{path}: no graded pairs found")
    step = 1 if limit is None else -(-len(scores) // limit)
    scores, first, second = scores[::step], first[::step], second[::step]
    return Graded(re.sub(r"(\.(tsv|csv|txt|gz))+$", "", file.name), scores, first, second)


@dataclass
class Judge:
    """Scores a student: MSE and nearest-neighbour accuracy on held-out pairs by language, Spearman on graded pairs."""

    heldout: dict[str, list[Row]]
    graded: list[Graded]
    guide: Guide | None
    choose: str = "auto"

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Numbers by name; `choice` is the one to choose by, larger is better."""
        numbers: dict[str, float] = {}
        errors, accuracies = [], []
        for code, rows in sorted(self.heldout.items()):
            source_ND = encoder.encode([row.source for row in rows])
            target_ND = encoder.encode([row.target for row in rows]) if any(row.target for row in rows) else source_ND
            if self.guide is not None and self.guide.sentence_width == source_ND.shape[1]:
                guide_ND = self.guide.vectors([row.source for row in rows])[:, : self.guide.sentence_width]
                numbers[f"mse_{code}"] = mse(guide_ND, target_ND)
                errors.append(numbers[f"mse_{code}"])
            numbers[f"accuracy_{code}"] = float(np.mean(nearest_accuracy(source_ND, target_ND)))
            accuracies.append(numbers[f"accuracy_{code}"])
        correlations = []
        for graded in self.graded:
            cosines = cosine_rows(encoder.encode(graded.first), encoder.encode(graded.second))
            # A collapsed student has no ranking at all; that is a score of zero, not a reason to stop the run.
            value = 0.0 if np.ptp(cosines) == 0 else spearman(cosines, np.array(graded.scores))
            numbers[f"spearman_{graded.name}"] = value
            correlations.append(value)
        if errors:
            numbers["heldout_mse"] = float(np.mean(errors))
        if accuracies:
            numbers["heldout_accuracy"] = float(np.mean(accuracies))
        numbers["choice"] = self._choice(numbers, bool(correlations), bool(errors), encoder.width)
        if correlations:
            numbers["graded"] = float(np.mean(correlations))
        return numbers

    def _choice(self, numbers: dict[str, float], graded: bool, errors: bool, width: int) -> float:
        """Both kinds of evidence count where the stage does not say otherwise: graded pairs, and held-out pairs."""
        graded = graded and self.choose != "heldout"
        errors = errors and (self.choose != "graded" or not graded)
        spearmans = [value for name, value in numbers.items() if name.startswith("spearman_")]
        choice = float(np.mean(spearmans)) if graded else 0.0
        if errors:
            choice -= 100.0 * float(np.sqrt(numbers["heldout_mse"] * width)) / (4.0 if graded else 1.0)
        elif not graded and "heldout_accuracy" in numbers:
            choice = numbers["heldout_accuracy"]
        return choice
