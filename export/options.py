"""Export options (`ExportSettings`), and the model facts that a bundle repeats (`ModelFacts`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError

from msdc.compress.student.plan import PRECISIONS, PrecisionPlan
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import InputError, first_problem
from msdc.export.golden import Thresholds
from msdc.export.readme import CardFacts
from msdc.export.runtimes import RuntimeChoice, default_runtimes_help, expand
from msdc.export.schema import TARGETS, ProgramStyle, RuntimeName
from msdc.files import read_json
from msdc.options import AnyPath, Options
from msdc.text.tokenizer import FastTokenizer, Tokenizer

CANONICAL, GENERIC = "canonical", "generic"


def load_precision(value: str | PrecisionPlan | None) -> str | PrecisionPlan | None:
    """The plan of a JSON file that `msdc compress quantize` wrote; the name of a precision, or a plan, as it is."""
    if not isinstance(value, str) or value in PRECISIONS:
        return value
    if not value.endswith(".json"):
        raise InputError(f"precision {value!r} is unknown; known: {', '.join(PRECISIONS)}, or a plan's .json file")
    try:
        document = read_json(value)
        return PrecisionPlan.model_validate(document.get("plan", document) if isinstance(document, dict) else document)
    except ValidationError as error:
        raise InputError(f"{value}: {first_problem(error)}") from error


class ExportSettings(Options):
    """How to export."""

    target: str = "linux"
    runtime: RuntimeChoice = Field(
        default=None, description=f"of the programs: executorch, onnx or both; None: {default_runtimes_help()}"
    )
    precision: Annotated[str | PrecisionPlan | None, BeforeValidator(load_precision)] = Field(
        default=None,
        description="one of fp32, int8, int8-embed4 (4-bit token table), int4-embed4 (for students trained for it), or "
        "a plan or its .json file; None: the plan of a folder made by `compress quantize`, else int8",
    )
    style: ProgramStyle | None = Field(
        default=None,
        description="of ExecuTorch programs. multi-method: methods embed, unit and pool; forward: one method; masked: "
        "one method of ids and attention mask; None: that of the target, else multi-method",
    )
    max_length: int | None = Field(default=None, ge=2, description="longest input in tokens; None: that of the model")
    exporter: Literal["canonical", "generic"] | None = Field(
        default=None,
        description="which one. canonical: the student's own programs; generic: torch.export of any architecture; "
        "None: canonical for students and BERT, RoBERTa / XLM-R, DistilBERT and ALBERT, else generic",
    )
    gates: bool = Field(
        default=True,
        description="fail where the artifact is too far from the float model; False: the manifest records it",
    )
    module: bool = Field(default=True, description="write the target's module for apps (android, ios, web)")
    with_runtime: bool = Field(
        default=False, description="copy onnxruntime-web into the bundle (web); npm fetches it otherwise"
    )
    transformers_js: bool = Field(
        default=False,
        description="write files with which transformers.js reads the bundle (web), for models with a tokenizer.json",
    )
    core_ml: bool = Field(
        default=False,
        description="also write model.mlpackage (Core ML, float16, ios): its structure is checked, it is not run",
    )
    thresholds: Thresholds | None = None  # of the gates; None: those of the precision

    @property
    def runtimes(self) -> tuple[RuntimeName, ...]:
        """The runtimes to write programs for."""
        return expand(self.runtime) if self.runtime else TARGETS[self.target].runtimes

    @property
    def program_style(self) -> ProgramStyle:
        """The style of ExecuTorch programs to write."""
        return TARGETS[self.target].style or self.style or "multi-method"

    def check(self) -> None:
        """Raise an `InputError` where an option does not suit the target: style, what a web page needs."""
        record = TARGETS[self.target].module
        if self.style not in (None, self.program_style):
            raise InputError(f"`style` {self.style}: target {self.target} takes {self.program_style} programs")
        if self.core_ml and self.target != "ios":
            raise InputError(f"`core_ml` is for target ios, not {self.target}")
        name = "with_runtime" if self.with_runtime else "transformers_js" if self.transformers_js else None
        if name and (record is None or record.template != "web" or not self.module):
            reason = f"target {self.target} runs no web page" if self.module else "no module is written"
            raise InputError(f"`{name}` is for web pages: {reason}")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise an `InputError` where transformers.js cannot read a model's tokenizer."""
        if self.transformers_js and not isinstance(tokenizer, FastTokenizer):
            raise InputError(
                "`transformers_js`: the model's tokenizer is a SentencePiece model, which transformers.js does not read"
            )


class ExportOptions(ExportSettings):
    """The arguments of `msdc.export.export` behind its model."""

    target: str = Field(description=f"one of {', '.join(TARGETS.names())}")
    output: AnyPath | None = Field(
        default=None, description="bundle folder; None: MODEL-TARGET in the working directory"
    )
    force: bool = Field(default=False, description="replace an existing folder")


@dataclass(frozen=True)
class ModelFacts:
    """What a bundle repeats of its model.

    Attributes:
        source_sha256: of the model; None: of the student's weights.
        folder: the model's own.
        encoder: runs the model with another library; its vectors are the reference of all gates.
    """

    name: str
    tokenizer: Tokenizer
    defaults: EncodeDefaults = field(default_factory=EncodeDefaults)
    card: CardFacts = field(default_factory=CardFacts)
    source_sha256: str | None = None
    folder: Path | None = None
    encoder: Encoder | None = None
