"""Training text: corpora as rows, the shuffled stream, batches."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One training example; plain text has an empty target.

    Triples have `negatives` (premise, entailment, contradiction; or query, answer, other texts). Labelled pairs have a
    `label`: a class 0, 1, 2 (NLI), or a similarity 0 .. 1. `domain` is the number of the corpus in the recipe.
    """

    source: str
    target: str
    language: str
    negatives: tuple[str, ...] = ()
    domain: int = 0
    label: float | None = None
