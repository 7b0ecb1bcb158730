"""Cut students from larger models, before any training.

* `shrink` takes layers as the recurring unit and adds the bottleneck. As in Ding et al. 2022 the unit is the first M
  layers of the assistant (`layers` may choose others). The bottleneck starts from the frequency-weighted SVD of the
  token table.
* `static_student` keeps no layer: a row per token, and their mean.
* `fit_student` codes the table (`coded_table`). The frequency-weighted mean of all rows, which is the same for
  every token, is moved into the positions.
* `cut_student` and `code_table` apply them to a model folder.

Shapes: V vocabulary, R stored rows of the table, E its width, H hidden, P positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from msdc.arguments import checked
from msdc.compress.gate import require_written
from msdc.compress.loading import load_torch_encoder, open_source
from msdc.compress.size import SizePlan, cut_config, default_repeats, size_plan
from msdc.compress.student.coded_table import fit_code, kept_variance, row_weights
from msdc.compress.student.config import CODE, DENSE, DENSE_BIAS, INDEX, POSITION, TABLE, StudentConfig
from msdc.compress.student.io import ModelReport, save_student
from msdc.compress.student.model import Embedding, Student, with_state
from msdc.compress.student.stock import decode
from msdc.compress.texts import quickstart_texts, row_frequency
from msdc.encoders.encoder import Encoder, require_room
from msdc.errors import InputError
from msdc.scores import cosine_rows

RARE = 1e-3  # a of SIF


def linear_head(width: int | None, current_width: int, bias: bool = False) -> dict[str, Any]:
    """The settings of a linear map from vectors of width `current_width` to `width`; none if it is None.

    Without `bias` there is none between equal widths either.
    """
    if width is None or (width == current_width and not bias):
        return {}
    return {"dense": width, "dense_activation": "identity", "dense_bias": bias}


def wide_table(student: Student, stored: bool = False) -> Tensor:
    """The table as the layers see it, [V, H]: narrow rows times the bottleneck map, a code multiplied out.

    With `stored` only the stored rows, [R, H]: the base of a coded table.
    """
    rows_RE = (student.embedding.table.weight if stored else student.embedding.rows()).detach()
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
    width: int | None = None,
    head_bias: bool = False,
) -> Student:
    """A student with `layers` of `large` as its unit (None: all of them), applied `repeats` times.

    With all layers the result differs from `large` only by the variance that the SVD drops: with `place: word` of the
    table, with `place: embedding` of table and positions, whose sum the narrow layer norm scales slightly differently.
    `bottleneck: None` multiplies the bottleneck of `large` out to a V x H table, unless `keep_bottleneck`. A coded
    table keeps its code: changes of rows are linear and are applied to the base rows. `width`, where it is another than
    that of `large`, is that of the vectors after a new dense layer, which has a bias with `head_bias` (then also at an
    equal width). Without `layers` see `static_student`.
    """
    old = large.config
    head = linear_head(width, old.width, head_bias)
    if layers is not None and not layers:
        length = max_length or old.positions
        return static_student(large, bottleneck, frequency_V, length, dropout or 0.0, width, head_bias)
    keep_bottleneck = keep_bottleneck and bottleneck is None and old.bottleneck is not None
    if old.place == "embedding" and old.bottleneck is not None and not keep_bottleneck:
        raise InputError("this model already has its bottleneck before positions and norm; it cannot be cut again")
    picked = list(range(len(large.layers))) if layers is None else list(layers)
    wrong = [i for i in picked if not 0 <= i < len(large.layers)]
    if wrong or not picked:
        raise InputError(f"`layers` {wrong}: the model stores layers 0 to {len(large.layers) - 1}")
    positions = max_length or old.positions
    if positions > old.positions:
        raise InputError(f"longest input {positions} exceeds the {old.positions} positions of the model")
    changes: dict[str, Any] = {"unit": len(picked), "repeats": repeats, "positions": positions, **head}
    if not keep_bottleneck:
        changes |= {"bottleneck": bottleneck, "place": place if bottleneck else "word"}
    if dropout is not None:
        changes["dropout"] = dropout
    small = Student(StudentConfig(**(old.model_dump() | changes)))
    table_VH = wide_table(large)
    stored_RH = wide_table(large, stored=True) if old.coded else table_VH
    if large.embedding.code is not None and small.embedding.code is not None:
        small.embedding.code.load_state_dict(large.embedding.code.state_dict())
    position_PH = large.embedding.position.weight[:positions]
    norm = large.embedding.norm
    if keep_bottleneck:
        state = large.embedding.state_dict()
        state["position.weight"] = state["position.weight"][:positions]
        small.embedding.load_state_dict(state)
    elif bottleneck is not None and place == "embedding":
        _start_narrow(small.embedding, table_VH, stored_RH, position_PH, norm, frequency_V)
    else:
        if bottleneck is not None:
            table_VE, project_EH = weighted_svd(table_VH, frequency_V, bottleneck)
            stored_RH = stored_RH @ project_EH.T if old.coded else table_VE
            assert small.embedding.project is not None
            small.embedding.project.weight.copy_(project_EH.T)
        small.embedding.table.weight.copy_(stored_RH)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    for target, index in zip(small.layers, picked, strict=True):
        target.load_state_dict(large.layers[index].state_dict())
    if large.dense is not None and small.dense is not None and not head:
        small.dense.load_state_dict(large.dense.state_dict())
    return small.eval()


@torch.no_grad()
def static_student(
    large: Student,
    bottleneck: int | None,
    frequency_V: Tensor | None,
    max_length: int,
    dropout: float = 0.0,
    width: int | None = None,
    head_bias: bool = False,
) -> Student:
    """A table and a mean: a row per token, with a `bottleneck` this narrow and mapped to the vector after the mean.

    A row is what `large` makes of the token alone, as in model2vec; of a coded table, what it makes of the base rows.
    Rare tokens weigh more: a / (a + p), p the share of the token in the text (Arora et al. 2017, SIF).
    """
    old, dim = large.config, large.width
    if max_length > old.positions:
        raise InputError(f"longest input {max_length} exceeds the {old.positions} positions of the model")
    heads = []
    for rows_RE in large.embedding.table.weight.split(1024):
        hidden_R1H = large.embedding.eval().finish(rows_RE.unsqueeze(1))
        for _ in range(old.repeats):
            hidden_R1H = large.unit(hidden_R1H)
        heads.append(large.head(hidden_R1H, hidden_R1H.new_ones(len(hidden_R1H), 1)))
    stored_RD, code = torch.cat(heads), large.embedding.code
    share_V = row_weights(frequency_V, old.vocabulary).float()
    weight_V1 = (RARE / (RARE + share_V / share_V.sum())).unsqueeze(1)
    state: dict[str, Tensor] = {}
    if code is not None:
        state |= {CODE: code.weight * weight_V1, INDEX: code.index}
    else:
        stored_RD = stored_RD * weight_V1
    table_VD = stored_RD if code is None else (state[CODE].unsqueeze(2) * stored_RD[code.index.long()]).sum(1)
    if bottleneck is not None:
        _, project_ED = weighted_svd(table_VD, frequency_V, bottleneck)
        stored_RD, state[DENSE] = stored_RD @ project_ED.T, project_ED.T
    if width is not None and (width != dim or (head_bias and DENSE not in state)):
        state[DENSE] = torch.randn(width, bottleneck or dim) * 0.02
    if head_bias and DENSE in state:
        state[DENSE_BIAS] = torch.zeros(len(state[DENSE]))
    changes: dict[str, Any] = {"unit": 0, "repeats": 1, "heads": 1, "hidden": bottleneck or dim, "bottleneck": None}
    changes |= {"place": "word", "positions": max_length, "dropout": dropout, "pooling": "mean", "dense": None,
                "dense_activation": "identity"}  # fmt: skip
    changes |= linear_head(len(state[DENSE]), 0, head_bias) if DENSE in state else {}
    config = StudentConfig(**(old.model_dump() | changes))
    return with_state(config, {name: value.contiguous() for name, value in (state | {TABLE: stored_RD}).items()})


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

    A layer norm ignores the mean of a row, so rows are centred first; the narrow rows must keep their length and have
    mean 0 as well. The singular vectors keep the length; a reflection moves the least of them to the diagonal
    (1, .., 1), which the narrow norm removes. With E = H nothing is lost.
    """
    V, H = table_VH.shape
    E = target.table.weight.shape[1]
    rows_VH = table_VH - table_VH.mean(1, keepdim=True)
    centred_PH = position_PH - position_PH.mean(1, keepdim=True)
    # Every token has some position: together the first ones weigh as much as the tokens.
    near = min(len(centred_PH), 32)
    weight_V = row_weights(frequency_V, V).float()
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

    Rows of frequency 0 do not affect the map; they are projected onto it.
    """
    V, H = table_VH.shape
    if not 1 <= rank <= min(V, H):
        raise InputError(f"a bottleneck of {rank} is not within 1..{min(V, H)} for a table of {V} x {H}")
    table = table_VH.detach().double()
    # The H x H Gram matrix has the same right singular vectors as diag(sqrt f) table, and is small.
    gram_HH = table.T @ (table * row_weights(frequency_V, V)[:, None])
    _, vectors_HH = torch.linalg.eigh(gram_HH)
    project_EH = vectors_HH[:, -rank:].flip(1).T.contiguous()
    table_VE = table @ project_EH.T
    return table_VE.to(table_VH.dtype), project_EH.to(table_VH.dtype)


@torch.no_grad()
def fit_student(
    student: Student, base_rows: int, nonzeros: int, frequency_V: Tensor | None = None
) -> tuple[Student, float]:
    """`student` with its table coded, and the kept share of the (weighted) variance of the rows around their mean.

    An existing code of `student` is fitted again.
    """
    plain = decode(student)
    config = plain.config
    state = dict(plain.state_dict())
    table_VE = state[TABLE].float()
    weight_V = row_weights(frequency_V, len(table_VE)).float()
    mean_E = torch.zeros_like(table_VE[0]) if config.static else (weight_V / weight_V.sum()) @ table_VE
    code = fit_code(table_VE - mean_E, base_rows, nonzeros, frequency_V)
    variance = kept_variance(table_VE - mean_E, code.rows(), frequency_V)
    project = plain.embedding.project if config.place == "word" else None
    # Every token has a position: the mean of all rows is added there, after the map if the map comes first.
    if not config.static:
        state[POSITION] = state[POSITION] + (mean_E if project is None else project.weight @ mean_E)
    state |= {TABLE: code.base_RE, CODE: code.weight_Vk, INDEX: code.index_Vk}
    return with_state(
        StudentConfig(**{**config.model_dump(), "base_rows": base_rows, "nonzeros": nonzeros}), state
    ), variance


def kept_shares(table_VH: Tensor, widths: Sequence[int], frequency_V: Tensor | None = None) -> dict[int, float]:
    """Share of the table's (weighted) squared norm that each bottleneck width keeps."""
    table = table_VH.detach().double()
    weighted = table * row_weights(frequency_V, len(table))[:, None]
    spectrum = torch.linalg.eigvalsh(table.T @ weighted).flip(0).clamp(min=0)
    total = float(spectrum.sum())
    return {width: float(spectrum[:width].sum()) / total for width in widths}


class StudentReport(ModelReport):
    """The student that was written; `cosine` is its mean cosine to its model on the embedded sentences.

    `kept_variance` is the share of the table's weighted variance that the bottleneck or the code keeps.
    """

    layers: list[int]
    kept_variance: float | None
    frequency: str
    cosine: float
    sizes: SizePlan


def _save(
    student: Student,
    encoder: Encoder,
    output: Path,
    card: str,
    *,
    force: bool,
    **report_fields: Any,
) -> StudentReport:
    """Compare the student with its model on the embedded sentences, write its folder; report also `report_fields`."""
    samples = quickstart_texts(limit=160)
    after = Encoder(student, encoder.tokenizer, student.config.positions, output.name, defaults=encoder.defaults)
    cosine = float(cosine_rows(encoder.encode(samples), after.encode(samples)).mean())
    card += f"* mean cosine to {encoder.name} on the embedded sentences, before any training: {cosine:.4f}\n"
    save_student(
        student, encoder.tokenizer, output, card=card, force=force, defaults=encoder.defaults,
        check=lambda stage: require_written(encoder, after, load_torch_encoder(stage), samples[::10]),
    )  # fmt: skip
    sizes = size_plan(output.name, student.config)
    return StudentReport(model=encoder.name, out=str(output), cosine=cosine, sizes=sizes, **report_fields)


@checked
def cut_student(
    model: str | Path = "msdc-mini",
    *,
    output: str | Path,
    bottleneck: int | None = None,
    unit: int | None = None,
    repeats: int | None = None,
    layers: Sequence[int] | None = None,
    place: Literal["word", "embedding"] = "word",
    max_length: int | None = None,
    corpus: str | Path | None = None,
    force: bool = False,
) -> StudentReport:
    """Cut a student from any encoder: its layers become the recurring unit, an SVD of its table the bottleneck.

        from msdc.compress import cut_student

        report = cut_student("all-MiniLM-L6-v2", output="cut", layers=[0, 4, 5], bottleneck=128)
        print(report.sizes.parameters, report.cosine)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        bottleneck: width of the token table's rows; None keeps the model's own.
        unit: keep the first layers, this many, as the recurring unit; None keeps all.
        repeats: how often the unit is applied; None: layers / unit, with `layers` as often as in the model.
        layers: keep these layers instead; []: none, a table and a mean (`static_student`).
        place: "word" is the paper's bottleneck, "embedding" that of a stock AlbertModel.
        max_length: longest input in tokens; None keeps the model's own.
        corpus: text whose token frequencies weight the SVD; None: the vocabulary's own frequencies, if it has them.
        force: replace `output` if it exists.

    Raises:
        InputError: no such model, one that cannot become a student, an argument that does not fit it, or `output`
            exists.
    """
    output, encoder, large = open_source(model, output, force)
    old = large.config
    if layers is not None and unit not in (None, len(layers)):
        raise InputError(f"`unit` {unit}, but `layers` names {len(layers)} layers")
    # The same checks and messages as `plan`.
    cut_config(old, bottleneck=bottleneck, max_length=max_length, unit=unit, repeats=1 if repeats is None else repeats)
    if max_length is not None:
        require_room(encoder.name, encoder.tokenizer, encoder.defaults, max_length)
    picked = list(range(unit or old.unit)) if layers is None else list(layers)
    if repeats is None and picked:
        # Layers that are named are kept as they are; a shorter unit replaces all layers of the model.
        replaced = layers is None and len(picked) != old.unit
        repeats = default_repeats(old.unit * old.repeats, len(picked)) if replaced else old.repeats
    repeats = 1 if repeats is None else repeats
    frequency_V, source = None, "uniform"
    if bottleneck is not None:
        frequency_V, source = row_frequency(encoder, old.vocabulary, corpus)
    small = shrink(
        large,
        layers=picked,
        repeats=repeats,
        bottleneck=bottleneck,
        place=place,
        frequency_V=frequency_V,
        max_length=max_length,
        keep_bottleneck=bottleneck is None,
    )
    card = f"# {output.name}\n\nA student cut from {encoder.name}, not trained yet.\n\n"
    applied = "" if repeats == 1 else f", applied {repeats} times"
    card += f"* its layers {', '.join(map(str, picked))}{applied}\n" if picked else "* no layers: a table and a mean\n"
    share = None
    if bottleneck is not None and picked:
        share = kept_shares(wide_table(large), [bottleneck], frequency_V)[bottleneck]
        card += f"* token table {bottleneck} wide ({place}), {share:.1%} of its weighted variance kept; "
        card += f"frequencies: {source}\n"
    return _save(small, encoder, output, card, layers=picked, kept_variance=share, frequency=source, force=force)


@checked
def code_table(
    model: str | Path = "msdc-mini",
    *,
    output: str | Path,
    base_rows: int,
    nonzeros: int = 4,
    corpus: str | Path | None = None,
    force: bool = False,
) -> StudentReport:
    """Code a model's token table: each row becomes a weighted sum of a few rows of a small base table.

    The folder is written in float, also for a quantized model.

        from msdc.compress import code_table

        print(code_table("all-MiniLM-L6-v2", output="coded", base_rows=8000, nonzeros=4).kept_variance)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        base_rows: rows of the base table.
        nonzeros: base rows that a row is a sum of, 2 to 5.
        corpus: text whose token frequencies weight the fit; None: the vocabulary's own frequencies, if it has them.
        force: replace `output` if it exists.

    Raises:
        InputError: no such model, one that cannot become a student, a code that does not fit, or `output` exists.
    """
    output, encoder, student = open_source(model, output, force)
    frequency_V, source = row_frequency(encoder, student.config.vocabulary, corpus)
    coded, variance = fit_student(student, base_rows, nonzeros, frequency_V)
    card = (
        f"# {output.name}\n\n{encoder.name} with a coded token table: each row is a sum of {nonzeros} of {base_rows:,} "
        f"base rows.\n\n* {variance:.1%} of the weighted variance of its rows kept; frequencies: {source}\n"
    )
    layers = list(range(student.config.unit))
    return _save(coded, encoder, output, card, layers=layers, kept_variance=variance, frequency=source, force=force)
