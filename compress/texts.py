"""Sentences for counting, calibration and proofs: one a line, or every cell of a tab-separated file."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from msdc.errors import InputError

QUICKSTART = Path(__file__).resolve().parent.parent / "msdc" / "data" / "quickstart" / "parallel.tsv"


def read_texts(path: str | Path, limit: int | None = None) -> list[str]:
    """Non-empty texts of a UTF-8 file (`.gz` too), at most `limit`.

    Raises:
        InputError: no such file, not UTF-8, damaged, or empty.
    """
    path = Path(path)
    texts: list[str] = []
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as lines:
            for line in lines:
                texts += [cell.strip() for cell in line.rstrip("\n").split("\t") if cell.strip()]
                if limit is not None and len(texts) >= limit:
                    break
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as UTF-8 text ({error})") from error
    if not texts:
        raise InputError(f"{path}: holds no text")
    return texts[:limit]


def quickstart_texts(languages: Sequence[str] = (), limit: int | None = None) -> list[str]:
    """Sentences of the embedded corpus, in `languages` where it has them (all of its languages otherwise).

    Taken row by row across the languages, so that a limit keeps them balanced.
    """
    with open(QUICKSTART, encoding="utf-8") as lines:
        header, *rows = [line.rstrip("\n").split("\t") for line in lines if line.strip()]
    columns = [index for index, language in enumerate(header) if language in languages] or list(range(len(header)))
    texts = [row[index] for row in rows for index in columns]
    if limit is None or limit >= len(texts):
        return texts
    # Whole rows repeat one meaning in every language; spread the choice instead.
    step = len(texts) / limit
    return [texts[int(position * step)] for position in range(limit)]
