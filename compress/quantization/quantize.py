"""`msdc compress quantize`: a student folder of integers and scales, and a report of what each weight cost."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.compress.quantization.plan import PLAN_FILE, PRECISIONS, PrecisionPlan, plan_for, weight_bytes_by_dtype
from msdc.compress.quantization.search import Calibration, search, weight_reports
from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.io import save_student, tokenizer_file
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.encoders.encoder import load_encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError
from msdc.files import refuse_existing
from msdc.progress import say

CALIBRATION_TEXTS = 128


class QuantizeRequest(BaseModel):
    """What to quantize, how far, and on which text to measure it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    out: Path
    precision: str = "int8"
    max_loss: float = 0.3
    calibration: Path | None = None
    int4_linears: bool = False
    force: bool = False


class QuantizeReport(BaseModel):
    """The plan and what it costs: loss in Spearman points on the calibration texts, cosines to the float student."""

    model_config = ConfigDict(frozen=True)

    model: str
    out: str
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


def _spread(texts: list[str], limit: int) -> list[str]:
    """At most `limit` texts from all over a list, without repeats: equal texts teach nothing about pairs."""
    distinct = list(dict.fromkeys(texts))
    if len(distinct) <= limit:
        return distinct
    return [distinct[int(index)] for index in np.linspace(0, len(distinct) - 1, limit)]


def run_quantize(request: QuantizeRequest) -> QuantizeReport:
    """Choose or take a plan, measure it, and write the folder.

    Raises:
        InputError: no such model, an unknown precision, or a calibration text that cannot be used.
    """
    if request.precision not in (*PRECISIONS, "auto"):
        raise InputError(f"precision {request.precision!r} is unknown; known: {', '.join((*PRECISIONS, 'auto'))}")
    refuse_existing(request.out, request.force)
    encoder = load_encoder(request.model)
    student = to_student(encoder).eval()
    if request.calibration is None:
        texts, source = _spread(quickstart_texts(), CALIBRATION_TEXTS), "embedded corpus"
    else:
        texts, source = _spread(read_texts(request.calibration), CALIBRATION_TEXTS), request.calibration.name
    prompted = with_prompt(encoder.defaults.prompt(), texts)
    calibration = Calibration(student, encoder.tokenizer.encode(prompted, student.config.positions))
    if request.precision == "auto":
        plan = search(
            calibration, student.config, max_loss=request.max_loss, int4_linears=request.int4_linears, tell=say
        )
    else:
        plan = plan_for(student, request.precision)
    total = calibration.cost(plan.weights, plan.group)
    lines = [asdict(line) for line in weight_reports(student, plan, calibration)]
    report = {
        "calibration": source,
        "texts": len(texts),
        "loss": round(total.loss, 4),
        "mean_cosine": round(total.mean_cosine, 6),
        "min_cosine": round(total.min_cosine, 6),
        "weights": lines,
    }
    sizes = weight_bytes_by_dtype(student, plan)
    before = 4 * sum(parameter.numel() for parameter in student.parameters())
    path = tokenizer_file(encoder.tokenizer.files[0].parent)
    card = _card(request, encoder.name, plan, report, sizes)
    kept: dict[str, Any] = {"plan": plan, "report": {"report": report}, "defaults": encoder.defaults}
    save_student(student, path, request.out, card=card, force=request.force, **kept)
    return QuantizeReport(
        model=encoder.name,
        out=str(request.out),
        precision=plan.precision,
        bytes_before=before,
        bytes_after=sum(sizes.values()),
        file_bytes=(request.out / "model.safetensors").stat().st_size,
        **report,  # type: ignore[arg-type]
    )


def _card(
    request: QuantizeRequest, name: str, plan: PrecisionPlan, report: dict[str, Any], sizes: dict[str, int]
) -> str:
    parts = ", ".join(f"{dtype} {size:,} bytes" for dtype, size in sizes.items())
    return (
        f"# {request.out.name}\n\n{name} with {plan.precision} weights ({parts}); {PLAN_FILE} says which.\n\n"
        f"* on {report['texts']} texts of the {report['calibration']}: similarity ranks lose {report['loss']:.2f} "
        f"points, mean cosine {report['mean_cosine']:.5f}, min {report['min_cosine']:.5f}\n"
    )
