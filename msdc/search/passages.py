"""Split documents into passages that fit the model, and encode these in 8 bits.

A passage is a sentence, or short neighbours together: the best sentence of a paragraph finds it better than the
paragraph's own vector does (docs/results/search.md). Nothing is truncated: a sentence that is too long for the model is
cut in the middle, and its halves again, until every part fits.

Shapes: N distinct texts, D width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from msdc.encoders.encoder import SentenceEncoder
from msdc.scores import unit_rows
from msdc.search.cache import VectorCache
from msdc.search.vectors import Passage
from msdc.text.tokenizer import Reader

Span = tuple[int, int]  # first character, one past the last
Passages = dict[tuple[str, str], list[Passage]]  # of documents (title, text)
# The lookbehind of the last keeps a long run of blanks linear.
END = re.compile(r"(?<=[.!?…؟।])[\"'”’»)\]]*\s+|(?<=[。！？])|(?<!\s)\s*\n\s*")
# Tokens: a sentence shorter than the first number (a heading, "Yes.", "e.g.") joins its neighbour, up to the second.
SHORT, JOINED = 8, 32
TITLE_SHARE = 3  # a title has at most a third of a passage's tokens
# Relevance of a document: bm25 + WEIGHT x cosine of its best passage. Flat between 10 and 30 on the development sets.
WEIGHT = 20.0


def sentence_spans(text: str) -> list[Span]:
    """The sentences of a text, which end at their marks and at line ends, without the blanks around them."""
    spans, start = [], 0
    for end, following in [*((match.start(), match.end()) for match in END.finditer(text)), (len(text), len(text))]:
        part = text[start:end]
        if part.strip():
            left = len(part) - len(part.lstrip())
            spans.append((start + left, start + left + len(part.strip())))
        start = following
    return spans


def _halves(text: str, span: Span) -> tuple[Span, Span]:
    """A span cut at the blank nearest to its middle, else in the middle."""
    start, end = span
    middle = (start + end) // 2
    blanks = [at for at in (text.rfind(" ", start + 1, middle), text.find(" ", middle, end - 1)) if at > 0]
    cut = min(blanks, key=lambda at: abs(at - middle), default=middle)
    return (start, cut), (cut, end)


def passages(
    texts: Sequence[str], count: Callable[[Sequence[str]], list[int]], most: int | Sequence[int]
) -> list[list[Span]]:
    """The passages of each text, in order; none for an empty text.

    Args:
        texts: documents of any length.
        count: a function from texts to their numbers of tokens, without special ids.
        most: maximum tokens of a passage, for all texts or for each.
    """
    limits = [most] * len(texts) if isinstance(most, int) else most
    spans = [sentence_spans(text) for text in texts]
    whole: list[list[tuple[Span, int]]] = [[] for _ in texts]
    todo = [(number, span) for number, found in enumerate(spans) for span in found]
    while todo:
        cut = []
        counts = count([texts[number][start:end] for number, (start, end) in todo])
        for (number, span), tokens in zip(todo, counts, strict=True):
            if tokens <= limits[number] or span[1] - span[0] < 2:
                whole[number].append((span, tokens))
            else:
                cut += [(number, half) for half in _halves(texts[number], span)]
        todo = cut
    return [_joined(sorted(found), limit) for found, limit in zip(whole, limits, strict=True)]


def _joined(parts: list[tuple[Span, int]], most: int) -> list[Span]:
    """Short sentences joined to the one before, or at the start to the next, if both fit together."""
    found: list[tuple[Span, int]] = []
    for span, tokens in parts:
        if found and min(tokens, found[-1][1]) < SHORT and tokens + found[-1][1] <= min(most, JOINED):
            (start, _), before = found[-1]
            found[-1] = (start, span[1]), before + tokens
        else:
            found.append((span, tokens))
    return [span for span, _ in found]


def token_counter(model: SentenceEncoder) -> tuple[Callable[[Sequence[str]], list[int]], int]:
    """A function that counts tokens of texts, without special ids, and how many the model reads after its prompt."""
    special = len(model.tokenizer.encode([""], model.max_length)[0])

    def count(texts: Sequence[str]) -> list[int]:
        return [len(row) - special for row in model.tokenizer.encode(texts, 1 << 20)]

    return count, model.max_length - special - count([model.defaults.prompt()])[0]


def passage_texts(
    documents: Sequence[tuple[str, str]], count: Callable[[Sequence[str]], list[int]], most: int
) -> list[list[tuple[int, int, str]]]:
    """The passages of documents (title, text): first character, one past the last, and the text to encode.

    The title is put before each passage; a long one is shortened to its first words.
    """
    room = most // TITLE_SHARE
    limits = [most - room if title.strip() else most for title, _ in documents]
    found = passages([text for _, text in documents], count, limits)
    found_texts = []
    for (title, text), spans in zip(documents, found, strict=True):
        words = title.split()
        while words and count([" ".join(words)])[0] > room - 2:
            words = words[: len(words) // 2]
        first = f"{' '.join(words)}. " if words else ""
        found_texts.append([(start, end, first + text[start:end]) for start, end in spans])
    return found_texts


class PassageEncoder:
    """The passages of documents by `model`; with `keep` also from and to the user's cache.

    `count` gives the tokens of texts, `most` how many the model reads, `reader` finds texts that it cannot read.
    """

    def __init__(self, model: SentenceEncoder, keep: bool) -> None:
        self.model = model
        self.count, self.most = token_counter(model)
        self.reader = Reader(model.tokenizer, model.max_length)
        self._cache = VectorCache(model, self.most) if keep else None

    def passages(self, documents: Sequence[tuple[str, str]]) -> tuple[Passages, Passages]:
        """The passages of documents (title, text), and those among them that had to be encoded."""
        found = self._cache.get(documents) if self._cache is not None else {}
        new = self._encoded([one for one in documents if one not in found])
        if self._cache is not None:
            self._cache.put(new)
        return found | new, new

    def _encoded(self, documents: Sequence[tuple[str, str]]) -> Passages:
        if not documents:
            return {}
        found = passage_texts(documents, self.count, self.most)
        distinct = list(dict.fromkeys(text for parts in found for _, _, text in parts))
        known_N = ~self.reader.unread(distinct)
        vectors_ND = np.zeros((len(distinct), self.model.width), np.float32)
        if known_N.any():
            readable = [text for text, known in zip(distinct, known_N, strict=True) if known]
            vectors_ND[known_N] = unit_rows(self.model.encode(readable))
        steps_N = np.maximum(np.abs(vectors_ND).max(1, initial=0.0) / 127, np.float32(1e-12))
        codes_ND = np.rint(vectors_ND / steps_N[:, None]).astype(np.int8)
        # With this scale the rounded vector has length 1, so that no cosine exceeds 1.
        scales_N = 1 / np.linalg.norm(codes_ND.astype(np.float32), axis=1).clip(1e-12)
        # No vector for a passage that the model cannot read.
        quantized = {text: (float(scale), codes.tobytes()) if codes.any() else (None, None)
                     for text, scale, codes in zip(distinct, scales_N, codes_ND, strict=True)}  # fmt: skip
        return {one: [Passage(start, end, *quantized[text]) for start, end, text in parts]
                for one, parts in zip(documents, found, strict=True)}  # fmt: skip
