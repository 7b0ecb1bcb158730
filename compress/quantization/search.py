"""Quantize a model folder: what each weight's precision costs, measured on text, and the search of a plan.

Loss is label-free: 100 minus the Spearman correlation (x 100) between the float student's similarities of all pairs of
calibration texts and the quantized student's. It bounds what an STS score can lose in rank and needs no gold.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from msdc.arguments import checked
from msdc.compress.gate import require_written
from msdc.compress.loading import load_torch_encoder, open_source
from msdc.compress.quantization import rounding
from msdc.compress.student import plan as plans
from msdc.compress.student.config import CODE, POSITION, TABLE, StudentConfig, matrix_names, tensor_shapes
from msdc.compress.student.io import ModelReport, save_student
from msdc.compress.student.model import Student
from msdc.compress.student.plan import Dtype, PrecisionPlan
from msdc.compress.student.weights import integers
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.compress.vocabulary.trim import with_rows
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError
from msdc.progress import say
from msdc.scores import cosine_rows, spearman
from msdc.text.tokenizer import pack_by_length, pad

BATCH_TOKENS = 2048
CALIBRATION_TEXTS = 128
MIN_TEXTS = 8
ORDER: tuple[Dtype, ...] = ("int4", "int8", "fp32")


class Cost(NamedTuple):
    """Loss in Spearman points, and cosines of quantized to float sentence vectors, of the prompt that loses most."""

    loss: float
    mean_cosine: float
    min_cosine: float


class Calibration:
    """A student and its float vectors on some texts, after each prompt; measures plans.

    `rows` are token ids by prompt, as messages name it. The loss of a plan is the highest of its prompts.

    Only the table rows that the texts use are carried: scales belong to single rows, so the numbers are the same, and
    a quarter of a million rows need not be rounded again for every plan. A coded table is carried whole: it is small,
    and the scales of its weights belong to all tokens.
    """

    def __init__(self, student: Student, rows: Mapping[str, Sequence[Sequence[int]]]) -> None:
        if (fewest := min(map(len, rows.values()))) < MIN_TEXTS:
            raise InputError(f"a calibration text of {fewest} lines; at least {MIN_TEXTS} are needed to compare pairs")
        self.student, self.rows = student, [list(row) for group in rows.values() for row in group]
        ends = np.cumsum([0, *map(len, rows.values())])
        self._groups = [slice(first, last) for first, last in itertools.pairwise(ends.tolist())]
        if not student.config.coded:
            used, flat = np.unique(np.concatenate(self.rows), return_inverse=True)
            self.student = with_rows(student, used.tolist(), 0)
            self.rows = [part.tolist() for part in np.split(flat, np.cumsum([len(row) for row in self.rows])[:-1])]
        self.float_ND = self._encode(self.student)
        self._float_similarities = [self._similarity(self.float_ND[group]) for group in self._groups]
        for label, similarity in zip(rows, self._float_similarities, strict=True):
            if np.ptp(similarity) == 0:
                raise InputError(f"the calibration texts are all equal{label}; use varied sentences")
        self._costs: dict[tuple[tuple[str, str], ...], Cost] = {}

    @torch.inference_mode()
    def _encode(self, student: Student) -> np.ndarray:
        vectors_ND = np.zeros((len(self.rows), student.width), dtype=np.float32)
        for batch in pack_by_length([len(row) for row in self.rows], BATCH_TOKENS):
            ids_BT, mask_BT = pad([self.rows[i] for i in batch], 0)
            vectors_ND[batch] = student(ids_BT, mask_BT).numpy()
        return vectors_ND

    def _similarity(self, vectors_ND: np.ndarray) -> np.ndarray:
        unit_ND = vectors_ND / np.linalg.norm(vectors_ND, axis=1, keepdims=True).clip(1e-12)
        return (unit_ND @ unit_ND.T)[np.triu_indices(len(vectors_ND), 1)]

    def cost(self, weights: dict[str, Dtype], group: int = plans.GROUP) -> Cost:
        """Cost of a student whose named weights have these dtypes; what is not named stays float."""
        key = tuple(sorted((name, dtype) for name, dtype in weights.items() if dtype != "fp32"))
        if key not in self._costs:
            plan = PrecisionPlan(precision="trial", weights=weights, group=group)
            found_ND = self._encode(rounding.quantize_student(self.student, plan))
            cosine_N = cosine_rows(found_ND, self.float_ND)
            parts = [
                Cost(
                    100.0 - spearman(self._similarity(found_ND[group]), similarity), float(cosine_N[group].mean()), 0.0
                )
                for group, similarity in zip(self._groups, self._float_similarities, strict=True)
            ]
            loss, mean = max(part.loss for part in parts), min(part.mean_cosine for part in parts)
            self._costs[key] = Cost(max(0.0, loss), mean, float(cosine_N.min()))
        return self._costs[key]


def levels(config: StudentConfig, name: str, int4_linears: bool) -> list[Dtype]:
    """Dtypes that a weight may take, lowest first."""
    fits = tensor_shapes(config)[name][1] % plans.GROUP == 0
    four_bits = fits and (name == TABLE or (int4_linears and name not in (POSITION, CODE)))
    return [dtype for dtype in ORDER if dtype != "int4" or four_bits]


def search(
    calibration: Calibration,
    config: StudentConfig,
    *,
    max_loss: float,
    int4_linears: bool = False,
) -> PrecisionPlan:
    """The smallest plan found whose loss is at most `max_loss` points.

    Everything starts at its lowest dtype. While the loss is too high, the weight that does the most harm for the bytes
    it would take goes one step up; then every raised weight is tried one step lower again, the most expensive first.
    """
    if max_loss < 0:
        raise InputError(f"`max_loss` {max_loss}: must not be negative")
    allowed = {
        name: levels(config, name, int4_linears) for name in matrix_names(config) + [POSITION] * (not config.static)
    }
    weights: dict[str, Dtype] = {name: dtypes[0] for name, dtypes in allowed.items()}

    def bytes_of(dtypes: dict[str, Dtype]) -> int:
        plan = PrecisionPlan(precision="trial", weights=dtypes)
        return sum(plans.weight_bytes_by_dtype(config, plan).values())

    def step(name: str, up: int) -> Dtype | None:
        position = allowed[name].index(weights[name]) + up
        return allowed[name][position] if 0 <= position < len(allowed[name]) else None

    def worth(name: str) -> float:
        if (wider := step(name, 1)) is None:
            return -1.0
        gain = calibration.cost({name: weights[name]}).loss - calibration.cost({name: wider}).loss
        return max(gain, 1e-9) / (bytes_of({**weights, name: wider}) - bytes_of(weights))

    raised: set[str] = set()
    while (loss := calibration.cost(weights).loss) > max_loss:
        name = max(weights, key=worth)
        wider = step(name, 1)
        assert wider is not None  # with every weight at fp32 the loss is 0
        say(f"loss {loss:.2f}: {name} {weights[name]} > {wider}")
        weights[name] = wider
        raised.add(name)
    for name in sorted(raised, key=lambda name: (-bytes_of({name: weights[name]}), name)):
        lower = step(name, -1)
        if lower is not None and calibration.cost({**weights, name: lower}).loss <= max_loss:
            say(f"{name} can stay {lower}")
            weights[name] = lower
    return PrecisionPlan(precision="auto", weights=weights)


def sqnr_db(reference: NDArray[Any], approximation: NDArray[Any]) -> float | None:
    """Signal-to-quantization-noise ratio in dB, 10 log10(sum reference^2 / sum error^2); None where they are equal."""
    noise = float(np.square(reference.astype(np.float64) - approximation).sum())
    return None if noise == 0 else float(10 * np.log10(np.square(reference, dtype=np.float64).sum() / noise))


def weight_reports(student: Student, plan: PrecisionPlan, calibration: Calibration) -> list[dict[str, Any]]:
    """For each weight that the plan names: bytes with scales, SQNR in dB (None: exact), and the cost of it alone."""
    weights = student.to_numpy()
    quantized = integers(weights, plan)
    lines: list[dict[str, Any]] = []
    for name, dtype in plan.weights.items():
        size, ratio, cost = weights.arrays[name].nbytes, None, Cost(0.0, 1.0, 1.0)
        if name in quantized:
            size, ratio = quantized[name].bytes, sqnr_db(weights.arrays[name], quantized[name].dequantize())
            cost = calibration.cost({name: dtype}, plan.group)
        line = {"name": name, "dtype": dtype, "bytes": size, "sqnr_db": ratio}
        lines.append({**line, "mean_cosine": cost.mean_cosine, "loss": cost.loss})
    return lines


class QuantizeReport(ModelReport):
    """The plan and what it costs: loss in Spearman points on the calibration texts, cosines to the float student.

    `weights` are lines of `weight_reports`.
    """

    precision: str
    calibration: str
    texts: int
    loss: float
    mean_cosine: float
    min_cosine: float
    bytes_before: int
    bytes_after: int
    file_bytes: int
    weights: list[dict[str, Any]]


def _texts_by_prompt(encoder: Encoder, texts: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    """Every prompt of the model with its calibration texts: the default one with all, the others share as many."""
    default, *others = encoder.defaults.prompt_texts()
    count = min(len(texts), max(MIN_TEXTS, CALIBRATION_TEXTS // max(1, len(others))))
    spread = [texts[int(index)] for index in np.linspace(0, len(texts) - 1, count)]
    return [(default, texts), *((prompt, spread) for prompt in others)]


@checked
def quantize(
    model: str | Path = "msdc-mini",
    *,
    output: str | Path,
    precision: str = "int8",
    max_loss: float = 0.3,
    calibration: str | Path | None = None,
    int4_linears: bool = False,
    force: bool = False,
) -> QuantizeReport:
    """Store a model as integers and scales, and report what each weight cost.

        from msdc.compress import quantize

        report = quantize("msdc-mini", output="msdc-mini-int8", precision="int8")
        print(report.bytes_after, report.loss)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        precision: int8, int8-embed4, int4-embed4 (after quantization-aware training), fp32, or auto, which searches.
        max_loss: with auto: Spearman points that similarities may lose on the calibration text, after any prompt.
        calibration: text to measure on; None takes the embedded corpus.
        int4_linears: with auto: try int4 linears too (ExecuTorch only).
        force: replace `output` if it exists.
    """
    if precision not in (*plans.PRECISIONS, "auto"):
        raise InputError(f"precision {precision!r} is unknown; known: {', '.join((*plans.PRECISIONS, 'auto'))}")
    output, encoder, student = open_source(model, output, force)
    # At most this many from all over, without repeats: pairs of equal texts measure nothing.
    texts = list(dict.fromkeys(quickstart_texts() if calibration is None else read_texts(calibration)))
    if len(texts) > CALIBRATION_TEXTS:
        texts = [texts[int(index)] for index in np.linspace(0, len(texts) - 1, CALIBRATION_TEXTS)]
    rows = {
        encoder.defaults.label(prompt, " after "): encoder.tokenizer.encode(
            with_prompt(prompt, prompt_texts), student.config.positions
        )
        for prompt, prompt_texts in _texts_by_prompt(encoder, texts)
    }
    measured = Calibration(student, rows)
    if precision == "auto":
        plan = search(measured, student.config, max_loss=max_loss, int4_linears=int4_linears)
    else:
        plan = plans.plan_for(student, precision)
    total = measured.cost(plan.weights, plan.group)
    report = {
        "calibration": "embedded corpus" if calibration is None else Path(calibration).name,
        "texts": len(texts),
        "loss": round(total.loss, 4),
        "mean_cosine": round(total.mean_cosine, 6),
        "min_cosine": round(total.min_cosine, 6),
        "weights": weight_reports(student, plan, measured),
    }
    sizes = plans.weight_bytes_by_dtype(student, plan)
    parts = ", ".join(f"{dtype} {size:,} bytes" for dtype, size in sizes.items())
    card = (
        f"# {output.name}\n\n{encoder.name} with {plan.precision} weights ({parts}); listed in {plans.PLAN_FILE}.\n\n"
        f"* on {report['texts']} texts of the {report['calibration']}: similarity ranks lose {report['loss']:.2f} "
        f"points, mean cosine {report['mean_cosine']:.5f}, min {report['min_cosine']:.5f}\n"
    )
    options: dict[str, Any] = {"plan": plan, "report": {"report": report}, "defaults": encoder.defaults}
    rounded = rounding.quantize_student(student, plan)
    after = Encoder(rounded, encoder.tokenizer, student.config.positions, output.name, defaults=encoder.defaults)
    options["check"] = lambda stage: require_written(encoder, after, load_torch_encoder(stage), texts[::8])
    save_student(student, encoder.tokenizer, output, card=card, force=force, **options)
    return QuantizeReport(
        model=encoder.name,
        out=str(output),
        precision=plan.precision,
        bytes_before=4 * sum(parameter.numel() for parameter in student.parameters()),
        bytes_after=sum(sizes.values()),
        file_bytes=(output / "model.safetensors").stat().st_size,
        **report,  # type: ignore[arg-type]
    )
