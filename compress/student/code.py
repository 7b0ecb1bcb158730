"""`msdc compress code`: store a model's token table as a code, and report what that changed."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from msdc.compress.size.estimate import SizePlan, code_settings, size_plan
from msdc.compress.student.code_fit import ROUNDS, fit_student
from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.io import save_student, tokenizer_file
from msdc.compress.texts import corpus_frequency, own_frequency, quickstart_texts, read_texts
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.files import refuse_existing
from msdc.scores import cosine_rows

SAMPLES = 160


class CodeRequest(BaseModel):
    """Which model, how many base rows, and how many of them a row is a sum of."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    out: Path
    base_rows: int
    links: int = 4
    corpus: Path | None = None
    rounds: int = ROUNDS
    force: bool = False


class CodeReport(BaseModel):
    """What was written; `cosine` compares it with its model on the embedded sentences, before any training."""

    model_config = ConfigDict(frozen=True)

    model: str
    out: str
    kept_variance: float
    frequency: str
    cosine: float
    sizes: SizePlan


def run_code(request: CodeRequest) -> CodeReport:
    """Fit the code and write the folder; it is in float, whatever the model was.

    Raises:
        InputError: no such model, a base that is no smaller than the table, or links outside 2 to 5.
    """
    refuse_existing(request.out, request.force)
    if request.rounds < 0:
        raise InputError(f"--rounds {request.rounds}: must not be negative")
    encoder = load_encoder(request.model)
    student = to_student(encoder)
    vocabulary = student.config.vocabulary
    if request.base_rows < 1:
        raise InputError(f"--base-rows {request.base_rows}: must be at least 1")
    code_settings(student.config, request.base_rows, request.links or -1, vocabulary)
    frequency_V = own_frequency(encoder.tokenizer, vocabulary)
    source = "uniform (give --corpus for better)" if frequency_V is None else "the vocabulary's own"
    if request.corpus is not None:
        texts = read_texts(request.corpus)
        frequency_V = corpus_frequency(encoder.tokenizer, texts, vocabulary, encoder.max_length)
        source = request.corpus.name
    coded, kept = fit_student(student, request.base_rows, request.links, frequency_V, rounds=request.rounds)
    samples = quickstart_texts(limit=SAMPLES)
    after = Encoder(coded, encoder.tokenizer, encoder.max_length, "coded", defaults=encoder.defaults)
    cosine = float(cosine_rows(encoder.encode(samples), after.encode(samples)).mean())
    file = tokenizer_file(encoder.tokenizer.files[0].parent)
    card = _card(request, encoder.name, kept, source, cosine)
    save_student(coded, file, request.out, card=card, force=request.force, defaults=encoder.defaults)
    return CodeReport(
        model=encoder.name,
        out=str(request.out),
        kept_variance=kept,
        frequency=source,
        cosine=cosine,
        sizes=size_plan(request.out.name, coded.config),
    )


def _card(request: CodeRequest, name: str, kept: float, source: str, cosine: float) -> str:
    return (
        f"# {request.out.name}\n\n{name} with a coded token table: each row is a sum of {request.links} of "
        f"{request.base_rows:,} base rows.\n\n* {kept:.1%} of the weighted variance of its rows kept; "
        f"frequencies: {source}\n"
        f"* mean cosine to {name} on the embedded sentences, before any training: {cosine:.4f}\n"
    )
