"""English-only text for every language: translated word by word with a dictionary aligned from the parallel text.

Parallel text for small models is mostly short and colloquial; English text of other domains adds words, and the
teacher's vector of the English sentence is still the right target. As the code-switching of Qin et al. 2020 (CoSDA-ML),
with an aligned dictionary (IBM Model 1, msdc.distill.vocabulary_transfer).

`recombine` first replaces some words of the English sentence by others: the sentence need not make sense.
"""

from __future__ import annotations

import hashlib
import random
import re
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import sentencepiece

from msdc.compress.vocabulary.train import UNSPACED, train_unigram
from msdc.distill.data import Row
from msdc.distill.data.corpora import Entry, TextSource, join_unspaced
from msdc.distill.vocabulary_transfer import align
from msdc.errors import InputError
from msdc.files import sha256_file

WORD = re.compile(r"([^\W\d_]+(?:['\u2019][^\W\d_]+)?)")
TRANSLATIONS = 3  # at most this many per word
MIN_COUNT = 3  # rarer words are not translated
MIN_STRENGTH = 0.08  # share of a word's sentences in which it is aligned with the translation
MIN_RATIO = 0.3  # of the strength of the best translation
COMMON = 0.01  # a word in more sentences than this without a translation (such as an article) is dropped
DAMPING = 0.4  # words are drawn with probabilities of count to this power
SEGMENTS, LONGEST_SEGMENT = 12_000, 6  # words of such a language, and their longest, in characters

Translations = dict[str, tuple[list[str], list[float]]]


@dataclass(frozen=True)
class Dictionary:
    """Translations of English words with their weights, by language; a word with an empty list is dropped."""

    by_language: dict[str, Translations]
    # English words that may replace one another, and the running sum of their weights
    content: list[str]
    cumulative: list[float]

    @cached_property
    def _exchangeable(self) -> frozenset[str]:
        return frozenset(self.content)

    def recombine(self, text: str, share: float) -> str:
        """`text`, lower-cased, with `share` of its content words replaced by others; deterministic."""
        chance = random.Random(zlib.crc32(text.encode()))
        parts = []
        for part in WORD.split(text.lower()):
            exchange = part in self._exchangeable and chance.random() < share
            parts.append(chance.choices(self.content, cum_weights=self.cumulative)[0] if exchange else part)
        return "".join(parts)

    def translate(self, text: str, language: str) -> str:
        """`text` word by word, lower-cased; unknown words stay. Deterministic: the text seeds the choice."""
        entries = self.by_language[language]
        chance = random.Random(zlib.crc32(f"{language} {text}".encode()))
        parts = []
        for part in WORD.split(text.lower()):
            words, shares = entries.get(part, ([part], [1.0]))
            parts.append(chance.choices(words, shares)[0] if words else "")
        joined = " ".join("".join(parts).split())
        return join_unspaced(joined) if language in UNSPACED else joined


def _words(texts: Sequence[str], language: str) -> list[list[str]]:
    """The words of lower-cased sentences; those of a language without spaces are tokens of a unigram model of them."""
    sentences = [WORD.findall(text.lower()) for text in texts]
    if language not in UNSPACED or not any(sentences):
        return sentences
    rows = [" ".join(words) for words in sentences]
    model = train_unigram(
        list(filter(None, rows)), SEGMENTS, max_sentencepiece_length=LONGEST_SEGMENT, character_coverage=0.9995,
        num_threads=1,
    )  # fmt: skip
    cut = sentencepiece.SentencePieceProcessor(model_proto=model).encode(rows, out_type=str)
    return [[word for token in tokens if (word := token.strip("\u2581"))] for tokens in cut]


def _numbered(sentences: Sequence[list[str]]) -> tuple[list[str], np.ndarray, list[list[int]]]:
    """Words in at least MIN_COUNT sentences, their counts, and the sentences as word numbers."""
    # In the order of the text: that of a set differs between processes, and the dictionary with it.
    counts = Counter(word for words in sentences for word in dict.fromkeys(words))
    frequent = [word for word, count in counts.items() if count >= MIN_COUNT]
    number = {word: i for i, word in enumerate(frequent)}
    rows = [[number[word] for word in words if word in number] for words in sentences]
    return frequent, np.array([counts[word] for word in frequent]), rows


def learn_dictionary(rows: Sequence[Row]) -> Dictionary:
    """A dictionary for each language of `rows` (parallel sentences); about 2 s for 60,000 pairs."""
    by_language = {}
    total: Counter[str] = Counter()
    for code in sorted({row.language for row in rows if row.target}):
        pairs = [row for row in rows if row.language == code and row.target]
        english, counts, source = _numbered(_words([row.source for row in pairs], "en"))
        foreign, _, target = _numbered(_words([row.target for row in pairs], code))
        if not english or not foreign:
            continue
        strengths = align(source, target, len(english), len(foreign))
        entries: Translations = {}
        for index, word in enumerate(english):
            strength = strengths.data[strengths.indptr[index] : strengths.indptr[index + 1]]
            best = np.argsort(-strength, kind="stable")[:TRANSLATIONS]
            if len(best) and strength[best[0]] > MIN_STRENGTH:
                best = best[strength[best] > MIN_RATIO * strength[best[0]]]
                words = [foreign[strengths.indices[strengths.indptr[index] + j]] for j in best]
                entries[word] = (words, [float(strength[j]) for j in best])
                if counts[index] <= COMMON * len(pairs) and len(word) > 2:
                    total[word] += int(counts[index])
            elif counts[index] > COMMON * len(pairs):
                entries[word] = ([], [])
        by_language[code] = entries
    cumulative = np.cumsum([count**DAMPING for count in total.values()]).tolist()
    return Dictionary(by_language, list(total), cumulative)


@dataclass(frozen=True)
class PendingDictionary:
    """A dictionary that is learned when a text is translated with it: tables of translated text are kept.

    Attributes:
        learn: learns it.
        depends_on: all that the rows depend on that it is learned from; the code that learns it is added.
    """

    learn: Callable[[], Dictionary]
    depends_on: tuple[object, ...]

    @cached_property
    def learned(self) -> Dictionary:
        """The dictionary."""
        return self.learn()

    @cached_property
    def digest(self) -> str:
        """A hash of all that the translations depend on, without the dictionary."""
        parts = repr((self.depends_on, _code_hash()))
        return hashlib.blake2b(parts.encode(), digest_size=16).hexdigest()


@cache
def _code_hash() -> tuple[str, ...]:
    """Versions of what makes a dictionary."""
    modules = (__name__, align.__module__, train_unigram.__module__)
    return *(sha256_file(str(sys.modules[name].__file__)) for name in modules), sentencepiece.__version__


def translate_sources(sources: Sequence[TextSource], dictionary: PendingDictionary) -> list[TextSource]:
    """`sources`, with each of `word_by_word` replaced by one parallel source per language.

    Reading one is an InputError if the dictionary lacks its language.
    """

    def translated(source: TextSource, code: str) -> TextSource:
        def entries() -> Iterator[Entry]:
            words = dictionary.learned
            if code not in words.by_language:
                have = ", ".join(words.by_language) or "none"
                raise InputError(
                    f"{source.name}: word_by_word {code!r} needs parallel text in that language (have {have})"
                )
            share = source.corpus.recombine
            # Sentences are excluded before their words are exchanged.
            for line, row in source.judged():
                if isinstance(row, str):
                    yield line, row
                    continue
                english = words.recombine(row.source, share) if share else row.source
                yield line, Row(english, words.translate(english, code), code)

        return replace(
            source, name=f"{source.name}:{code}", language=code, entries=entries, synthetic=True, excluded=None,
            variant=f"{dictionary.digest} {None if source.excluded is None else source.excluded.digest}",
        )  # fmt: skip

    translations = []
    for source in sources:
        codes = source.corpus.word_by_word
        translations += [translated(source, code) for code in codes] if codes else [source]
    return translations
