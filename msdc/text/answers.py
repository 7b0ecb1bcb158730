"""Which texts answer a query, where queries and answers come in pairs and some of them are equal.

Shapes: N pairs, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdc.text.duplicates import normalise


def equal_form(text: str) -> str:
    """The form in which texts are compared as answers: the normal form of `msdc.text.duplicates`, if it has letters."""
    return normalise(text) or text


def right_answers(queries: Sequence[str], answers: Sequence[str], nearest_N: np.ndarray) -> np.ndarray:
    """Whether the answer in row `nearest_N` is one of those to the query, bool [N]; rows are pairs of query and answer.

    Equal queries share their answers, and equal answers are all right, as where many questions have one answer. Texts
    are equal if their `equal_form` is.
    """
    query_keys, answer_keys = (list(map(equal_form, side)) for side in (queries, answers))
    pairs = set(zip(query_keys, answer_keys, strict=True))
    nearest = zip(query_keys, nearest_N.tolist(), strict=True)
    return np.array([(query, answer_keys[row]) in pairs for query, row in nearest], dtype=bool)


def nearest_accuracy(
    source_ND: np.ndarray, target_ND: np.ndarray, sources: Sequence[str], targets: Sequence[str]
) -> tuple[float, float]:
    """Share (x 100) of texts whose nearest neighbour by cosine on the other side is right, in both directions.

    Right is a text that is paired with it in any of the rows (`right_answers`).

    Args:
        source_ND, target_ND: vectors of both sides.
        sources, targets: their texts.
    """
    source = source_ND / np.linalg.norm(source_ND, axis=1, keepdims=True).clip(1e-12)
    target = target_ND / np.linalg.norm(target_ND, axis=1, keepdims=True).clip(1e-12)
    similarity_NN = source @ target.T
    forward_N = right_answers(sources, targets, similarity_NN.argmax(1))
    backward_N = right_answers(targets, sources, similarity_NN.argmax(0))
    return 100.0 * float(forward_N.mean()), 100.0 * float(backward_N.mean())
