"""Split documents into passages that fit the model.

A passage is a sentence, or short neighbours together: the best sentence of a paragraph finds it better than the
paragraph's own vector does (docs/results/search.md). Nothing is truncated: a sentence that is too long for the model is
cut in the middle, and its halves again, until every part fits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

Span = tuple[int, int]  # first character, one past the last
# The lookbehind of the last keeps a long run of blanks linear.
END = re.compile(r"(?<=[.!?…؟।])[\"'”’»)\]]*\s+|(?<=[。！？])|(?<!\s)\s*\n\s*")
# Tokens: a sentence shorter than the first number (a heading, "Yes.", "e.g.") joins its neighbour, up to the second.
SHORT, JOINED = 8, 32
TITLE_SHARE = 3  # a title has at most a third of a passage's tokens


def sentence_spans(text: str) -> list[Span]:
    """The sentences of a text, which end at their marks and at line ends, without the blanks around them."""
    spans, start = [], 0
    for end, following in [*((match.start(), match.end()) for match in END.finditer(text)), (len(text), len(text))]:
        part = text[start:end]
        if part.strip():
            indent = len(part) - len(part.lstrip())
            spans.append((start + indent, start + indent + len(part.strip())))
        start = following
    return spans


def _halves(text: str, span: Span) -> tuple[Span, Span]:
    """A span cut at the blank nearest to its middle, else in the middle."""
    start, end = span
    middle = (start + end) // 2
    blanks = [blank for blank in (text.rfind(" ", start + 1, middle), text.find(" ", middle, end - 1)) if blank > 0]
    cut = min(blanks, key=lambda blank: abs(blank - middle), default=middle)
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
    parts_by_text: list[list[tuple[Span, int]]] = [[] for _ in texts]
    todo = [(number, span) for number, spans_of_text in enumerate(spans) for span in spans_of_text]
    while todo:
        cut = []
        counts = count([texts[number][start:end] for number, (start, end) in todo])
        for (number, span), tokens in zip(todo, counts, strict=True):
            if tokens <= limits[number] or span[1] - span[0] < 2:
                parts_by_text[number].append((span, tokens))
            else:
                cut += [(number, half) for half in _halves(texts[number], span)]
        todo = cut
    return [_joined(sorted(spans_of_text), limit) for spans_of_text, limit in zip(parts_by_text, limits, strict=True)]


def _joined(parts: list[tuple[Span, int]], most: int) -> list[Span]:
    """Short sentences joined to the one before, or at the start to the next, if both fit together."""
    joined: list[tuple[Span, int]] = []
    for span, tokens in parts:
        if joined and min(tokens, joined[-1][1]) < SHORT and tokens + joined[-1][1] <= min(most, JOINED):
            (start, _), before = joined[-1]
            joined[-1] = (start, span[1]), before + tokens
        else:
            joined.append((span, tokens))
    return [span for span, _ in joined]


def passage_texts(
    documents: Sequence[tuple[str, str]], count: Callable[[Sequence[str]], list[int]], most: int
) -> list[list[tuple[int, int, str]]]:
    """The passages of documents (title, text): first character, one past the last, and the text to encode.

    The title is put before each passage; a long one is shortened to its first words.
    """
    room = most // TITLE_SHARE
    limits = [most - room if title.strip() else most for title, _ in documents]
    spans_by_document = passages([text for _, text in documents], count, limits)
    parts_by_document = []
    for (title, text), spans in zip(documents, spans_by_document, strict=True):
        prefix = title_prefix(title, count, most)
        parts_by_document.append([(start, end, prefix + text[start:end]) for start, end in spans])
    return parts_by_document


def title_prefix(title: str, count: Callable[[Sequence[str]], list[int]], most: int) -> str:
    """The title as it is put before a passage of at most `most` tokens: shortened to its first words, or empty."""
    words = title.split()
    while words and count([" ".join(words)])[0] > most // TITLE_SHARE - 2:
        words = words[: len(words) // 2]
    return f"{' '.join(words)}. " if words else ""
