"""`msdc compress student`: cut a student out of any encoder, with the bottleneck its own table asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from compress.families import to_student
from compress.folder import save_stock, save_student, tokenizer_file
from compress.frequency import corpus_frequency, own_frequency
from compress.plan import Cut, SizePlan, cut, default_repeats, size_plan
from compress.shrink import shrink, wide_table
from compress.texts import quickstart_texts, read_texts
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.files import refuse_existing
from msdc.scores import cosine_rows


class StudentRequest(BaseModel):
    """Which layers of which model, and how narrow its table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str
    out: Path
    bottleneck: int | None = None
    unit: int | None = None
    repeats: int | None = None
    layers: tuple[int, ...] | None = None
    place: Literal["word", "embedding"] = "word"
    max_length: int | None = None
    corpus: Path | None = None
    materialise: bool = False
    force: bool = False


class StudentReport(BaseModel):
    """What was written; `cosine` compares it with its model on the embedded sentences, before any training."""

    model_config = ConfigDict(frozen=True)

    model: str
    out: str
    layers: list[int]
    kept_variance: float | None
    frequency: str
    cosine: float
    sizes: SizePlan


def _layers(request: StudentRequest, stored: int, applied: int) -> tuple[list[int], int]:
    """(indices of the layers to keep, repeats)."""
    if request.layers is not None:
        if request.unit is not None and request.unit != len(request.layers):
            raise InputError(f"--unit {request.unit} but --layers names {len(request.layers)} layers")
        wrong = [index for index in request.layers if not 0 <= index < stored]
        if wrong or not request.layers:
            raise InputError(f"--layers {wrong}: the model stores layers 0 to {stored - 1}")
        picked = list(request.layers)
    else:
        unit = stored if request.unit is None else request.unit
        if not 1 <= unit <= stored:
            raise InputError(f"a unit of {unit} layers out of a model that stores {stored}")
        picked = list(range(unit))
    if request.repeats is not None:
        if request.repeats < 1:
            raise InputError(f"--repeats {request.repeats}: must be at least 1")
        return picked, request.repeats
    return picked, applied // stored if len(picked) == stored else default_repeats(applied, len(picked))


def make(request: StudentRequest) -> StudentReport:
    """Cut the student and write its folder.

    Raises:
        InputError: no such model, or a cut that does not fit it.
    """
    refuse_existing(request.out, request.force)
    encoder = load_encoder(request.model)
    large = to_student(encoder)
    old = large.config
    picked, repeats = _layers(request, old.unit, old.unit * old.repeats)
    # The same checks and words as `plan`.
    cut(old, Cut(bottleneck=request.bottleneck, max_length=request.max_length))
    bottleneck, place = request.bottleneck, request.place
    frequency_V, source = None, "uniform"
    if bottleneck is not None:
        tokenizer = encoder.tokenizer
        if request.corpus is not None:
            frequency_V = corpus_frequency(tokenizer, read_texts(request.corpus), old.vocabulary, encoder.max_length)
            source = request.corpus.name
        else:
            frequency_V = own_frequency(tokenizer, old.vocabulary)
            source = "the vocabulary's own" if frequency_V is not None else "uniform (give --corpus for better)"
    small = shrink(
        large,
        layers=picked,
        repeats=repeats,
        bottleneck=bottleneck,
        place=place,
        frequency_V=frequency_V,
        max_length=request.max_length,
        keep_bottleneck=bottleneck is None,
    )
    kept = None
    if bottleneck is not None:
        from compress.budget import kept_shares

        kept = kept_shares(wide_table(large), [bottleneck], frequency_V)[bottleneck]
    samples = quickstart_texts(limit=160)
    after = Encoder(small, encoder.tokenizer, small.config.positions, "student")
    cosine = float(cosine_rows(encoder.encode(samples), after.encode(samples)).mean())
    assert encoder.folder is not None
    tokenizer_path = tokenizer_file(encoder.tokenizer.files[0].parent)
    card = _card(request, encoder.name, picked, repeats, kept, source, cosine)
    save = save_stock if request.materialise else save_student
    save(small, tokenizer_path, request.out, card=card, force=request.force)
    return StudentReport(
        model=encoder.name,
        out=str(request.out),
        layers=picked,
        kept_variance=kept,
        frequency=source,
        cosine=cosine,
        sizes=size_plan(request.out.name, small.config),
    )


def _card(
    request: StudentRequest, name: str, picked: list[int], repeats: int, kept: float | None, source: str, cosine: float
) -> str:
    lines = [f"# {request.out.name}", "", f"A student cut out of {name}, not trained yet.", ""]
    lines.append(f"* layers {', '.join(map(str, picked))} of it, applied {repeats} times")
    if request.bottleneck is not None:
        lines.append(
            f"* token table {request.bottleneck} wide ({request.place}), {kept:.1%} of its weighted variance kept; "
            f"frequencies: {source}"
        )
    if request.materialise:
        lines.append("* written as the equal plain BertModel: recurrence unrolled, table multiplied out")
    lines.append(f"* mean cosine to {name} on the embedded sentences: {cosine:.4f}")
    return "\n".join(lines) + "\n"
