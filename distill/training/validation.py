"""Validation during training: held-out parallel sentences and graded development sets.

Never a test set: the paper's own code chose checkpoints on STS2017.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from msdc.distill.data import Row
from msdc.distill.data.graded import read_graded
from msdc.distill.data.tables import NO_PROMPTS
from msdc.distill.data.text import StageText
from msdc.distill.parallel import rank_and_world
from msdc.distill.recipe import Corpus, StagePlan
from msdc.distill.tasks.sentence import TrainingTask, reads_targets
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import MsdcError
from msdc.progress import warn
from msdc.scores import cosine_rows, explained_variance, mse, spearman
from msdc.text.answers import nearest_accuracy
from msdc.text.scored_pairs import ScoredPairs


def scored_heldout(
    heldout: dict[str, list[Row]], corpora: Sequence[Corpus]
) -> tuple[list[ScoredPairs], dict[str, list[Row]]]:
    """Held-out rows of scored corpora as one graded set, and the other rows by language.

    Pairs that are similar to a degree are measured by the correlation with their scores, not by nearest neighbours.
    """

    def is_scored(row: Row) -> bool:
        return row.label is not None and corpora[row.domain].kind == "scored"

    scored = [row for rows in heldout.values() for row in rows if is_scored(row)]
    if len({row.label for row in scored}) < 2:
        return [], heldout
    gold_N, numbers = np.array([row.label for row in scored]), list(range(1, len(scored) + 1))
    first, second = [row.source for row in scored], [row.target for row in scored]
    pairs = ScoredPairs("heldout", first, second, gold_N, ["heldout"] * len(scored), numbers, [])
    others = {code: [row for row in rows if not is_scored(row)] for code, rows in heldout.items()}
    return [pairs], {code: rows for code, rows in others.items() if rows}


FEW_GRADED = 50  # pairs


class Validator:
    """Scores a student: MSE and nearest-neighbour accuracy on held-out pairs by language, Spearman on graded pairs.

    MSE and explained variance (R²) compare vectors of the teacher's width: the student's own, or those of the task's
    learned map to it. Where all of a teacher's vectors are near each other, cosines are high from the first step on and
    only the explained variance shows what the student has learned.
    """

    def __init__(self, task: TrainingTask, text: StageText, plan: StagePlan) -> None:
        self.task, self.heldout = task, text.heldout_rows()
        self.both_sides = reads_targets(plan)
        self.graded = [read_graded(path, limit=plan.heldout.graded_pairs) for path in plan.heldout.graded]
        if not self.graded:
            self.graded, self.heldout = scored_heldout(self.heldout, plan.corpora)
        if not self.graded and not self.heldout and rank_and_world()[0] == 0:
            warn(
                f"stage {task.stage.name}: no held-out pair ({text.heldout.share:.2%} of the sentences) and no graded "
                "file: no validation can choose weights, and the last ones are kept"
            )
        for graded in self.graded if rank_and_world()[0] == 0 else ():
            if len(graded) < FEW_GRADED:
                # 95 % of a correlation near 0
                half = min(100.0, 196 / max(1, len(graded) - 3) ** 0.5)
                warn(
                    f"stage {task.stage.name}: {graded.name} has {len(graded)} graded pairs: their correlation has an "
                    f"interval of +- {half:.0f} points, and choices by it are mostly chance"
                )
        least = min(plan.heldout.min_pairs_per_language, plan.heldout.pairs)
        few = {code: len(rows) for code, rows in self.heldout.items() if len(rows) < least}
        if few and not (self.graded and task.stage.choose == "graded") and rank_and_world()[0] == 0:
            # 95 % of a share near one half
            count = min(few.values())
            pairs = ", ".join(f"{code} {number}" for code, number in sorted(few.items()))
            warn(
                f"stage {task.stage.name}: few held-out pairs ({pairs}): an accuracy over {count} has an interval of "
                f"+- {98 / count**0.5:.0f} points, and choices by it are mostly chance; raise heldout.share"
            )

    def _sides(self) -> list[tuple[str, list[str], list[str]]]:
        """Language, sources and targets of the held-out rows; a text without a translation is its own target."""
        return [
            (code, [row.source for row in rows], [row.target or row.source for row in rows])
            for code, rows in sorted(self.heldout.items())
        ]

    def _encode(self, encoder: Encoder, texts: list[str], side: int) -> np.ndarray:
        """Vectors of texts with the stage's prompt of a side; graded pairs have that of sources on both."""
        prompts = self.task.stage.prompts
        return encoder.encode(texts) if prompts is None else encoder.encode(texts, prompt=prompts[side])

    def __call__(self, encoder: Encoder) -> dict[str, float]:
        """Numbers by name; weights are chosen by `choice`, larger is better."""
        teacher, project, stage = self.task.teacher, self.task.project, self.task.stage
        numbers: dict[str, float] = {}
        errors, accuracies, correlations = [], [], []
        expected, compared = [], []
        for code, sources, targets in self._sides():
            source_ND = self._encode(encoder, sources, 0)
            target_ND = source_ND if targets == sources else self._encode(encoder, targets, 1)
            compared_ND = target_ND
            if project is not None:
                with torch.no_grad():
                    projected_ND = project(torch.from_numpy(target_ND).to(project.weight.device))
                    compared_ND = projected_ND.float().cpu().numpy()
            if teacher is not None and teacher.width == compared_ND.shape[1]:
                # What the stage trains: a teacher that reads the targets has vectors of their own.
                side = int(self.both_sides and targets != sources)
                prompt = (stage.teacher_prompts or NO_PROMPTS)[side]
                expected.append(teacher.vectors(with_prompt(prompt, targets if side else sources)))
                compared.append(compared_ND)
                errors.append(mse(expected[-1], compared_ND))
                numbers[f"mse_{code}"] = errors[-1]
            accuracies.append(float(np.mean(nearest_accuracy(source_ND, target_ND, sources, targets))))
            numbers[f"accuracy_{code}"] = accuracies[-1]
        for graded in self.graded:
            first_ND, second_ND = (self._encode(encoder, side, 0) for side in (graded.first, graded.second))
            for width in (None, *stage.dimensions):
                cosines = cosine_rows(first_ND[:, :width], second_ND[:, :width])
                # A collapsed student ranks nothing: its score is 0, and the run continues.
                score = 0.0 if np.ptp(cosines) == 0 else spearman(cosines, graded.gold_N)
                numbers[f"spearman_{graded.name}" + (f"_{width}" if width else "")] = score
            correlations.append(numbers[f"spearman_{graded.name}"])
        means = {"heldout_mse": errors, "heldout_accuracy": accuracies, "graded": correlations}
        scores = {name: float(np.mean(values)) for name, values in means.items() if values}
        if sum(map(len, expected)) > 1:  # one vector has no variance
            scores["explained_variance"] = explained_variance(np.concatenate(expected), np.concatenate(compared))
        width = encoder.width if teacher is None else teacher.width
        choice = chosen_by(stage.choose, width, *(scores.get(name) for name in means))
        graded_mean = {"graded": scores.pop("graded")} if correlations else {}
        return {**numbers, **scores, "choice": choice, **graded_mean}

    def teacher_scores(self) -> dict[str, float]:
        """`teacher_heldout_accuracy` and `teacher_graded`: what the teacher reaches on the same pairs.

        Of a teacher that reads both sides; empty for others, and without what a table of vectors does not have.
        """
        teacher, prompts = self.task.teacher, self.task.stage.teacher_prompts or NO_PROMPTS
        sides = self._sides()
        if teacher is None or not (self.both_sides or all(sources == targets for _, sources, targets in sides)):
            return {}

        def encode(texts: list[str], side: int) -> np.ndarray:
            return teacher.vectors(with_prompt(prompts[side], texts))

        scores, accuracies, correlations = {}, [], []
        try:
            for _, sources, targets in sides:
                if sources == targets:  # texts alone, which all find themselves
                    continue
                nearest = nearest_accuracy(encode(sources, 0), encode(targets, 1), sources, targets)
                accuracies.append(float(np.mean(nearest)))
            if accuracies:
                scores["teacher_heldout_accuracy"] = float(np.mean(accuracies))
            for graded in self.graded:
                cosines = cosine_rows(encode(graded.first, 0), encode(graded.second, 0))
                correlations.append(spearman(cosines, graded.gold_N))
            if correlations:
                scores["teacher_graded"] = float(np.mean(correlations))
        except MsdcError:
            pass  # a table without these texts, or equal cosines, which have no correlation
        return scores


def chosen_by(choose: str, width: int, error: float | None, accuracy: float | None, graded: float | None) -> float:
    """The number to choose weights by: from graded and held-out pairs together, or from those that the stage names.

    `error` is the mean squared error per dimension of vectors of `width`; None: not measured.
    """
    if choose == "retrieval" and accuracy is not None:
        return accuracy
    if choose == "heldout" and (error is not None or accuracy is not None):
        graded = None
    if error is not None and (choose != "graded" or graded is None):
        distance = 100.0 * float(np.sqrt(error * width))
        return -distance if graded is None else graded - distance / 4.0
    return graded if graded is not None else accuracy or 0.0
