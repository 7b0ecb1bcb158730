"""How often each table row is used: what weights the bottleneck's SVD.

Shapes: V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from msdc.files import read_json
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, Tokenizer

# Rows that a corpus never met still get a small say; a few hundred sentences know only a few thousand rows.
SMOOTHING = 0.1
# A special id stands in every sentence; a sentence has about this many pieces.
PIECES_A_SENTENCE = 20


def corpus_frequency(tokenizer: Tokenizer, texts: Sequence[str], vocabulary: int, max_length: int) -> Tensor:
    """Counts of the rows that `texts` use, smoothed, float32 [V]."""
    counts_V = torch.full((vocabulary,), SMOOTHING)
    for start in range(0, len(texts), 4096):
        rows = tokenizer.encode(list(texts[start : start + 4096]), max_length)
        ids = torch.tensor([index for row in rows for index in row], dtype=torch.int64)
        counts_V += torch.bincount(ids, minlength=vocabulary)
    return counts_V


def own_frequency(tokenizer: Tokenizer, vocabulary: int) -> Tensor | None:
    """Frequencies [V] that a unigram vocabulary knows by itself (its scores are log probabilities), else None."""
    scores: list[tuple[int, float]] = []
    if isinstance(tokenizer, PieceTokenizer):
        model = tokenizer.processor
        normal = [
            i for i in range(tokenizer.size) if not (model.is_control(i) or model.is_unknown(i) or model.is_unused(i))
        ]
        scores = [(i, model.get_score(i)) for i in normal]
        special = [tokenizer.bos_id, tokenizer.eos_id]
    elif isinstance(tokenizer, FastTokenizer):
        found = _unigram_scores(tokenizer.path)
        if found is None:
            return None
        scores = [(index, score) for index, score in found if score < 0]
        special = tokenizer.encode([""], 8)[0]
    if not scores or min(score for _, score in scores) >= 0:
        return None
    frequency_V = torch.zeros(vocabulary)
    for index, score in scores:
        if index < vocabulary:
            frequency_V[index] = math.exp(score)
    total = float(frequency_V.sum())
    if not total > 0:
        return None
    frequency_V = frequency_V / total + 1e-3 / vocabulary
    for index in special:
        frequency_V[index] = 1 / PIECES_A_SENTENCE
    return frequency_V


def _unigram_scores(path: Path) -> list[tuple[int, float]] | None:
    model = read_json(path, 128 * 1024 * 1024).get("model") or {}
    if not isinstance(model.get("vocab"), list):
        return None
    return [(index, float(score)) for index, (_, score) in enumerate(model["vocab"])]
