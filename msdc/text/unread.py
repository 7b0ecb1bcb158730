"""Texts that a model cannot read: most of their tokens stand for characters that its vocabulary does not have.

All such texts have nearly the same vector, whatever they say.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from msdc.text.tokenizer import Tokenizer

# Letters of two scripts of antiquity: what both become is what any unknown character becomes. Where a vocabulary has
# them, or pieces for single bytes, little or nothing is common to both, and every text counts as read.
PROBES = ("\U00012000", "\U000103a0")
MOST = 0.5


class Reader:
    """Tells which texts a tokenizer has pieces for."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        empty, one, other = tokenizer.encode(["", *PROBES], max_length)
        self._special = set(empty)
        self._unknown = (set(one) & set(other)) - self._special

    def unread(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """For each text whether more than half of its tokens stand for unknown characters, bool [N]."""
        if not self._unknown:
            return np.zeros(len(texts), dtype=np.bool_)
        return np.array(
            [self._mostly_unknown(row) for row in self._tokenizer.encode(texts, self._max_length)], np.bool_
        )

    def _mostly_unknown(self, row: Sequence[int]) -> bool:
        tokens = [token for token in row if token not in self._special]
        return sum(token in self._unknown for token in tokens) > MOST * len(tokens)
