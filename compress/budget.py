"""Every student that fits a byte budget, ranked by expected loss.

`expected_loss` ranks candidates by published or measured losses, in Spearman points against the base model:

* bottleneck: `BOTTLENECK_POINTS` x the share of the token table's variance that it drops. The share is measured on
  the given model's own table; for a bare shape it follows `KEPT_CURVE`, measured on all-MiniLM-L6-v2.
* stored layers: `HALVING_POINTS` each time the unit is half the base's layers (Ding et al. 2022, table 2: 12 to 6 to 3
  layers cost 1.7 and 1.7 points with XLM-R, 3.7 and 4.3 with MiniLM).
* depth: fewer applied layers (unit x repeats below the base's) cost `DEPTH_POINTS` more per halving.
* vocabulary: `VOCABULARY_POINTS` each time it is halved.
* precision: the gates of an artifact: int8 0.3, an int4 table 0.3 more, int4 linears 0.6 more.

It ranks candidates and does not predict a score: train two or three from the Pareto set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, log2
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ByteSize, ConfigDict, TypeAdapter, ValidationError

from msdc.arguments import checked
from msdc.compress.size import (
    PROGRAM_BYTES,
    base_of,
    cut_config,
    macs_per_token,
    precisions_for,
    predict_bytes,
    require_positive,
)
from msdc.compress.student.config import StudentConfig, parameter_counts
from msdc.compress.student.plan import plan_for
from msdc.errors import InputError, did_you_mean
from msdc.scores import pareto

BOTTLENECK_POINTS = 15.0
HALVING_POINTS = 2.5
DEPTH_POINTS = 1.0
VOCABULARY_POINTS = 1.0
PRECISION_POINTS = {"fp32": 0.0, "int8": 0.3, "int8-embed4": 0.6, "int4-embed4": 1.2}
# Share of the frequency-weighted variance of all-MiniLM-L6-v2's table (384 wide) kept at these shares of the width.
KEPT_CURVE = (0.0, 64 / 384, 128 / 384, 192 / 384, 256 / 384, 1.0), (0.0, 0.55, 0.74, 0.85, 0.93, 1.0)
# Share of the frequency-weighted variance of msdc-mini's table that a fitted code of 2 to 4 nonzeros drops, by base
# rows per token; between 2 and 4 nonzeros it differs less than between one of these sizes and the next.
CODE_CURVE = (0.0, 1 / 8, 1 / 5, 1 / 4, 1.0), (1.0, 0.029, 0.024, 0.016, 0.0)
# Values that a budget tries besides the base's own.
VOCABULARIES = (8_000, 12_000, 16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000)
WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512)
UNITS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 18, 24)
REPEATS = (1, 2, 3, 4, 6)
BASE_ROWS = (4_000, 8_000, 16_000, 32_000)
NONZEROS = (2, 3, 4, 5)


class Candidate(BaseModel):
    """One student; `pareto`: no other one is at most as big, as slow and as lossy, and better in one of the three."""

    model_config = ConfigDict(frozen=True)

    vocabulary: int
    bottleneck: int | None
    base_rows: int | None = None
    nonzeros: int | None = None
    unit: int
    repeats: int
    precision: str
    needs_qat: bool
    bytes: int
    macs_per_token: int
    parameters: int
    expected_loss: float
    pareto: bool = False


@checked
def plan_budget(
    budget: str | int,
    model: str | Path | None = None,
    *,
    shape: str | None = None,
    runtime: str = "executorch",
    max_length: int | None = None,
    bottleneck: int | None = None,
    unit: int | None = None,
    repeats: int | None = None,
    vocabulary: int | None = None,
    base_rows: int | None = None,
    nonzeros: int | None = None,
    place: Literal["word", "embedding"] = "word",
) -> list[Candidate]:
    """Every student that fits a budget, least expected loss first, the Pareto set marked.

        from msdc.compress import plan_budget

        best = [student for student in plan_budget("10MB", "msdc-mini", unit=3) if student.pareto]

    Args:
        budget: bytes of the program, as 10MB or 9.5MiB.
        model: the model to cut the students from: a shipped name, a folder or a hub id.
        shape: a published shape by name, instead of `model`.
        runtime: runtime whose file the budget is for.
        max_length: longest input in tokens.
        bottleneck: this and the next ones as for `plan`; None tries several values.
        unit: stored layers.
        repeats: how often they are applied.
        vocabulary: rows of the table.
        base_rows: with this or `nonzeros` every candidate's table is coded.
        nonzeros: base rows per row.
        place: position of the bottleneck.

    Raises:
        InputError: no such model, an argument out of range, or no student fits.
    """
    fixed = {"bottleneck": bottleneck, "unit": unit, "repeats": repeats, "vocabulary": vocabulary}
    fixed |= {"base_rows": base_rows, "nonzeros": nonzeros}
    require_positive(max_length=max_length, **fixed)
    if runtime not in PROGRAM_BYTES:
        raise InputError(f"`runtime` {runtime!r} is unknown{did_you_mean(runtime, PROGRAM_BYTES)}")
    try:
        budget_bytes = TypeAdapter(ByteSize).validate_python(budget)
    except ValidationError as error:
        raise InputError(f"size {budget!r} is not a number of bytes, such as 10MB or 9.5MiB") from error
    _, base, student = base_of(model, shape)
    kept_by_width: dict[int, float] = {}
    if student is not None:
        from msdc.compress.cut import kept_shares, wide_table

        kept_by_width = kept_shares(wide_table(student), [width for width in WIDTHS if width < base.table_width])
    codes: list[tuple[int, int]] = []
    if base_rows is not None or nonzeros is not None:
        if nonzeros not in (None, *NONZEROS):
            raise InputError(f"`nonzeros` {nonzeros}: a coded row is a sum of 2 to 5 base rows")
        codes = list(product([base_rows] if base_rows else BASE_ROWS, [nonzeros] if nonzeros else NONZEROS))
    fixed = {name: value for name, value in fixed.items() if value is not None}
    candidates: list[Candidate] = []
    smallest = inf
    for cut, points in _cuts(base, kept_by_width, codes):
        config = cut_config(base, **cut, place=place, max_length=max_length)
        if any(getattr(config, name) != value for name, value in fixed.items()):
            continue
        for precision in precisions_for(config):
            size = predict_bytes(config, plan_for(config, precision), runtime)
            smallest = min(smallest, size)
            if size <= budget_bytes:
                candidate = Candidate(
                    **{name: getattr(config, name) for name in cut},
                    precision=precision,
                    needs_qat=precision == "int4-embed4",
                    bytes=size,
                    macs_per_token=macs_per_token(config),
                    parameters=parameter_counts(config)["total"],
                    expected_loss=round(points + PRECISION_POINTS[precision], 3),
                )
                candidates.append(candidate)
    if not candidates and smallest == inf:
        raise InputError(f"no candidate has {', '.join(f'`{name}` {value}' for name, value in fixed.items())}")
    if not candidates:
        raise InputError(f"no student of this model fits {budget_bytes} bytes; the smallest takes {smallest}")
    front = pareto([(row.bytes, row.macs_per_token, row.expected_loss) for row in candidates])
    candidates = [row.model_copy(update={"pareto": best}) for row, best in zip(candidates, front, strict=True)]
    return sorted(candidates, key=lambda row: (row.expected_loss, row.bytes, row.macs_per_token))


def _cuts(
    base: StudentConfig, variance_by_width: Mapping[int, float], codes: Sequence[tuple[int, int]]
) -> Iterator[tuple[dict[str, Any], float]]:
    """Every combination of arguments of `cut_config`, with its expected loss before quantization.

    `variance_by_width` maps bottleneck widths to the share of the model's own table that they keep; `codes` are pairs
    of base rows and nonzeros of coded tables, which replace the table of every vocabulary that is larger than the base.
    """
    layers = base.unit * base.repeats
    shares: dict[int | None, float] = {
        width: variance_by_width.get(width, float(np.interp(width / base.hidden, *KEPT_CURVE)))
        for width in WIDTHS
        if width < base.table_width and width != base.bottleneck
    }
    # None keeps the base's own width.
    shares[None] = 1.0
    stacks = [
        (unit, repeats) for unit in UNITS for repeats in REPEATS if unit <= base.unit and unit * repeats <= layers
    ]
    vocabularies = [*(size for size in VOCABULARIES if size < base.vocabulary), base.vocabulary]
    tables: list[tuple[int, int | None, int | None]] = [(size, None, None) for size in vocabularies]
    if codes and not base.coded:
        tables = [(size, rows, nonzeros) for size in vocabularies for rows, nonzeros in codes if rows < size]
    for (width, share), (unit, repeats), (vocabulary, rows, nonzeros) in product(shares.items(), stacks, tables):
        points = BOTTLENECK_POINTS * (1 - share) + HALVING_POINTS * log2(layers / unit)
        points += DEPTH_POINTS * log2(layers / (unit * repeats))
        points += VOCABULARY_POINTS * log2(base.vocabulary / vocabulary)
        if rows is not None:
            points += BOTTLENECK_POINTS * float(np.interp(rows / vocabulary, *CODE_CURVE))
        cut = {"unit": unit, "repeats": repeats, "vocabulary": vocabulary}
        yield cut | {"bottleneck": width, "base_rows": rows, "nonzeros": nonzeros}, points
