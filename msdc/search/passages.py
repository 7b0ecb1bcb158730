"""Passages of documents, encoded in 8 bits.

Shapes: N distinct texts, D width.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from msdc.encoders.encoder import SentenceEncoder
from msdc.scores import int8_rows, unit_rows
from msdc.search.blocks import Passage
from msdc.search.cache import VectorCache
from msdc.text.passages import passage_texts, passages, title_prefix
from msdc.text.tokenizer import Reader

__all__ = ["PassageEncoder", "passages", "token_counter"]

Passages = dict[tuple[str, str], list[Passage]]  # of documents (title, text)
Quantized = tuple[float | None, bytes | None]  # scale and vector; None of a text that the model cannot read


class StoredPassages(NamedTuple):
    """What an index has of documents that are written: passages of equal ones, and vectors by the text of a passage."""

    documents: Passages
    vectors: dict[str, Quantized]


def token_counter(model: SentenceEncoder) -> tuple[Callable[[Sequence[str]], list[int]], int]:
    """A function that counts tokens of texts, and how many the model reads after its own prompt: for `passages`."""
    return model.token_counter()


class IndexFacts(NamedTuple):
    """What an index stores of its model; None: not stored. `cosines` is JSON."""

    fingerprint: str | None
    name: str | None
    source: str | None
    cosines: str | None


def model_facts(model: SentenceEncoder, identified: bool = True) -> IndexFacts:
    """The facts of a model; without its identity where an index is not opened again."""
    spread = model.cosines()
    cosines = None if spread is None else json.dumps(spread)
    if not identified:
        return IndexFacts(None, None, None, cosines)
    return IndexFacts(model.fingerprint(), model.name, model.source, cosines)


class PassageEncoder:
    """The passages of documents by `model`; with `keep` also from and to the user's cache.

    `count` gives the tokens of texts, `most` how many the model reads, `reader` finds texts that it cannot read.
    """

    def __init__(self, model: SentenceEncoder, keep: bool) -> None:
        self.model = model
        self.count, self.most = token_counter(model)
        self.reader = Reader(model.tokenizer, model.max_length)
        self._cache = VectorCache(model, self.most) if keep else None

    def passages(
        self, documents: Sequence[tuple[str, str]], stored: StoredPassages | None = None
    ) -> tuple[Passages, set[tuple[str, str]]]:
        """The passages of documents (title, text), and the documents of which a passage had to be encoded."""
        ready = {} if stored is None else dict(stored.documents)
        if self._cache is not None:
            ready |= self._cache.get([document for document in documents if document not in ready])
        new, encoded = self._encoded(
            [document for document in documents if document not in ready], {} if stored is None else stored.vectors
        )
        if self._cache is not None:
            self._cache.put(new)
        return ready | new, encoded

    def prefix(self, title: str) -> str:
        """The title as it is put before a passage."""
        return title_prefix(title, self.count, self.most)

    def _encoded(
        self, documents: Sequence[tuple[str, str]], vectors: Mapping[str, Quantized]
    ) -> tuple[Passages, set[tuple[str, str]]]:
        if not documents:
            return {}, set()
        spans = passage_texts(documents, self.count, self.most)
        distinct = list(dict.fromkeys(text for parts in spans for _, _, text in parts if text not in vectors))
        known_N = ~self.reader.unread(distinct)
        vectors_ND = np.zeros((len(distinct), self.model.width), np.float32)
        if known_N.any():
            readable = [text for text, is_known in zip(distinct, known_N, strict=True) if is_known]
            vectors_ND[known_N] = unit_rows(self.model.encode(readable))
        codes_ND, _ = int8_rows(vectors_ND)
        # With this scale the rounded vector has length 1, so that no cosine exceeds 1.
        scales_N = 1 / np.linalg.norm(codes_ND.astype(np.float32), axis=1).clip(1e-12)
        # No vector for a passage that the model cannot read.
        new: dict[str, Quantized] = {
            text: (float(scale), codes.tobytes()) if codes.any() else (None, None)
            for text, scale, codes in zip(distinct, scales_N, codes_ND, strict=True)
        }
        quantized = {**vectors, **new}
        passages_by_document = {
            document: [Passage(start, end, *quantized[text]) for start, end, text in parts]
            for document, parts in zip(documents, spans, strict=True)
        }
        return passages_by_document, {
            document for document, parts in zip(documents, spans, strict=True) if any(text in new for *_, text in parts)
        }
