"""What teaching wins and loses by kind of text: students side by side on the genres of STSb dev.

    msdc distill msdc-mini:short --sweep variant=everything,error-alone --data DATA -o SWEEP
    python benchmarks/genres.py --data DATA --student untaught=SWEEP/everything/student-start \\
        --student taught=SWEEP/everything/student --write docs/results/teaching.md

Within a language: both sentences of a pair; across: English with the other language, both directions. Spearman x 100,
mean over the languages. Only development sets are read.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from development_sets import DevelopmentSets, genres
from results_page import add_write_option, table, write_page

from msdc.encoders.encoder import Encoder, load_encoder

GENRES = {"main-captions": "captions", "main-forums": "forums", "main-news": "news"}
TRANSLATIONS = ("ar", "de", "es", "tr")  # of FLORES dev


def scores(encoder: Encoder, data: Path) -> dict[str, float]:
    """Spearman x 100 by `within GENRES` and `across GENRES`, accuracy x 100 on FLORES dev."""
    genre_N = np.array([GENRES[genre] for genre in genres(data)])
    sets, encode = DevelopmentSets(data, TRANSLATIONS), functools.cache(lambda texts: encoder.encode(list(texts)))
    found = {}
    for genre in ("all", *GENRES.values()):
        rows_N = None if genre == "all" else np.flatnonzero(genre_N == genre)
        for part, value in sets.scores(lambda texts: encode(tuple(texts)), rows_N).items():
            found["FLORES dev" if part == "flores" else f"{part} {genre}"] = value
    return found


def body(rows: Sequence[tuple[str, dict[str, float]]]) -> Iterator[str]:
    """The page."""
    yield (
        "STSb dev by genre: 625 pairs of captions, 375 of forums, 500 of news. Within: mean of seven languages; "
        "across: English with each of the six others, both directions. FLORES dev: share of 400 sentences whose "
        "nearest neighbour is their translation, mean of Arabic, German, Spanish and Turkish. Float weights."
    )
    for part in ("within", "across", "English"):
        extra = ["FLORES dev"] if part == "across" else []
        names = [*(f"{part} {genre}" for genre in ("all", *GENRES.values())), *extra]
        yield table(("student", *names), [(name, *(f"{row[key]:.1f}" for key in names)) for name, row in rows])


def main() -> None:
    """Score the students and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--student", action="append", required=True, metavar="NAME=FOLDER")
    add_write_option(parser, "teaching")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for text in options.student:
        name, _, folder = text.partition("=")
        rows.append((name, scores(load_encoder(Path(folder)), options.data)))
        print(name, {key: round(value, 1) for key, value in rows[-1][1].items()}, flush=True)
    if options.write:
        write_page(options.write, "What teaching wins, by kind of text", "students of msdc-mini's text",
                   "\n\n".join(body(rows)), libraries=("torch", "sentencepiece"))  # fmt: skip


if __name__ == "__main__":
    main()
