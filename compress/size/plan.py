"""What `msdc compress plan` does: from a name and a cut to sizes, or from a budget to candidates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from msdc.compress.size.estimate import Cut, SizePlan, cut, size_plan
from msdc.compress.size.search import Candidate, choices, enumerate_students, kept_shares, parse_bytes
from msdc.compress.student.config import StudentConfig
from msdc.compress.student.shapes import SHAPES
from msdc.errors import InputError

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

# What a search for coded tables tries where it is not told.
BASE_ROWS = (4_000, 8_000, 16_000, 32_000)
LINKS = (2, 3, 4, 5)


class PlanRequest(BaseModel):
    """A base (a model or the name of a shape) and what to change of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = None
    shape: str | None = None
    bottleneck: int | None = None
    unit: int | None = None
    repeats: int | None = None
    vocabulary: int | None = None
    max_length: int | None = None
    base_rows: int | None = None
    links: int | None = None
    place: Literal["word", "embedding"] = "word"
    runtime: str = "executorch"


def known_shapes() -> list[str]:
    """Names that --shape takes."""
    return sorted(SHAPES)


def _base(request: PlanRequest) -> tuple[str, StudentConfig, Student | None]:
    if request.shape is not None:
        if request.shape not in SHAPES:
            raise InputError(f"shape {request.shape!r} is unknown; known: {', '.join(known_shapes())}")
        return request.shape, SHAPES[request.shape], None
    from msdc.compress.student.io import open_student
    from msdc.encoders.folder import locate_model

    student = open_student(locate_model(str(request.model)))
    return str(request.model), student.config, student


def _positive(request: PlanRequest) -> None:
    for name in ("bottleneck", "unit", "repeats", "vocabulary", "max_length", "base_rows", "links"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} {value}: must be at least 1")


def run_plan(request: PlanRequest) -> SizePlan:
    """Sizes of one student.

    Raises:
        InputError: an unknown shape or model, or a cut that does not fit it.
    """
    _positive(request)
    name, base, _ = _base(request)
    names = ("bottleneck", "unit", "repeats", "vocabulary", "max_length", "place", "base_rows", "links")
    return size_plan(name, cut(base, Cut(**{key: getattr(request, key) for key in names})))


def _codes(request: PlanRequest) -> list[tuple[int, int]]:
    """Coded tables to try: none unless the request names base rows or links, as they need another training."""
    if request.base_rows is None and request.links is None:
        return []
    if request.links is not None and request.links not in LINKS:
        raise InputError(f"--links {request.links}: a coded row is a sum of 2 to 5 base rows")
    rows = BASE_ROWS if request.base_rows is None else (request.base_rows,)
    return [(base, links) for base in rows for links in (LINKS if request.links is None else (request.links,))]


def run_budget(request: PlanRequest, budget: str) -> list[Candidate]:
    """All students under `budget`, least expected loss first; what the request fixes is kept fixed.

    Raises:
        InputError: an unknown shape or model, a budget that is no size, or nothing fits.
    """
    _positive(request)
    size = parse_bytes(budget)
    _, base, student = _base(request)
    kept = None
    if student is not None:
        from msdc.compress.student.cut import wide_table

        kept = kept_shares(wide_table(student), [width for width in choices(base)[1] if width])
    found = enumerate_students(
        base,
        size,
        runtime=request.runtime,
        max_length=request.max_length,
        place=request.place,
        kept=kept,
        codes=_codes(request),
    )
    names = ("vocabulary", "bottleneck", "unit", "repeats", "base_rows", "links")
    fixed = {key: getattr(request, key) for key in names}
    return [row for row in found if all(value is None or getattr(row, key) == value for key, value in fixed.items())]
