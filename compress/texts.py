"""Sentences for counting, calibration and proofs, and how often a table's rows are used.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from msdc.errors import InputError
from msdc.text.quickstart import parallel_table
from msdc.text.tabular import iterate_cells
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, Tokenizer

if TYPE_CHECKING:
    from msdc.encoders.encoder import Encoder

# Weight of rows that do not occur in the corpus: a few hundred sentences use only a few thousand rows.
SMOOTHING = 0.1
# Tokens of an average sentence: a special id occurs once in each.
TOKENS_PER_SENTENCE = 20


def read_texts(path: str | Path, limit: int | None = None) -> list[str]:
    """Texts of a file of any format that training reads: every cell with a letter; at most `limit`."""
    texts = [cell.strip() for _, cell in islice(iterate_cells(Path(path)), limit)]
    if not texts:
        raise InputError(f"{path}: contains no text")
    return texts


def quickstart_texts(languages: Sequence[str] = (), limit: int | None = None) -> list[str]:
    """Sentences of the embedded corpus in `languages`, or in all of its languages if it has none of these.

    They are taken row by row across the languages, so that a limit keeps the languages balanced.
    """
    header, rows = parallel_table()
    columns = [index for index, language in enumerate(header) if language in languages] or list(range(len(header)))
    texts = [row[index] for row in rows for index in columns]
    # Whole rows repeat one meaning in every language, so spread the choice.
    step = max(1.0, len(texts) / (limit or len(texts)))
    return [texts[int(position * step)] for position in range(min(limit or len(texts), len(texts)))]


def row_frequency(encoder: Encoder, vocabulary: int, corpus: str | Path | None) -> tuple[Tensor | None, str]:
    """(frequencies [V] of a corpus, else the vocabulary's own, else None; their source, for the model card)."""
    if corpus is not None:
        texts = read_texts(corpus)
        return corpus_frequency(encoder.tokenizer, texts, vocabulary, encoder.max_length), Path(corpus).name
    frequency_V = own_frequency(encoder.tokenizer, vocabulary)
    return frequency_V, "uniform (a corpus improves them)" if frequency_V is None else "the vocabulary's own"


def corpus_frequency(
    tokenizer: Tokenizer, texts: Sequence[str], vocabulary: int, max_length: int, smoothing: float = SMOOTHING
) -> Tensor:
    """Counts of the rows that `texts` use, plus `smoothing`, float32 [V]."""
    counts_V = torch.full((vocabulary,), smoothing)
    for start in range(0, len(texts), 4096):
        rows = tokenizer.encode(list(texts[start : start + 4096]), max_length)
        ids = torch.tensor([index for row in rows for index in row], dtype=torch.int64)
        counts_V += torch.bincount(ids, minlength=vocabulary)
    return counts_V


def own_frequency(tokenizer: Tokenizer, vocabulary: int) -> Tensor | None:
    """Frequencies [V] from the scores of a unigram vocabulary (log probabilities); None for any other."""
    scores: dict[int, float] = {}
    if isinstance(tokenizer, PieceTokenizer):
        model = tokenizer.processor
        for index in range(tokenizer.size):
            if not (model.is_control(index) or model.is_unknown(index) or model.is_unused(index)):
                scores[index] = model.get_score(index)
    elif isinstance(tokenizer, FastTokenizer):
        tokens = (tokenizer.parsed().get("model") or {}).get("vocab")
        if isinstance(tokens, list):
            scores = {index: float(score) for index, (_, score) in enumerate(tokens) if score < 0}
    if min(scores.values(), default=0) >= 0:
        return None
    frequency_V = torch.zeros(vocabulary)
    for index, score in scores.items():
        if index < vocabulary:
            frequency_V[index] = math.exp(score)
    if not float(frequency_V.sum()) > 0:
        return None
    frequency_V = frequency_V / float(frequency_V.sum()) + 1e-3 / vocabulary
    for index in tokenizer.encode([""], 8)[0]:
        frequency_V[index] = 1 / TOKENS_PER_SENTENCE
    return frequency_V
