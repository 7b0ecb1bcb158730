"""Golden texts and vectors, which every device must reproduce, and the gates of an export that rest on them: parity
with the float model, finite vectors, equal tokenizers.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.errors import GateError, InputError
from msdc.export.manifest import GOLDEN_FILE, FloatScore, Parity
from msdc.files import read_json, write_json
from msdc.scores import cosine_rows, spearman
from msdc.text.quickstart import GRADED_PAIRS, golden_lines
from msdc.text.scored_pairs import read_pairs
from msdc.text.tokenizer import JSON_FILE, MODEL_FILE, FastTokenizer, PieceTokenizer, write_fast_copy

MIN_LOW_BIT_SHARE = 0.95


def golden_texts() -> list[str]:
    """Texts in many scripts and edge cases: empty, blank, unusual spaces, combining marks, over-long."""
    corners = [
        "",
        " ",
        " \t \n ",
        "  two  leading and trailing spaces  ",
        "tab\tand\nnewline",
        "no-break\u00a0space, thin\u2009space, ideographic\u3000space",
        "zero\u200bwidth and soft\u00adhyphen",
        "cafe\u0301 and caf\u00e9",
        "\ufb01ne ligature, \uff26\uff35\uff2c\uff2c width, \u2460",
        "\u0627\u0644\u0633\u064e\u0651\u0644\u0627\u0645",
        "\u0130brahim Pa\u015fa, ILIK \u0131l\u0131k, STRASSE stra\u00dfe",
        "\u0643\u0640\u062a\u0627\u0628 \u0623\u062d\u0645\u062f",
        "\U0001f469\u200d\U0001f52c \U0001f1f3\U0001f1f1 \U0001f44d\U0001f3fd",
        "\u2581 piece mark in text",
        "<s> </s> <pad> <unk> [CLS] [SEP]",
        "a",
        "x" * 300,
        "1234567890 " * 30 + "3.14 50%",
        " ".join(["much longer than any input"] * 200),
    ]
    return golden_lines() + corners


def encode_vectors(sentence_ND: np.ndarray) -> str:
    """Base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(sentence_ND, dtype="<f4").tobytes()).decode("ascii")


def decode_vectors(text: str, count: int, width: int) -> np.ndarray:
    """float32 [N, D] of what `encode_vectors` wrote."""
    try:
        raw = base64.b64decode(text, validate=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"golden vectors are not base64: {error}") from error
    if len(raw) != 4 * count * width:
        raise InputError(f"golden vectors hold {len(raw)} bytes, not {count} rows of {width} float32")
    rows_ND = np.frombuffer(raw, dtype="<f4").reshape(count, width).astype(np.float32)
    if not np.isfinite(rows_ND).all():
        raise InputError("golden vectors hold NaN or infinity")
    return rows_ND


def write_golden(
    folder: Path, texts: Sequence[str], ids: Sequence[Sequence[int]], vectors: dict[str, np.ndarray]
) -> None:
    """Write `golden.json`; `vectors` has "float" and one entry per runtime, each [N, D]."""
    encoded = {name: encode_vectors(sentence_ND) for name, sentence_ND in vectors.items()}
    value = {"texts": list(texts), "ids": [list(row) for row in ids], "width": vectors["float"].shape[1]}
    write_json(folder / GOLDEN_FILE, value | {"vectors": encoded})


def read_golden(folder: str | Path) -> dict[str, Any]:
    """`texts`, `ids`, `width` and `vectors` (name -> float32 [N, D]) of a bundle."""
    path = Path(folder) / GOLDEN_FILE
    value = read_json(path)
    try:
        texts, ids, width = list(value["texts"]), [list(map(int, row)) for row in value["ids"]], int(value["width"])
        vectors = {name: decode_vectors(text, len(texts), width) for name, text in value["vectors"].items()}
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not golden vectors of a bundle ({error})") from error
    return {"texts": texts, "ids": ids, "width": width, "vectors": vectors}


def float_scores(vectors: Callable[[list[str]], np.ndarray]) -> list[FloatScore]:
    """Scores of a float model on the shipped graded pairs, with which a measured artifact is compared.

    `vectors` encodes texts, float32 [N, D]. A model that gives all pairs one cosine has none.
    """
    pairs = read_pairs(GRADED_PAIRS, "graded-pairs")
    sentence_ND = vectors(pairs.texts())
    cosines_N = cosine_rows(sentence_ND[: len(pairs)], sentence_ND[len(pairs) :])
    try:
        score = spearman(cosines_N, pairs.gold_N)
    except InputError:
        return []
    return [FloatScore(task="sts", name=pairs.name, spearman=score, pairs=len(pairs))]


class Thresholds(BaseModel):
    """Thresholds for an artifact's golden vectors against the eager float model; None disables one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mean_cosine: float | None
    min_cosine: float | None
    max_abs: float | None = None
    length_error: float | None = None


FP32 = Thresholds(mean_cosine=0.99999, min_cosine=0.99999, max_abs=1e-4, length_error=1e-3)
# An error that lowers the cosine to 0.99 may also change the length by sqrt(2 (1 - 0.99)); to 0.97: by 0.24.
INT8 = Thresholds(mean_cosine=0.998, min_cosine=0.99, length_error=0.14)
# A 4-bit table costs about 0.002 of mean cosine on the real teacher's weights.
INT4 = Thresholds(mean_cosine=0.99, min_cosine=0.97, length_error=0.24)
# A normalised vector has length 1 at any precision: the last step is a division in float32.
UNIT_LENGTH_ERROR = 1e-3


def thresholds_for(dtypes: set[str], normalized: bool) -> Thresholds:
    """The thresholds of an artifact by the lowest precision among its weights; exact lengths if it normalises."""
    thresholds = INT4 if "int4" in dtypes else INT8 if "int8" in dtypes else FP32
    return thresholds.model_copy(update={"length_error": UNIT_LENGTH_ERROR}) if normalized else thresholds


def parity_cosines(reference_ND: np.ndarray, found_ND: np.ndarray) -> np.ndarray:
    """Cosines [N] in which two zero vectors are equal."""
    both_N = ~(reference_ND.any(axis=1) | found_ND.any(axis=1))
    return np.where(both_N, 1.0, cosine_rows(reference_ND, found_ND))


def length_error(reference_ND: np.ndarray, found_ND: np.ndarray) -> float:
    """Largest relative difference between the lengths of two rows; a cosine does not see it, a dot product does."""
    length_N, found_N = np.linalg.norm(reference_ND, axis=1), np.linalg.norm(found_ND, axis=1)
    some_N = length_N > 0
    return float(np.abs(found_N[some_N] / length_N[some_N] - 1).max(initial=0.0))


def farthest(reference_ND: np.ndarray, found_ND: np.ndarray, texts: Sequence[str]) -> str:
    """The text whose vectors are farthest apart, with its cosine, for the message of a failed gate."""
    cosines = parity_cosines(reference_ND, found_ND)
    row = int(cosines.argmin())
    return f"worst on golden text {row} {texts[row][:40]!r}, cosine {cosines[row]:.6f}"


def parity_of(
    reference_ND: np.ndarray, found_ND: np.ndarray, low_bit_share: float | None, texts: Sequence[str] = ()
) -> Parity:
    """Parity of `found_ND` with `reference_ND`, row by row.

    Raises:
        GateError: a vector of either is not finite; it names the text where `texts` are given.
    """
    for what, vectors_ND in (("float model", reference_ND), ("artifact", found_ND)):
        wrong_N = ~np.isfinite(vectors_ND).all(axis=1)
        if wrong_N.any():
            row = int(wrong_N.argmax())
            text = f" {texts[row][:40]!r}" if texts else ""
            raise GateError(f"golden text {row}{text}: the {what}'s vector holds NaN or infinity")
    cosines = parity_cosines(reference_ND, found_ND)
    # Unnormalised vectors are compared at the scale of a unit vector's numbers, or max_abs would mean nothing.
    unit = np.maximum(1.0, np.linalg.norm(reference_ND, axis=1, keepdims=True))
    return Parity(
        mean_cosine=round(float(cosines.mean()), 7),
        min_cosine=round(float(cosines.min()), 7),
        max_abs=float(f"{np.abs((reference_ND - found_ND) / unit).max():.3e}"),
        length_error=float(f"{length_error(reference_ND, found_ND):.3e}"),
        texts=len(reference_ND),
        low_bit_share=low_bit_share,
    )


def shortfalls(parity: Parity, thresholds: Thresholds) -> list[str]:
    """Thresholds that are not met, in words; empty when the gate passes. Comparisons are such that NaN never passes."""
    problems = []
    for name in ("mean_cosine", "min_cosine"):
        least, value = getattr(thresholds, name), getattr(parity, name)
        if least is not None and not value >= least:
            problems.append(f"{name.replace('_', ' ')} {value:.6f} below {least}")
    if thresholds.max_abs is not None and not parity.max_abs <= thresholds.max_abs:
        problems.append(f"max abs {parity.max_abs:.2e} above {thresholds.max_abs:.0e}")
    error, most = parity.length_error, thresholds.length_error
    if most is not None and error is not None and not error <= most:
        problems.append(f"a vector's length differs by {100 * error:.2g} % (at most {100 * most:.2g} %)")
    if parity.low_bit_share is not None and not parity.low_bit_share >= MIN_LOW_BIT_SHARE:
        problems.append(f"only {100 * parity.low_bit_share:.1f} % of weight bytes are 8-bit or less")
    return problems


def run_once(
    run: Callable[[list[list[int]]], np.ndarray], vocabulary: int, width: int, max_length: int, what: str
) -> None:
    """Execute a fresh artifact at lengths 1, 2 and the longest.

    Raises:
        GateError: a vector is missing, of another width, or not finite.
    """
    for length in sorted({1, min(2, max_length), max_length}):
        sentence_ND = run([[(7 * step + 3) % vocabulary for step in range(length)]])
        if sentence_ND.shape != (1, width) or not np.isfinite(sentence_ND).all():
            raise GateError(f"{what}: no finite vector of width {width} at length {length}")


def tokenizers_agree(tokenizer: PieceTokenizer, texts: list[str], max_length: int) -> None:
    """A `.model` and its `tokenizer.json` twin give the same ids on all `texts`.

    The twin is the one next to the model's file where there is one, else a fresh one.

    Raises:
        GateError: naming the first text on which they differ.
    """
    shipped_twin = tokenizer.path.parent / JSON_FILE
    with TemporaryDirectory(prefix="msdc-tokenizer-") as scratch:
        model, twin = Path(scratch) / MODEL_FILE, Path(scratch) / JSON_FILE
        model.write_bytes(tokenizer.content)
        if shipped_twin.is_file():
            twin.write_bytes(shipped_twin.read_bytes())
        else:
            write_fast_copy(model, twin)
        fast = FastTokenizer(twin).encode(texts, max_length)
    for text, model_ids, twin_ids in zip(texts, tokenizer.encode(texts, max_length), fast, strict=True):
        if model_ids != twin_ids:
            raise GateError(
                f"{MODEL_FILE} and {JSON_FILE} differ on {text[:40]!r}: ids {model_ids[:8]} and {twin_ids[:8]}"
            )
