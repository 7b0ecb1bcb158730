"""Cut a student from a larger one: chosen layers become the recurring unit, the table gets its bottleneck.

Source: Ding et al. 2022: the unit is the first M layers of the assistant (`layers` may choose others). The bottleneck
starts from the frequency-weighted SVD of the token table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from msdc.compress.size.estimate import Cut, SizePlan, cut, default_repeats, size_plan
from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.io import save_stock, save_student, tokenizer_file
from msdc.compress.student.model import Embedding, Student, StudentConfig
from msdc.compress.texts import corpus_frequency, own_frequency, quickstart_texts, read_texts
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.files import refuse_existing
from msdc.scores import cosine_rows


def wide_table(student: Student) -> Tensor:
    """The table as the layers see it, [V, H]: narrow rows times the bottleneck map, a code multiplied out."""
    return _widened(student, student.embedding.rows().detach())


def _widened(student: Student, rows_RE: Tensor) -> Tensor:
    project = student.embedding.project
    return rows_RE if project is None else rows_RE @ project.weight.detach().T


@torch.no_grad()
def shrink(
    large: Student,
    *,
    layers: Sequence[int] | None = None,
    repeats: int = 1,
    bottleneck: int | None = None,
    place: str = "word",
    frequency_V: Tensor | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
    keep_bottleneck: bool = False,
) -> Student:
    """A student with `layers` of `large` as its unit (None: all of them), applied `repeats` times.

    With no layer left out the result differs from `large` only by what the SVD drops: with `place: word` of the table,
    with `place: embedding` of table and positions, whose sum the narrow layer norm scales slightly differently.
    `bottleneck: None` multiplies a bottleneck that `large` has out to a V x H table, unless `keep_bottleneck`. A coded
    table keeps its code: what happens to rows is linear and happens to the base rows.

    Raises:
        InputError: a layer that is not there, or a longer input than `large` has positions for.
    """
    old = large.config
    keep_bottleneck = keep_bottleneck and bottleneck is None and old.bottleneck is not None
    if old.place == "embedding" and old.bottleneck is not None and not keep_bottleneck:
        raise InputError("this model already has its bottleneck before positions and norm; it cannot be cut again")
    picked = list(range(len(large.layers))) if layers is None else list(layers)
    wrong = [i for i in picked if not 0 <= i < len(large.layers)]
    if wrong or not picked:
        raise InputError(f"layers {wrong or picked} are not in a model of {len(large.layers)} layers")
    positions = max_length or old.positions
    if positions > old.positions:
        raise InputError(f"longest input {positions} exceeds the {old.positions} positions of the model")
    config = StudentConfig(
        **{
            **old.model_dump(),
            "unit": len(picked),
            "repeats": repeats,
            "bottleneck": old.bottleneck if keep_bottleneck else bottleneck,
            "place": old.place if keep_bottleneck else place if bottleneck else "word",
            "positions": positions,
            "dropout": old.dropout if dropout is None else dropout,
        }
    )
    small = Student(config)
    table_VH = wide_table(large)
    stored_RH = _widened(large, large.embedding.table.weight.detach()) if old.coded else table_VH
    if large.embedding.code is not None and small.embedding.code is not None:
        small.embedding.code.load_state_dict(large.embedding.code.state_dict())
    position_PH = large.embedding.position.weight[:positions]
    norm = large.embedding.norm
    if keep_bottleneck:
        state = large.embedding.state_dict()
        state["position.weight"] = state["position.weight"][:positions]
        small.embedding.load_state_dict(state)
    elif bottleneck is None:
        small.embedding.table.weight.copy_(stored_RH)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    elif place == "word":
        table_VE, project_EH = weighted_svd(table_VH, frequency_V, bottleneck)
        assert small.embedding.project is not None
        small.embedding.table.weight.copy_(stored_RH @ project_EH.T if old.coded else table_VE)
        small.embedding.project.weight.copy_(project_EH.T)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    else:
        _start_narrow(small.embedding, table_VH, stored_RH, position_PH, norm, frequency_V)
    for target, index in zip(small.layers, picked, strict=True):
        target.load_state_dict(large.layers[index].state_dict())
    if large.dense is not None and small.dense is not None:
        small.dense.load_state_dict(large.dense.state_dict())
    return small.eval()


@torch.no_grad()
def _start_narrow(
    target: Embedding,
    table_VH: Tensor,
    stored_RH: Tensor,
    position_PH: Tensor,
    norm: nn.LayerNorm,
    frequency_V: Tensor | None,
) -> None:
    """Initialize `place: embedding`, whose positions and layer norm come before the map, near the wide embedding.

    `stored_RH` are the rows that the target stores: those of `table_VH`, or the base of its code.

    A layer norm sees a row only up to its mean, so rows are centred first; what then counts is that the narrow rows
    keep their length and have mean 0 as well. The singular vectors keep the length; a reflection puts the least of
    them on the diagonal (1, .., 1), which the narrow norm removes. With E = H nothing is lost.
    """
    V, H = table_VH.shape
    E = target.table.weight.shape[1]
    rows_VH = table_VH - table_VH.mean(1, keepdim=True)
    centred_PH = position_PH - position_PH.mean(1, keepdim=True)
    # Every token has some position: together the first ones weigh as much as the tokens.
    near = min(len(centred_PH), 32)
    weight_V = torch.ones(V) if frequency_V is None else frequency_V.float()
    weight = torch.cat([weight_V, (weight_V.sum() / near).repeat(near)])
    _, project_EH = weighted_svd(torch.cat([rows_VH, centred_PH[:near]]), weight, E)
    mirror_E = torch.full((E,), -(E**-0.5))
    mirror_E[-1] += 1
    length = mirror_E.norm()
    if float(length) > 1e-6:
        mirror_E /= length
        project_EH = project_EH - 2 * torch.outer(mirror_E, mirror_E @ project_EH)
    assert target.project is not None
    target.table.weight.copy_((stored_RH - stored_RH.mean(1, keepdim=True)) @ project_EH.T)
    target.position.weight.copy_(centred_PH @ project_EH.T)
    # The narrow norm gives rows of length sqrt(E), the wide one sqrt(H) with its own gain and shift.
    target.project.weight.copy_(project_EH.T * norm.weight[:, None] * (H / E) ** 0.5)
    target.project.bias.copy_(norm.bias)


def weighted_svd(table_VH: Tensor, frequency_V: Tensor | None, rank: int) -> tuple[Tensor, Tensor]:
    """Narrow table [V, E] and map [E, H] whose product is the frequency-weighted best rank-E approximation.

    Rows of frequency 0 do not steer the map; they are still projected onto it, which is the best they can get.

    Raises:
        InputError: `rank` is not within 1..H, or the frequencies do not fit the table.
    """
    V, H = table_VH.shape
    if not 1 <= rank <= min(V, H):
        raise InputError(f"a bottleneck of {rank} is not within 1..{min(V, H)} for a table of {V} x {H}")
    table = table_VH.detach().double()
    weight = torch.ones(V, dtype=torch.float64) if frequency_V is None else frequency_V.detach().double()
    if weight.shape != (V,) or bool((weight < 0).any()) or float(weight.sum()) <= 0:
        raise InputError(f"frequencies must be {V} non-negative numbers that are not all zero")
    # The H x H Gram matrix has the same right singular vectors as diag(sqrt f) table, and is small.
    gram_HH = table.T @ (table * weight[:, None])
    _, vectors_HH = torch.linalg.eigh(gram_HH)
    project_EH = vectors_HH[:, -rank:].flip(1).T.contiguous()
    table_VE = table @ project_EH.T
    return table_VE.to(table_VH.dtype), project_EH.to(table_VH.dtype)


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
    # The same checks and messages as `plan`.
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
        from msdc.compress.size.search import kept_shares

        kept = kept_shares(wide_table(large), [bottleneck], frequency_V)[bottleneck]
    samples = quickstart_texts(limit=160)
    after = Encoder(small, encoder.tokenizer, small.config.positions, "student", defaults=encoder.defaults)
    cosine = float(cosine_rows(encoder.encode(samples), after.encode(samples)).mean())
    assert encoder.folder is not None
    tokenizer_path = tokenizer_file(encoder.tokenizer.files[0].parent)
    card = _card(request, encoder.name, picked, repeats, kept, source, cosine)
    save = save_stock if request.materialise else save_student
    save(small, tokenizer_path, request.out, card=card, force=request.force, defaults=encoder.defaults)
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
