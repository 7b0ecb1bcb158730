"""From a prepared model to a bundle folder: tokenizer, golden vectors, programs and gates, manifest, module.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib.metadata import distributions, version
from pathlib import Path
from typing import Any

import numpy as np

from msdc.encoders.encoder import own_vectors, require_room, unrelated_cosines
from msdc.encoders.folder import prompted_texts, with_prompt
from msdc.errors import GateError, InputError, MsdcError
from msdc.export.golden import (
    FP32,
    Thresholds,
    farthest,
    float_scores,
    golden_texts,
    parity_of,
    shortfalls,
    tokenizers_agree,
    write_golden,
)
from msdc.export.manifest import (
    Cosines,
    Manifest,
    ModelPart,
    Parity,
    Programs,
    TokenizerPart,
    list_files,
    read_manifest,
    write_manifest,
)
from msdc.export.mobile.module import package_folder, require_module, write_native_module
from msdc.export.options import GENERIC, ExportSettings, ModelFacts
from msdc.export.readme import bundle_readme
from msdc.export.runtimes import RUNTIMES
from msdc.export.schema import MANIFEST_FILE, ProgramPart, ProgramWriter
from msdc.export.tokenizer.compile import COMPILED_FILE, compile_tokenizer
from msdc.files import staged_folder, write_text
from msdc.progress import say
from msdc.text.tokenizer import (
    BUNDLED_FILE,
    JSON_FILE,
    FastTokenizer,
    PieceTokenizer,
    Tokenizer,
    load_tokenizer,
    prompt_tokens,
)

# Versions recorded in the manifest besides those of the runtimes' own packages.
BEFORE, AFTER = ("msdc", "torch"), ("sentencepiece", "tokenizers")


@dataclass(frozen=True, kw_only=True)
class ExportPlan(ProgramWriter, ABC):
    """A model that an exporter prepared: what a bundle states about it, its float vectors, and its programs.

    Attributes:
        precision: the name of its precision plan.
        counts: parameters in all, of the embedding and of the encoder.
        config: what the manifest states about the architecture.
        source_sha256: identity of the weights.
    """

    facts: ModelFacts
    width: int
    vocabulary: int
    max_length: int
    normalized: bool
    precision: str
    thresholds: Thresholds
    counts: dict[str, int]
    config: dict[str, Any]
    source_sha256: str

    @abstractmethod
    def vectors(self, rows: Sequence[Sequence[int]], prompt_tokens: int) -> np.ndarray:
        """The float vectors [N, D] of rows of ids; the first `prompt_tokens` of each row are not pooled."""


@dataclass(frozen=True)
class Golden:
    """Golden texts after one prompt, their ids, and the float vectors [N, D] that programs are compared with.

    The first `skip` tokens of each row are not pooled.
    """

    prompt: str
    texts: list[str]
    rows: list[list[int]]
    skip: int
    float_ND: np.ndarray


@dataclass
class ProgramResults:
    """The programs of a bundle by runtime, and the errors of those that failed."""

    programs: dict[str, ProgramPart] = field(default_factory=dict)
    parity: dict[str, Parity] = field(default_factory=dict)
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    failed: dict[str, MsdcError] = field(default_factory=dict)

    def failure(self, precision: str) -> str:
        """The failed runtimes, in words."""
        return "; ".join(f"{runtime} {precision}: {error}" for runtime, error in self.failed.items())


CORE_ML_PACKAGE = "model.mlpackage"


def write(plan: ExportPlan, out: Path, options: ExportSettings, force: bool) -> Manifest:
    """Write the bundle folder `out`, complete, with all gates passed, or not at all.

    Where one of several runtimes fails, the bundle is written with the others, and the error is raised afterwards.
    """
    facts = plan.facts
    if facts.tokenizer.size > plan.vocabulary:
        raise InputError(f"the tokenizer has {facts.tokenizer.size} ids, the model's table {plan.vocabulary} rows")
    require_room(facts.name, facts.tokenizer, facts.defaults, plan.max_length)
    apart = package_folder(out, options.target) if options.module else None
    own_folder = nullcontext(None) if apart is None else staged_folder(apart, force, ("Package.swift",))
    with staged_folder(out, force, (MANIFEST_FILE,)) as stage, own_folder as package:
        if options.core_ml:
            plan.write_core_ml(stage / CORE_ML_PACKAGE)
        prompted = prompted_texts(facts.defaults, golden_texts())
        texts = [text for prompt, plain in prompted for text in with_prompt(prompt, plain)]
        part = _write_tokenizer(facts.tokenizer, plan.max_length, stage, texts)
        if options.module:
            require_module(options.target, part, options.runtimes)
        goldens = [_golden(plan, prompt, plain, stage, part.file, options) for prompt, plain in prompted]
        written = _write_programs(plan, goldens, stage, options)
        failure = written.failure(plan.precision)
        if not written.parity:
            raise type(next(iter(written.failed.values())))(failure)
        if options.module and written.failed:
            try:
                require_module(options.target, part, list(written.parity))
            except InputError as error:
                raise GateError(f"{failure}; {error}") from error
        # Devices encode with the default prompt alone.
        golden = goldens[0]
        write_golden(stage, golden.texts, golden.rows, {"float": golden.float_ND} | written.vectors)
        manifest = _manifest(plan, part, golden, written, stage, options)
        module = None
        if options.module:
            module = write_native_module(stage, manifest, options, folder=out.name, package=package, model=facts.folder)
        write_text(stage / "README.md", bundle_readme(manifest, module))
        write_manifest(stage, manifest.model_copy(update={"files": list_files(stage)}))
    if written.failed:
        raise GateError(f"{failure}; {out} contains {' and '.join(written.parity)} only")
    say(f"bundle: {out}")
    return read_manifest(out)


def _golden(
    plan: ExportPlan, prompt: str, plain_texts: Sequence[str], stage: Path, file: str, options: ExportSettings
) -> Golden:
    """Texts after a prompt as the written tokenizer reads them, and their float vectors, within the float gate."""
    facts = plan.facts
    tokenizer, defaults, max_length = facts.tokenizer, facts.defaults, plan.max_length
    texts = with_prompt(prompt, plain_texts)
    rows = tokenizer.encode(texts, max_length)
    if load_tokenizer(stage, tokenizer.pad_id).encode(texts, max_length) != rows:
        raise GateError(f"{file} as it was written gives other ids than the model's own tokenizer")
    # Static embeddings add no special ids: a blank text has no ids and needs no program.
    texts = [text for text, row in zip(texts, rows, strict=True) if row]
    rows = [row for row in rows if row]
    skip = 0 if defaults.include_prompt else prompt_tokens(tokenizer, prompt, max_length)
    float_ND = plan.vectors(rows, skip)
    bare = [text[len(prompt) :] for text in texts]
    own_ND = None if facts.encoder is None else own_vectors(facts.encoder, bare, max_length, prompt)
    if own_ND is None:
        return Golden(prompt, texts, rows, skip, float_ND)
    # Names of special ids in a text are the one intended difference.
    apart = [i for i, (text, row) in enumerate(zip(texts, rows, strict=True)) if _special(tokenizer, text, row)]
    own_ND[apart] = float_ND[apart]
    parity = parity_of(own_ND, float_ND, None, texts)
    label = defaults.label(prompt, ", ")
    say(f"float{label}: mean cosine {parity.mean_cosine:.6f} to the model's own encoding, min {parity.min_cosine:.6f}")
    short = shortfalls(parity, FP32)
    if short and options.gates:
        short.append(farthest(own_ND, float_ND, texts) + label)
        remedy = "" if plan.config.get("exporter") == GENERIC else f'; try `exporter="{GENERIC}"`'
        raise GateError(f"the model's own encoding differs from this export's: {'; '.join(short)}{remedy}")
    return Golden(prompt, texts, rows, skip, own_ND)


def _write_programs(
    plan: ExportPlan, goldens: Sequence[Golden], stage: Path, options: ExportSettings
) -> ProgramResults:
    """The program of each runtime; of one that fails, nothing is left but its error."""
    written = ProgramResults()
    for runtime in options.runtimes:
        before = set(stage.rglob("*"))
        try:
            _write_program(runtime, plan, goldens, stage, options, written)
        except MsdcError as error:
            written.failed[runtime] = error
            say(f"{runtime}: failed: {error}")
            for path in set(stage.rglob("*")) - before:
                path.unlink()
    return written


def _write_program(
    runtime: str, plan: ExportPlan, goldens: Sequence[Golden], stage: Path, options: ExportSettings,
    written: ProgramResults,
) -> None:  # fmt: skip
    """Write one program, run it on the golden texts after every prompt, and hold it to the gates."""
    say(f"{runtime}: lower {plan.precision} for {options.target}, lengths 1 to {plan.max_length}")
    # Windows renames no folder with an open file, and the runner maps its file: `program` ends with this function.
    program = RUNTIMES[runtime].write(stage, plan, options.target, options.program_style)
    computed = [program.runner.run(golden.rows, golden.skip) for golden in goldens]
    float_ND, computed_ND = np.concatenate([golden.float_ND for golden in goldens]), np.concatenate(computed)
    texts = [text for golden in goldens for text in golden.texts]
    parity = parity_of(float_ND, computed_ND, program.low_bit_share, texts)
    say(f"{runtime}: mean cosine {parity.mean_cosine:.6f}, min {parity.min_cosine:.6f}, max abs {parity.max_abs}")
    short = shortfalls(parity, plan.thresholds)
    # A mean over all prompts would hide a prompt of few texts.
    for golden, vectors_ND in zip(goldens[1:], computed[1:], strict=True):
        part = shortfalls(parity_of(golden.float_ND, vectors_ND, None, golden.texts), plan.thresholds)
        short += [f"{plan.facts.defaults.label(golden.prompt) or 'no prompt'}: {problem}" for problem in part]
    if short and options.gates:
        short.append(farthest(float_ND, computed_ND, texts))
        others = ['`precision="fp32"`'] if plan.precision != "fp32" else []
        if plan.facts.encoder is not None and plan.config.get("exporter") != GENERIC:
            others.append(f'`exporter="{GENERIC}"`')
        remedy = f"; try {' or '.join(others)}" if others else ""
        raise GateError(f"{'; '.join(short)}{remedy}; `gates=False` writes it anyway")
    delegated = {"delegated_share": program.delegated_share, "outside": program.outside}
    written.parity[runtime] = parity.model_copy(update={"passed": not short, **delegated})
    written.programs[runtime], written.vectors[runtime] = program.part, computed[0]


def _manifest(
    plan: ExportPlan,
    part: TokenizerPart,
    golden: Golden,
    written: ProgramResults,
    stage: Path,
    options: ExportSettings,
) -> Manifest:
    facts = plan.facts
    defaults = facts.defaults

    def encoded(texts: list[str]) -> np.ndarray:
        ids = facts.tokenizer.encode(with_prompt(defaults.prompt(), texts), plan.max_length)
        return plan.vectors(ids, golden.skip)[:, : defaults.truncate_dim]

    spread = unrelated_cosines(facts.tokenizer, plan.max_length, encoded)
    counts = {("" if name == "total" else f"{name}_") + "parameters": n for name, n in plan.counts.items()}
    return Manifest(
        name=facts.name, target=options.target, width=plan.width, truncate_dim=defaults.truncate_dim,
        max_length=plan.max_length, vocabulary=plan.vocabulary, languages=list(facts.card.languages),
        precision=plan.precision, normalized=plan.normalized, gates="passed" if options.gates else "skipped",
        prompts=dict(defaults.prompts), default_prompt=defaults.default_prompt,
        cosines=None if spread is None else Cosines(mean=spread[0], deviation=spread[1]),
        include_prompt=defaults.include_prompt, similarity=defaults.similarity, tokenizer=part,
        programs=Programs.model_validate(written.programs),
        model=ModelPart(**counts, config=plan.config, source_sha256=plan.source_sha256), parity=written.parity,
        float_scores=float_scores(encoded), files=list_files(stage), versions=_versions(),
        licenses=list(facts.card.licenses), data_sources=list(facts.card.data_sources),
    )  # fmt: skip


def _versions() -> dict[str, str]:
    names = (*BEFORE, *(package for runtime in RUNTIMES for package in runtime.made_with), *AFTER)
    return {name: version(name) for name in names if any(distributions(name=name))}


def _write_tokenizer(tokenizer: Tokenizer, max_length: int, stage: Path, texts: list[str]) -> TokenizerPart:
    """Write the tokenizer from memory: a SentencePiece model agrees with its twin, a `tokenizer.json` is compiled."""
    pad_id = tokenizer.pad_id
    if isinstance(tokenizer, PieceTokenizer):
        say("tokenizer: compare tokenizer.model with its tokenizer.json")
        tokenizers_agree(tokenizer, texts, max_length)
        (stage / BUNDLED_FILE).write_bytes(tokenizer.content)
        unk = tokenizer.unk_id if tokenizer.unk_id >= 0 else None
        bos, eos = tokenizer.bos_id, tokenizer.eos_id
        return TokenizerPart(kind="sentencepiece", file=BUNDLED_FILE, bos_id=bos, eos_id=eos, pad_id=pad_id, unk_id=unk)
    if not isinstance(tokenizer, FastTokenizer):
        raise InputError(f"a tokenizer of kind {type(tokenizer).__name__} cannot be exported")
    (stage / JSON_FILE).write_bytes(tokenizer.content)
    say("tokenizer: compile tokenizer.json for the native core")
    compiled = refused = None
    try:
        (stage / COMPILED_FILE).write_bytes(compile_tokenizer(stage / JSON_FILE))
        compiled = COMPILED_FILE
    except InputError as error:
        say(str(error))
        refused = str(error)[:1000]
    # The special ids that the template adds to an empty text.
    first, *_, last = tokenizer.encode([""], 8)[0] * 2 or (None, None)
    unk = tokenizer.backend.token_to_id("[UNK]")
    unk = tokenizer.backend.token_to_id("<unk>") if unk is None else unk
    return TokenizerPart(
        kind="tokenizer-json", file=JSON_FILE, compiled=compiled, refused=refused, bos_id=first, eos_id=last,
        pad_id=pad_id, unk_id=unk,
    )  # fmt: skip


def _special(tokenizer: Tokenizer, text: str, row: Sequence[int]) -> bool:
    """Whether `text` contains the name of a special id, which models read differently.

    A SentencePiece model takes such a name as ordinary text; RoBERTa gives the pad id inside a text no position.
    """
    processor: Any = tokenizer.processor if isinstance(tokenizer, PieceTokenizer) else None
    controls = (i for i in range(tokenizer.size) if processor and processor.is_control(i))
    # Of some models (Qwen) it is also the id that ends every text.
    usual_count = tokenizer.encode([""], max(len(row), 1))[0].count(tokenizer.pad_id)
    return row.count(tokenizer.pad_id) > usual_count or any(processor.id_to_piece(i) in text for i in controls)
