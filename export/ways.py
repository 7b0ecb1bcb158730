"""The ways a model goes into programs: canonical (a `Student`, lowered by hand) and generic (`torch.export`).

A way prepares a model into a `Prepared`; export/writer.py makes the bundle from it. To add one, add a function that
returns a `Prepared`, and its name to `WAYS`.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msdc.compress.quantization.plan import PrecisionPlan, check_plan, plan_for
from msdc.compress.student.config import parameter_counts
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.export.manifest import ModelPart
from msdc.export.records import GenericRequest, ProgramRequest, WrittenProgram
from msdc.export.reference.float_model import FloatModel, TorchModel
from msdc.export.reference.gates import Thresholds, thresholds_for
from msdc.export.reference.smooth import Smoothed, calibration_texts, smooth
from msdc.export.runtimes import RUNTIMES
from msdc.text.tokenizer import Tokenizer

# Longest input of the generic way where the model allows more: memory of a program is planned for its longest input.
GENERIC_LONGEST = 512
CANONICAL, GENERIC = "canonical", "generic"
GENERIC_PRECISIONS = ("fp32", "int8")


@dataclass(frozen=True)
class Prepared:
    """A model that one way made ready.

    `vectors` gives the float vectors [N, D] of rows of ids whose first tokens, as many as its second argument says, are
    not pooled: the reference of all gates; `write` writes the program of
    one runtime into a folder.
    """

    way: str
    width: int
    vocabulary: int
    max_length: int
    normalized: bool
    precision: str
    wanted: Thresholds
    part: ModelPart
    vectors: Callable[[Sequence[Sequence[int]], int], np.ndarray]
    write: Callable[[str, Path], WrittenProgram]


def _check_tokenizer(tokenizer: Tokenizer, vocabulary: int) -> None:
    if tokenizer.size > vocabulary:
        raise InputError(f"the tokenizer has {tokenizer.size} ids, the model's table {vocabulary} rows")


def float_model(encoder: Encoder) -> FloatModel:
    """The student of an encoder, as what an export runs.

    Raises:
        InputError: a model that no student can be made from.
    """
    from msdc.export.onnx.float_program import ProgramEncoder

    if isinstance(encoder, ProgramEncoder):
        return encoder.program
    from msdc.compress.student.stock import to_student

    return TorchModel(to_student(encoder))


def prepare_student(model: FloatModel, tokenizer: Tokenizer, options: Any) -> Prepared:
    """The canonical way; `options` are `BundleOptions`.

    Raises:
        InputError: the student, the tokenizer and the options do not fit each other.
    """
    config = model.weights.config
    max_length = options.max_length or config.positions
    if max_length > config.positions:
        raise InputError(f"longest input {max_length}, but the model has {config.positions} positions")
    _check_tokenizer(tokenizer, config.vocabulary)
    plan = options.precision if isinstance(options.precision, PrecisionPlan) else plan_for(config, options.precision)
    check_plan(config, plan)

    @functools.cache
    def smoothed() -> Smoothed:
        return smooth(model, plan, tokenizer, max_length)

    def write(runtime: str, folder: Path) -> WrittenProgram:
        request = ProgramRequest(smoothed(), plan, max_length, options.target, options.style, tokenizer.pad_id)
        return RUNTIMES[runtime].write(request, folder)

    counts = parameter_counts(config)
    return Prepared(
        way=CANONICAL,
        width=config.width,
        vocabulary=config.vocabulary,
        max_length=max_length,
        normalized=config.normalize,
        precision=plan.precision,
        wanted=options.thresholds or thresholds_for(set(plan.weights.values())),
        part=ModelPart(
            parameters=counts["total"],
            embedding_parameters=counts["embedding"],
            encoder_parameters=counts["encoder"],
            config=config.model_dump(),
            source_sha256=options.source_sha256 or model.weights.sha256(),
        ),
        vectors=lambda rows, prompt_tokens: model.vectors(rows),
        write=write,
    )


def prepare_generic(
    modules: Sequence[Any], tokenizer: Tokenizer, options: Any, *, name: str, max_length: int, source_sha256: str
) -> Prepared:
    """The generic way for the modules of a SentenceTransformer; `options` are `BundleOptions`.

    Raises:
        InputError: a module or an option that this way does not have.
    """
    from msdc.export.generic.model import generic_model, reference_vectors
    from msdc.export.generic.smooth import smooth_generic
    from msdc.export.generic.weights import parameter_counts as count

    precision = options.precision
    if precision not in GENERIC_PRECISIONS:
        name_of = precision.precision if isinstance(precision, PrecisionPlan) else precision
        raise InputError(f"precision {name_of!r} needs the canonical way; generic: {', '.join(GENERIC_PRECISIONS)}")
    model = generic_model(modules, name)
    vocabulary = int(model.tokens.weight.shape[0])
    _check_tokenizer(tokenizer, vocabulary)
    longest = options.max_length or max_length
    width = int(reference_vectors(modules, [[min(3, vocabulary - 1)]]).shape[1])
    counts = count(model)

    @functools.cache
    def smoothed() -> Any:
        return smooth_generic(model, tokenizer.encode(calibration_texts(), longest))

    def write(runtime: str, folder: Path) -> WrittenProgram:
        made = smoothed() if precision == "int8" else model
        request = GenericRequest(made, precision, vocabulary, width, longest, options.target, tokenizer.pad_id)
        return RUNTIMES[runtime].write_generic(request, folder)

    return Prepared(
        way=GENERIC,
        width=width,
        vocabulary=vocabulary,
        max_length=longest,
        normalized=model.normalized,
        precision=precision,
        wanted=options.thresholds or thresholds_for({precision}),
        part=ModelPart(
            parameters=counts["total"],
            embedding_parameters=counts["embedding"],
            encoder_parameters=counts["encoder"],
            config={"way": GENERIC, "architecture": model.architecture},
            source_sha256=source_sha256,
        ),
        vectors=lambda rows, prompt_tokens: reference_vectors(modules, rows, prompt_tokens),
        write=write,
    )


# Values of --way.
WAYS = (CANONICAL, GENERIC)


def canonical_obstacle(encoder: Encoder) -> str | None:
    """Why a model cannot go the canonical way, in words; None where it can."""
    from msdc.export.onnx.float_program import ProgramEncoder

    if isinstance(encoder, ProgramEncoder):
        return None
    from msdc.compress.student.model import Student
    from msdc.compress.student.stock import FAMILIES, check_convertible
    from msdc.encoders.stock import SentenceModel

    if isinstance(encoder.module, Student):
        return None
    if not encoder.defaults.include_prompt:
        return "its pooling leaves the prompt's tokens out (include_prompt: false)"
    if not isinstance(encoder.module, SentenceModel):
        return "a static embedding has no layers"
    kind = str(encoder.module.body.config.model_type)
    if kind not in FAMILIES:
        return f"{kind or 'its'} models are not of a family that a student can be made from"
    try:
        check_convertible(encoder.module, encoder.name)
    except InputError as error:
        return str(error)
    return None
