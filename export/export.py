"""`msdc export`: from a model's name to a bundle folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.export.manifest import Manifest
from msdc.export.runtimes import expand
from msdc.export.targets import TargetName
from msdc.progress import say


@dataclass(frozen=True)
class ExportRequest:
    """Options of `msdc export`. `runtime`, `out`, `precision` None: the defaults of the target and the model."""

    model: str
    target: TargetName
    runtime: str | None = None
    precision: str | None = None
    out: Path | None = None
    style: Any = "multi-method"
    max_length: int | None = None
    gates: bool = True
    force: bool = False


def load_precision(text: str) -> Any:
    """The name of a precision, or a plan from a JSON file that `msdc compress quantize` wrote.

    Raises:
        InputError: neither, or not such a plan.
    """
    from pydantic import ValidationError

    from msdc.compress.quantization.weights import PRECISIONS, PrecisionPlan
    from msdc.files import read_json

    if text in PRECISIONS:
        return text
    if not text.endswith(".json"):
        raise InputError(f"precision {text!r} is unknown; known: {', '.join(PRECISIONS)}, or a plan's .json file")
    try:
        value = read_json(text)
        return PrecisionPlan.model_validate(value.get("plan", value) if isinstance(value, dict) else value)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{text}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def export_model(request: ExportRequest) -> tuple[Path, Manifest]:
    """Load the model, write the bundle and report each step; returns the folder and its manifest.

    Raises:
        InputError: no such model, or one that cannot be exported; `out` exists without force.
        GateError: a gate failed; nothing is left on disk.
    """
    out = request.out or Path(f"{Path(request.model).name}-{request.target}")
    precision = None if request.precision is None else load_precision(request.precision)
    if out.exists() and not request.force:
        # Fail before minutes of work.
        raise InputError(f"{out} exists already: choose another folder with -o or pass --force")

    from msdc.compress.quantization.packing import read_plan
    from msdc.compress.student.from_transformers import to_student
    from msdc.encoders.encoder import load_encoder
    from msdc.export.model_card import read_card
    from msdc.export.writer import BundleOptions, write_bundle

    say(f"load {request.model}")
    encoder = load_encoder(request.model)
    if precision is None:
        # A folder written by `msdc compress quantize` holds its own precision plan.
        precision = (encoder.folder and read_plan(encoder.folder)) or "int8"
    card = read_card(encoder.folder)
    student = to_student(encoder)
    options = BundleOptions(
        target=request.target,
        runtimes=expand(request.runtime) if request.runtime else None,
        precision=precision,
        style=request.style,
        max_length=request.max_length or min(encoder.max_length, student.config.positions),
        gates=request.gates,
        languages=card.languages,
        licenses=card.licenses,
        data_sources=card.data_sources,
        source_sha256=encoder.fingerprint() if encoder.folder is not None else None,
    )
    name = encoder.name
    return out, write_bundle(student, encoder.tokenizer, out, name=name, options=options, force=request.force, say=say)
