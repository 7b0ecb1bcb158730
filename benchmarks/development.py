"""Development sets for benchmarks that train: STSb dev within and across languages, and FLORES dev both ways.

Shapes: N sentences, D width.
"""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from msdc.distill.data.graded import read_graded
from msdc.scores import cosine_rows, spearman
from msdc.text.answers import nearest_accuracy
from msdc.text.text_files import iterate_lines

Encode = Callable[[list[str]], np.ndarray]  # texts -> vectors [N, D]


def stsb_correlations(encode: Encode, data: Path, codes: Iterable[str], limit: int) -> dict[tuple[str, str], float]:
    """Spearman x 100 on `limit` evenly spread pairs, by the languages of the first and the second sentence."""
    files = {
        code: data / ("stsb/sts-dev.tsv.gz" if code == "en" else f"stsb-multi-mt/stsb-{code}-dev.csv.gz")
        for code in codes
    }
    pairs = {code: read_graded(str(path), limit=limit) for code, path in files.items()}
    vectors = {code: (encode(graded.first), encode(graded.second)) for code, graded in pairs.items()}
    return {
        (first, second): spearman(cosine_rows(vectors[first][0], vectors[second][1]), pairs[second].gold_N)
        for first, second in itertools.product(files, repeat=2)
    }


def flores_accuracies(encode: Encode, data: Path, codes: Iterable[str]) -> dict[str, float]:
    """How often a sentence of FLORES dev finds its translation from or to English, the mean of both x 100."""
    accuracies: dict[str, float] = {}
    english: list[str] = []
    english_ND = np.zeros((0, 0), np.float32)
    for code in codes:
        path = data / f"flores-dev/flores-dev.en-{code}.tsv.gz"
        sides = zip(*(line.split("\t")[:2] for _, line in iterate_lines(path)), strict=True)
        sources, targets = (list(side) for side in sides)
        if sources != english:  # the English side is the same of every language
            english, english_ND = sources, encode(sources)
        accuracies[code] = float(np.mean(nearest_accuracy(english_ND, encode(targets), english, targets)))
    return accuracies
