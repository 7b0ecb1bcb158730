"""Export options (`ExportOptions`), and the model facts that a bundle repeats (`ModelFacts`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msdc.compress.student.plan import PrecisionPlan
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import InputError
from msdc.export.golden import Thresholds
from msdc.export.readme import CardFacts
from msdc.export.schema import TARGETS, ProgramStyle
from msdc.text.tokenizer import FastTokenizer, Tokenizer

CANONICAL, GENERIC = "canonical", "generic"


@dataclass(frozen=True)
class ExportOptions:
    """How to export; `msdc.export.export` describes the arguments of the same names.

    Attributes:
        runtimes: None: the target's own.
        precision: None: the plan of a quantized folder, else int8.
        thresholds: of the gates; None: those of the precision.
    """

    target: str = "linux"
    runtimes: tuple[str, ...] | None = None
    precision: str | PrecisionPlan | None = None
    style: ProgramStyle = "multi-method"
    max_length: int | None = None
    exporter: str | None = None
    gates: bool = True
    module: bool = True
    sample: bool = False
    with_runtime: bool = False
    transformers_js: bool = False
    thresholds: Thresholds | None = None

    def wanted_runtimes(self) -> tuple[str, ...]:
        """The runtimes to write programs for."""
        return self.runtimes or TARGETS[self.target].runtimes

    def check(self) -> None:
        """Raise an `InputError` where the target has no sample app, or no use for what a web page needs."""
        record = TARGETS[self.target].module
        if self.sample and (record is None or record.sample is None):
            known = ", ".join(one.name for one in TARGETS if one.module and one.module.sample)
            raise InputError(f"target {self.target} has no sample app; targets that have one: {known}")
        name = "with_runtime" if self.with_runtime else "transformers_js" if self.transformers_js else None
        if name and (record is None or record.core is not None or not self.module):
            reason = f"target {self.target} runs no web page" if self.module else "no module is written"
            raise InputError(f"`{name}` is for web pages: {reason}")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Raise an `InputError` where transformers.js cannot read a model's tokenizer."""
        if self.transformers_js and not isinstance(tokenizer, FastTokenizer):
            raise InputError(
                "`transformers_js`: the model's tokenizer is a SentencePiece model, which transformers.js does not read"
            )


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
