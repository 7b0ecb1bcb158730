"""The gates of an export: parity with the float model, finite vectors, equal tokenizers.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.errors import GateError
from msdc.export.manifest import Parity
from msdc.scores import cosine_rows
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, FastTokenizer, PieceTokenizer, write_fast_copy

MIN_LOW_BIT_SHARE = 0.95


class Thresholds(BaseModel):
    """Thresholds for an artifact's golden vectors against the eager float model; None disables one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean_cosine: float | None
    min_cosine: float | None
    max_abs: float | None = None


FP32 = Thresholds(mean_cosine=0.99999, min_cosine=0.99999, max_abs=1e-4)
INT8 = Thresholds(mean_cosine=0.998, min_cosine=0.99)
# A 4-bit table costs about 0.002 of mean cosine on the real teacher's weights.
INT4 = Thresholds(mean_cosine=0.99, min_cosine=0.97)


def thresholds_for(dtypes: set[str]) -> Thresholds:
    """The thresholds of an artifact by the lowest precision among its weights."""
    return INT4 if "int4" in dtypes else INT8 if "int8" in dtypes else FP32


def measure(reference_ND: np.ndarray, found_ND: np.ndarray, low_bit_share: float | None) -> Parity:
    """Parity of `found_ND` with `reference_ND`, row by row.

    Raises:
        GateError: a vector of either is not finite.
    """
    for what, vectors_ND in (("float model", reference_ND), ("artifact", found_ND)):
        if not np.isfinite(vectors_ND).all():
            row = int(np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))[0])
            raise GateError(f"golden text {row}: the {what}'s vector holds NaN or infinity")
    cosines = cosine_rows(reference_ND, found_ND)
    # Unnormalised vectors are compared at the scale of a unit vector's numbers, or max_abs would mean nothing.
    unit = np.maximum(1.0, np.linalg.norm(reference_ND, axis=1, keepdims=True))
    return Parity(
        mean_cosine=round(float(cosines.mean()), 7),
        min_cosine=round(float(cosines.min()), 7),
        max_abs=float(f"{np.abs((reference_ND - found_ND) / unit).max():.3e}"),
        texts=len(reference_ND),
        low_bit_share=low_bit_share,
    )


def shortfalls(parity: Parity, wanted: Thresholds) -> list[str]:
    """Thresholds that are not met, in words; empty when the gate passes."""
    found = []
    if wanted.mean_cosine is not None and not parity.mean_cosine >= wanted.mean_cosine:
        found.append(f"mean cosine {parity.mean_cosine:.6f} below {wanted.mean_cosine}")
    if wanted.min_cosine is not None and not parity.min_cosine >= wanted.min_cosine:
        found.append(f"min cosine {parity.min_cosine:.6f} below {wanted.min_cosine}")
    if wanted.max_abs is not None and not parity.max_abs <= wanted.max_abs:
        found.append(f"max abs {parity.max_abs:.2e} above {wanted.max_abs:.0e}")
    if parity.low_bit_share is not None and not parity.low_bit_share >= MIN_LOW_BIT_SHARE:
        found.append(f"only {100 * parity.low_bit_share:.1f} % of weight bytes are 8-bit or less")
    return found


def run_once(
    run: Callable[[list[list[int]]], np.ndarray], vocabulary: int, width: int, max_length: int, what: str
) -> None:
    """Execute a fresh artifact at lengths 1, 2 and the longest.

    Raises:
        GateError: a vector is missing, of another width, or not finite.
    """
    for length in sorted({1, min(2, max_length), max_length}):
        ids = [(7 * step + 3) % vocabulary for step in range(length)]
        sentence_ND = run([ids])
        if sentence_ND.shape != (1, width) or not np.isfinite(sentence_ND).all():
            raise GateError(f"{what}: no finite vector of width {width} at length {length}")


def tokenizers_agree(model_file: Path, texts: list[str], max_length: int, scratch: Path) -> None:
    """The `.model` and its `tokenizer.json` twin give the same ids on all `texts`; the twin is left in `scratch`.

    The twin is the one beside `model_file` where there is one, else a fresh one.

    Raises:
        GateError: naming the first text on which they differ.
    """
    twin = scratch / JSON_FILE
    beside = model_file.parent / JSON_FILE
    if beside.is_file():
        twin.write_bytes(beside.read_bytes())
    else:
        write_fast_copy(model_file, twin)
    pieces = PieceTokenizer(model_file).encode(texts, max_length)
    fast = FastTokenizer(twin).encode(texts, max_length)
    for text, one, other in zip(texts, pieces, fast, strict=True):
        if one != other:
            raise GateError(f"{MODEL_FILE} and {JSON_FILE} differ on {text[:40]!r}: ids {one[:8]} and {other[:8]}")
