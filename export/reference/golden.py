"""Golden texts and vectors, which every device must reproduce.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.errors import InputError
from msdc.export.manifest import GOLDEN_FILE
from msdc.files import read_json, write_json
from msdc.text.quickstart import golden_lines


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
    """float32 [N, D] of what `encode_vectors` wrote.

    Raises:
        InputError: not base64, not `count` rows of `width`, or a number that is not finite.
    """
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
    width = next(iter(vectors.values())).shape[1]
    value = {
        "texts": list(texts),
        "ids": [list(row) for row in ids],
        "width": width,
        "vectors": {name: encode_vectors(sentence_ND) for name, sentence_ND in vectors.items()},
    }
    write_json(folder / GOLDEN_FILE, value)


def read_golden(folder: str | Path) -> dict[str, Any]:
    """`texts`, `ids` and `vectors` (name -> float32 [N, D]) of a bundle.

    Raises:
        InputError: missing or damaged.
    """
    path = Path(folder) / GOLDEN_FILE
    value = read_json(path)
    try:
        texts, ids, width = list(value["texts"]), [list(map(int, row)) for row in value["ids"]], int(value["width"])
        vectors = {name: decode_vectors(text, len(texts), width) for name, text in value["vectors"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not golden vectors of a bundle ({error})") from error
    return {"texts": texts, "ids": ids, "width": width, "vectors": vectors}
