"""Every student that fits a byte budget, and which of them are worth training.

Bytes and operations are exact before training; accuracy is not. `expected_loss` orders the candidates by what is
published or measured, in Spearman points lost against the base model:

* bottleneck: `BOTTLENECK_POINTS` x the share of the token table's variance that it drops. The share is measured on
  the given model's own table; for a bare shape it follows `KEPT_CURVE`, measured on all-MiniLM-L6-v2.
* stored layers: `HALVING_POINTS` each time the unit is half the base's layers (Ding et al. 2022, table 2: 12 to 6 to 3
  layers cost 1.7 and 1.7 points with XLM-R, 3.7 and 4.3 with MiniLM).
* depth: what is not applied at all (unit x repeats below the base's layers) costs `DEPTH_POINTS` more per halving.
* vocabulary: `VOCABULARY_POINTS` each time it is halved.
* precision: the gates of an artifact: int8 0.3, an int4 table 0.3 more, int4 linears 0.6 more.

It ranks candidates and predicts no score: train two or three from the Pareto set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from msdc.compress.quantization.plan import plan_for
from msdc.compress.size.estimate import Cut, cut, macs_per_token, precisions_for, predict_bytes
from msdc.compress.student.config import StudentConfig
from msdc.errors import InputError
from msdc.scores import pareto

if TYPE_CHECKING:
    from torch import Tensor

BOTTLENECK_POINTS = 15.0
HALVING_POINTS = 2.5
DEPTH_POINTS = 1.0
VOCABULARY_POINTS = 1.0
PRECISION_POINTS = {"fp32": 0.0, "int8": 0.3, "int8-embed4": 0.6, "int4-embed4": 1.2}
# Share of the frequency-weighted variance of all-MiniLM-L6-v2's table (384 wide) kept at these shares of the width.
KEPT_CURVE = ((0.0, 0.0), (64 / 384, 0.55), (128 / 384, 0.74), (192 / 384, 0.85), (256 / 384, 0.93), (1.0, 1.0))
# Share of the frequency-weighted variance of msdc-mini's table that a fitted code of 2 to 4 links drops, by base rows
# per piece; between 2 and 4 links it differs less than between one of these sizes and the next.
CODE_CURVE = ((0.0, 1.0), (1 / 8, 0.029), (1 / 5, 0.024), (1 / 4, 0.016), (1.0, 0.0))
UNITS = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KIB": 1024, "MIB": 1024**2, "GIB": 1024**3}


class Candidate(BaseModel):
    """One student; `pareto`: no other one is at most as big, as slow and as lossy, and better in one of the three."""

    model_config = ConfigDict(frozen=True)

    vocabulary: int
    bottleneck: int | None
    base_rows: int | None = None
    links: int | None = None
    unit: int
    repeats: int
    precision: str
    needs_qat: bool
    bytes: int
    macs_per_token: int
    parameters: int
    expected_loss: float
    pareto: bool = False


def parse_bytes(text: str) -> int:
    """10MB, 9.5 MiB, 12000000.

    Raises:
        InputError: not a number with one of the known units.
    """
    compact = text.replace(" ", "").upper()
    number = compact.rstrip("KMGIB")
    try:
        value = float(number) * UNITS[compact[len(number) :]]
    except (ValueError, KeyError) as error:
        raise InputError(f"size {text!r} is not a number of bytes, such as 10MB or 9.5MiB") from error
    if not 0 < value < 1e15:
        raise InputError(f"size {text!r} is not a number of bytes, such as 10MB or 9.5MiB")
    return int(value)


def kept_shares(table_VH: Tensor, widths: Sequence[int], frequency_V: Tensor | None = None) -> dict[int, float]:
    """Share of the table's (weighted) squared norm that each bottleneck width keeps."""
    import torch

    table = table_VH.detach().double()
    weighted = table if frequency_V is None else table * frequency_V.double()[:, None]
    spectrum = torch.linalg.eigvalsh(table.T @ weighted).flip(0).clamp(min=0)
    total = float(spectrum.sum())
    return {width: float(spectrum[:width].sum()) / total for width in widths}


def _curve(share: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(KEPT_CURVE):
        if share <= x1:
            return y0 + (y1 - y0) * (share - x0) / (x1 - x0)
    return 1.0


def _dropped_by_code(vocabulary: int, code: tuple[int, int] | None) -> float:
    """Share of the table's variance that a fitted code drops; a transplant that keeps its own code drops none."""
    if code is None:
        return 0.0
    share = code[0] / vocabulary
    for (x0, y0), (x1, y1) in pairwise(CODE_CURVE):
        if share <= x1:
            return y0 + (y1 - y0) * (share - x0) / (x1 - x0)
    return 0.0


def choices(base: StudentConfig) -> tuple[list[int], list[int | None], list[tuple[int, int]]]:
    """Vocabularies, bottlenecks and (unit, repeats) to try for a base."""
    sizes = [v for v in (8_000, 12_000, 16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000) if v < base.vocabulary]
    widths: list[int | None] = [e for e in (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512) if e < base.table_width]
    layers = base.unit * base.repeats
    stacks = [
        (unit, repeats)
        for unit in (1, 2, 3, 4, 5, 6, 8, 9, 12, 18, 24)
        for repeats in (1, 2, 3, 4, 6)
        if unit <= base.unit and unit * repeats <= layers
    ]
    return [*sizes, base.vocabulary], [*widths, base.bottleneck], stacks


def enumerate_students(
    base: StudentConfig,
    budget_bytes: int,
    *,
    runtime: str = "executorch",
    max_length: int | None = None,
    place: str = "word",
    kept: dict[int, float] | None = None,
    codes: Sequence[tuple[int, int]] = (),
) -> list[Candidate]:
    """Every combination that fits `budget_bytes`, least expected loss first, the Pareto set marked.

    `kept` maps bottleneck widths to the share of the model's own table that they keep; `codes` are pairs of base rows
    and links of coded tables, which stand in place of the table of every vocabulary that is larger than the base.

    Raises:
        InputError: nothing fits.
    """
    vocabularies, widths, stacks = choices(base)
    layers = base.unit * base.repeats
    tables: list[tuple[int, tuple[int, int] | None]] = [(size, None) for size in vocabularies]
    if codes and not base.coded:
        tables = [(size, code) for size in vocabularies for code in codes if code[0] < size]
    found = []
    smallest = None
    for width in widths:
        share = 1.0
        if width is not None and width != base.bottleneck:
            share = kept[width] if kept and width in kept else _curve(width / base.hidden)
        for unit, repeats in stacks:
            loss = BOTTLENECK_POINTS * (1 - share) + HALVING_POINTS * log2(layers / unit)
            loss += DEPTH_POINTS * log2(layers / (unit * repeats))
            for vocabulary, code in tables:
                changes = Cut(
                    bottleneck=None if width == base.bottleneck else width,
                    unit=unit,
                    repeats=repeats,
                    vocabulary=vocabulary,
                    place=place,  # type: ignore[arg-type]
                    max_length=max_length,
                    base_rows=code[0] if code else None,
                    links=code[1] if code else None,
                )
                config = cut(base, changes)
                macs = macs_per_token(config)
                for precision in precisions_for(config):
                    size = predict_bytes(config, plan_for(config, precision), runtime)
                    smallest = size if smallest is None else min(smallest, size)
                    if size > budget_bytes:
                        continue
                    points = loss + VOCABULARY_POINTS * log2(base.vocabulary / vocabulary) + PRECISION_POINTS[precision]
                    points += BOTTLENECK_POINTS * _dropped_by_code(vocabulary, code)
                    found.append((size, macs, round(points, 3), config, precision))
    if not found:
        raise InputError(f"no student of this model fits {budget_bytes} bytes; the smallest takes {smallest}")
    best = pareto([row[:3] for row in found])
    rows = [_candidate(row, on_front) for row, on_front in zip(found, best, strict=True)]
    return sorted(rows, key=lambda row: (row.expected_loss, row.bytes, row.macs_per_token))


def _candidate(row: tuple[int, int, float, StudentConfig, str], on_front: bool) -> Candidate:
    from msdc.compress.student.shapes import parameter_counts

    size, macs, points, config, precision = row
    return Candidate(
        vocabulary=config.vocabulary,
        bottleneck=config.bottleneck,
        base_rows=config.base_rows,
        links=config.links,
        unit=config.unit,
        repeats=config.repeats,
        precision=precision,
        needs_qat=precision == "int4-embed4",
        bytes=size,
        macs_per_token=macs,
        parameters=parameter_counts(config)["total"],
        expected_loss=points,
        pareto=on_front,
    )
