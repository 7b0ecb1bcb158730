"""`msdc export`: from a model's name to a bundle folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc.errors import InputError
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RUNTIMES, expand
from msdc.export.targets import TARGETS, TargetName
from msdc.progress import say

if TYPE_CHECKING:
    from msdc.encoders.encoder import Encoder
    from msdc.export.ways import Prepared
    from msdc.export.writer import BundleOptions


@dataclass(frozen=True)
class ExportRequest:
    """Options of `msdc export`. `runtime`, `out`, `precision`, `way` None: the defaults of the target and the model."""

    model: str
    target: TargetName
    runtime: str | None = None
    precision: str | None = None
    out: Path | None = None
    style: Any = "multi-method"
    max_length: int | None = None
    gates: bool = True
    module: bool = True
    force: bool = False
    way: str | None = None
    sample: bool = False
    with_runtime: bool = False


def load_precision(text: str) -> Any:
    """The name of a precision, or a plan from a JSON file that `msdc compress quantize` wrote.

    Raises:
        InputError: neither, or not such a plan.
    """
    from pydantic import ValidationError

    from msdc.compress.quantization.plan import PRECISIONS, PrecisionPlan
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
    if request.sample:
        from msdc.export.mobile.module import check_sample

        check_sample(request.target)
    if request.with_runtime:
        from msdc.export.mobile.module import check_runtime

        check_runtime(request.target, request.module)
    out = request.out or Path(f"{Path(request.model).name}-{request.target}")
    precision = None if request.precision is None else load_precision(request.precision)
    if out.exists() and not request.force:
        # Fail before minutes of work.
        raise InputError(f"{out} exists already: choose another folder with -o or pass --force")

    for name in expand(request.runtime) if request.runtime else TARGETS[request.target].runtimes:
        RUNTIMES[name].require()

    from msdc.encoders.encoder import load_encoder
    from msdc.export.ways import CANONICAL, GENERIC, canonical_obstacle
    from msdc.export.writer import write_prepared

    say(f"load {request.model}")
    encoder = load_encoder(request.model)
    obstacle = canonical_obstacle(encoder)
    way = request.way or (CANONICAL if obstacle is None else GENERIC)
    if way == CANONICAL and obstacle is not None and request.way:
        raise InputError(f"{request.model}: the canonical way does not take it ({obstacle}); use --way {GENERIC}")
    why = "chosen" if request.way else "a known family" if obstacle is None else obstacle
    say(f"{way} way ({why})")
    prepare = _prepare_generic if way == GENERIC else _prepare_student
    prepared, options = prepare(request, encoder, precision)
    manifest = write_prepared(
        prepared,
        encoder.tokenizer,
        out,
        name=encoder.name,
        options=options,
        force=request.force,
        say=say,
        reference=_own_vectors(encoder, prepared.max_length),
    )
    return out, manifest


def _options(request: ExportRequest, encoder: Encoder, precision: Any, max_length: int) -> BundleOptions:
    from msdc.export.mobile.web.transformers_js import stock_folder
    from msdc.export.model_card import read_card
    from msdc.export.writer import BundleOptions

    card, defaults = read_card(encoder.folder), encoder.defaults
    return BundleOptions(
        target=request.target,
        runtimes=expand(request.runtime) if request.runtime else None,
        precision=precision,
        style=request.style,
        max_length=request.max_length or max_length,
        gates=request.gates,
        sample=request.sample,
        module=request.module,
        with_runtime=request.with_runtime,
        stock=stock_folder(encoder.folder),
        prompts=dict(defaults.prompts),
        default_prompt=defaults.default_prompt,
        include_prompt=defaults.include_prompt,
        truncate_dim=None if defaults.truncate_dim is None else encoder.width,
        languages=card.languages,
        licenses=card.licenses,
        data_sources=card.data_sources,
        source_sha256=encoder.fingerprint() if encoder.folder is not None else None,
    )


def _own_vectors(encoder: Encoder, max_length: int) -> Any:
    from msdc.export.onnx.float_program import ProgramEncoder

    if isinstance(encoder, ProgramEncoder):
        return None
    from msdc.encoders.encoder import own_vectors

    return lambda texts, prompt: own_vectors(encoder, texts, max_length, prompt)


def _prepare_student(request: ExportRequest, encoder: Encoder, precision: Any) -> tuple[Prepared, BundleOptions]:
    from msdc.compress.quantization.plan import read_plan
    from msdc.export.ways import float_model, prepare_student

    if precision is None:
        # A folder written by `msdc compress quantize` holds its own precision plan.
        precision = (encoder.folder and read_plan(encoder.folder)) or "int8"
    model = float_model(encoder)
    options = _options(request, encoder, precision, min(encoder.max_length, model.weights.config.positions))
    prepared = prepare_student(model, encoder.tokenizer, options)
    return prepared, options


def _prepare_generic(request: ExportRequest, encoder: Encoder, precision: Any) -> tuple[Prepared, BundleOptions]:
    from msdc.encoders.stock import folder_modules
    from msdc.export.ways import GENERIC_LONGEST, prepare_generic

    longest = min(encoder.max_length, GENERIC_LONGEST)
    options = _options(request, encoder, precision or "int8", longest)
    prepared = prepare_generic(
        folder_modules(encoder.module, encoder.name),
        encoder.tokenizer,
        options,
        name=encoder.name,
        max_length=longest,
        source_sha256=encoder.fingerprint(),
    )
    return prepared, options
