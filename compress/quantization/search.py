"""What each weight's precision costs, measured on text: the search behind `--precision auto`.

Loss is label-free: 100 minus the Spearman correlation (x 100) between the float student's similarities of all pairs of
calibration texts and the quantized student's. It bounds what an STS score can lose in rank and needs no gold.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from msdc.compress.quantization.plan import Dtype, PrecisionPlan, weight_bytes_by_dtype
from msdc.compress.quantization.weights import integers, quantize, sqnr_db
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import CODE, POSITION, TABLE, matrix_names, tensor_shapes
from msdc.compress.vocabulary.trim import with_rows
from msdc.errors import InputError
from msdc.scores import cosine_rows, spearman
from msdc.text.tokenizer import pack_by_length, pad

BATCH_TOKENS = 2048
MIN_TEXTS = 8
ORDER: tuple[Dtype, ...] = ("int4", "int8", "fp32")


@dataclass(frozen=True)
class Cost:
    """Loss in Spearman points, and cosines of quantized to float sentence vectors."""

    loss: float
    mean_cosine: float
    min_cosine: float


class Calibration:
    """A student and its float vectors on some texts; measures plans.

    Only the table rows that the texts use are carried: scales belong to single rows, so the numbers are the same, and
    a quarter of a million rows need not be rounded again for every plan. A coded table is carried whole: it is small,
    and the scales of its weights belong to all pieces.
    """

    def __init__(self, student: Student, rows: Sequence[Sequence[int]]) -> None:
        if len(rows) < MIN_TEXTS:
            raise InputError(
                f"a calibration text of {len(rows)} lines; at least {MIN_TEXTS} are needed to compare pairs"
            )
        if student.config.coded:
            self.student, self.rows = student, [list(row) for row in rows]
        else:
            used = sorted({index for row in rows for index in row})
            new_id = {index: position for position, index in enumerate(used)}
            self.student = with_rows(student, used, 0)
            self.rows = [[new_id[index] for index in row] for row in rows]
        self.float_ND = self._encode(self.student)
        self._pairs = np.triu_indices(len(rows), 1)
        self._float_similarity = self._similarity(self.float_ND)
        if np.ptp(self._float_similarity) == 0:
            raise InputError("the calibration texts are all equal; use varied sentences")
        self._known: dict[tuple[tuple[str, str], ...], Cost] = {}

    @torch.inference_mode()
    def _encode(self, student: Student) -> np.ndarray:
        vectors_ND = np.zeros((len(self.rows), student.width), dtype=np.float32)
        for batch in pack_by_length([len(row) for row in self.rows], BATCH_TOKENS):
            ids_BT, mask_BT = pad([self.rows[i] for i in batch], 0)
            vectors_ND[batch] = student(ids_BT, mask_BT).numpy()
        return vectors_ND

    def _similarity(self, vectors_ND: np.ndarray) -> np.ndarray:
        unit_ND = vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True).clip(1e-12)
        return (unit_ND @ unit_ND.T)[self._pairs]

    def cost(self, weights: dict[str, Dtype], group: int) -> Cost:
        """Cost of a student whose named weights have these dtypes; what is not named stays float."""
        key = tuple(sorted((name, dtype) for name, dtype in weights.items() if dtype != "fp32"))
        if key not in self._known:
            plan = PrecisionPlan(precision="trial", weights=weights, group=group)
            found_ND = self._encode(quantize(self.student, plan))
            cosine_N = cosine_rows(found_ND, self.float_ND)
            loss = 100.0 - spearman(self._similarity(found_ND), self._float_similarity)
            self._known[key] = Cost(max(0.0, loss), float(cosine_N.mean()), float(cosine_N.min()))
        return self._known[key]


def levels(config: StudentConfig, name: str, int4_linears: bool, group: int) -> list[Dtype]:
    """Dtypes that a weight may take, lowest first."""
    fits = tensor_shapes(config)[name][1] % group == 0
    four_bits = fits and (name == TABLE or (int4_linears and name not in (POSITION, CODE)))
    return [dtype for dtype in ORDER if dtype != "int4" or four_bits]


def _bytes_of(config: StudentConfig, weights: dict[str, Dtype], group: int) -> int:
    plan = PrecisionPlan(precision="trial", weights=weights, group=group)
    return sum(weight_bytes_by_dtype(config, plan).values())


def search(
    calibration: Calibration,
    config: StudentConfig,
    *,
    max_loss: float,
    int4_linears: bool = False,
    group: int = 32,
    tell: Callable[[str], None] = lambda message: None,
) -> PrecisionPlan:
    """The smallest plan found whose loss is at most `max_loss` points.

    Everything starts at its lowest dtype. While the loss is too high, the weight that does the most harm for the bytes
    it would take goes one step up; then every raised weight is tried one step lower again, the most expensive first.

    Raises:
        InputError: a negative `max_loss`.
    """
    if max_loss < 0:
        raise InputError(f"--max-loss {max_loss}: must not be negative")
    allowed = {name: levels(config, name, int4_linears, group) for name in [*matrix_names(config), POSITION]}
    weights: dict[str, Dtype] = {name: dtypes[0] for name, dtypes in allowed.items()}
    harm: dict[tuple[str, Dtype], float] = {}

    def alone(name: str, dtype: Dtype) -> float:
        if (name, dtype) not in harm:
            harm[name, dtype] = 0.0 if dtype == "fp32" else calibration.cost({name: dtype}, group).loss
        return harm[name, dtype]

    def step(name: str, up: int) -> Dtype | None:
        place = allowed[name].index(weights[name]) + up
        return allowed[name][place] if 0 <= place < len(allowed[name]) else None

    def worth(name: str) -> float:
        higher = step(name, 1)
        if higher is None:
            return -1.0
        gain = alone(name, weights[name]) - alone(name, higher)
        return max(gain, 1e-9) / (
            _bytes_of(config, {**weights, name: higher}, group) - _bytes_of(config, weights, group)
        )

    raised: list[str] = []
    while (loss := calibration.cost(weights, group).loss) > max_loss:
        name = max(weights, key=worth)
        higher = step(name, 1)
        assert higher is not None  # with every weight at fp32 the loss is 0
        tell(f"loss {loss:.2f}: {name} {weights[name]} > {higher}")
        weights[name] = higher
        raised.append(name)
    for name in sorted(set(raised), key=lambda name: -_bytes_of(config, {name: weights[name]}, group)):
        lower = step(name, -1)
        if lower is not None and calibration.cost({**weights, name: lower}, group).loss <= max_loss:
            tell(f"{name} can stay {lower}")
            weights[name] = lower
    return PrecisionPlan(precision="auto", weights=weights, group=group)


@dataclass(frozen=True)
class WeightReport:
    """One weight under a plan: bytes with scales, SQNR in dB (None: exact), and the cost of it alone."""

    name: str
    dtype: Dtype
    bytes: int
    sqnr_db: float | None
    mean_cosine: float
    loss: float


def weight_reports(student: Student, plan: PrecisionPlan, calibration: Calibration) -> list[WeightReport]:
    """One line for each weight that the plan speaks of, in graph order."""
    made = integers(student, plan)
    shapes = tensor_shapes(student.config)
    lines = []
    for name, dtype in plan.weights.items():
        part = made.get(name)
        if part is None:
            rows, columns = shapes[name]
            lines.append(WeightReport(name, dtype, 4 * rows * columns, None, 1.0, 0.0))
            continue
        ratio = sqnr_db(student.get_parameter(name).detach(), part.dequantize())
        cost = calibration.cost({name: dtype}, plan.group)
        exact = None if ratio == float("inf") else ratio
        lines.append(WeightReport(name, dtype, part.bytes, exact, cost.mean_cosine, cost.loss))
    return lines
