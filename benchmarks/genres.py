"""What teaching wins and loses by kind of text: students side by side on the genres of STSb dev.

    msdc distill msdc-mini:short --data DATA -o RUN
    msdc distill msdc-mini:short --set stages.train-student.objective=multilingual_mse \\
        --set stages.train-student.start_share=0 --data DATA -o ALONE
    python benchmarks/genres.py --data DATA --student untaught=RUN/student-start --student taught=RUN/student \\
        --student 'error alone=ALONE/student' --write docs/results/teaching.md

Within a language: both sentences of a pair; across: English with the other language, both directions. Spearman x 100,
mean over the languages. Only development sets are read.
"""

import functools
import sys
from pathlib import Path

import numpy as np
import torch
from development_sets import DevelopmentSets, genres
from results_page import options_for, table, write_page

from msdc import load_encoder

GENRES = ("all", "captions", "forums", "news")
LEGEND = (
    "STSb dev by genre: 625 pairs of captions, 375 of forums, 500 of news. Within: mean of seven languages; "
    "across: English with each of the six others, both directions. News (WMT): share of 400 sentences whose "
    "nearest neighbour is their translation, mean of five languages. Float weights."
)


def scores(folder: str, data: Path) -> dict[str, float]:
    """Spearman x 100 by `within GENRES` and `across GENRES`, accuracy x 100 on news."""
    genre_N, sets, encoder = np.array(genres(data)), DevelopmentSets(data), load_encoder(Path(folder))
    encode = functools.cache(lambda texts: encoder.encode(list(texts)))
    found = {}
    for genre in GENRES:
        rows_N = None if genre == "all" else np.flatnonzero(genre_N == f"main-{genre}")
        for part, value in sets.scores(lambda texts: encode(tuple(texts)), rows_N).items():
            found["news (WMT)" if part == "news" else f"{part} {genre}"] = value
    return found


def main() -> None:
    parser = options_for(__doc__, "teaching")
    parser.add_argument("--data", type=Path, required=True, help="the data folder")
    parser.add_argument("--student", action="append", required=True, metavar="NAME=FOLDER")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for name, _, folder in (text.partition("=") for text in options.student):
        rows[name] = scores(folder, options.data)
        print(name, {key: round(value, 1) for key, value in rows[name].items()}, file=sys.stderr, flush=True)
    parts = [LEGEND]
    for part in ("within", "across", "English"):
        keys = [f"{part} {genre}" for genre in GENRES] + ["news (WMT)"] * (part == "across")
        parts.append(
            table(("student", *keys), [(name, *(f"{row[k]:.1f}" for k in keys)) for name, row in rows.items()])
        )
    write_page(options.write, "What teaching wins, by kind of text", "students of msdc-mini's text",
               "\n\n".join(parts), "torch sentencepiece")  # fmt: skip


if __name__ == "__main__":
    main()
