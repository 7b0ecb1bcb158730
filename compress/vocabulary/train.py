"""Train vocabularies: SentencePiece unigram models, of word parts, or with tokens for many whole words.

A row for a whole word helps a small student more than steps or layers (docs/decisions.md). A unigram model alone spends
tokens on a word after a space, after an apostrophe and after a bracket, and does not learn rare words of its corpus. In
`train_mixed_vocabulary` marks are words of their own, as in BERT's tokenizers, so that a word has one form; most tokens
are trained (they split compounds and inflected words), and the rest are whole words: given ones, such as those with
rows in a teacher, then the most frequent that the trained tokens split.

The result is an ordinary SentencePiece `.model`: its own character map separates marks.
"""

from __future__ import annotations

import io
import math
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import sentencepiece

from msdc.compress.vocabulary.spelling import (
    FOLDED,
    UNFOLDED,
    compile_rules,
    is_mark,
    marks_apart,
    one_spelling,
    readable,
    simplified_han,
    standard_rules,
    write_rules,
)
from msdc.compress.vocabulary.tokens import NORMAL, SPACE, read_proto
from msdc.errors import InputError
from msdc.files import atomic_path
from msdc.progress import say, warn

SPECIAL: dict[str, Any] = {
    "pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3,
    "pad_piece": "<pad>", "unk_piece": "<unk>", "bos_piece": "<s>", "eos_piece": "</s>",
}  # fmt: skip
# Marks that an app needs and a small corpus may lack.
MARKS = "!\"#$%&'()*+,-./0123456789:;<=>?@[\\]^_`{|}~€£°"
# Inside a word, one character several times: several segmentations of a long run are equally good, and SentencePiece
# and `tokenizers` choose different ones.
RUN = re.compile(r"([^▁])\1+")
COVERAGE = 0.9998  # share of the text's characters that get a token
FULL_COVERAGE = 0.99995  # the same where many words have one: rare Han characters too
WIDE = "[\u3041-\u30ff\u3400-\u9fff]"  # kana and Han characters
UNSPACED = frozenset(("ja", "km", "lo", "my", "th", "yue", "zh"))  # languages written without spaces between words
LONGEST_WORD = 24  # characters
# A token of Chinese or Japanese that is more than a word: one that only starts a sentence, a long one that is not
# katakana, or one in which kanji follow hiragana (a particle and the next word).
PHRASE = re.compile(rf"▁{WIDE}+|(?![\u30a1-\u30ff]+$){WIDE}{{6,}}|{WIDE}*[\u3041-\u309f][\u3400-\u9fff]{WIDE}*")
SHORTEST_AFTER_PREFIX = 3  # characters
PREFERENCE = 0.5  # a whole word's score exceeds that of its parts by this, in nats


def train_unigram(rows: Sequence[str], size: int, **settings: Any) -> bytes:
    """A unigram model of at most `size` tokens, with these settings of SentencePiece's trainer.

    Raises:
        InputError: SentencePiece cannot train on these sentences.
    """
    buffer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(rows), model_writer=buffer, vocab_size=size, hard_vocab_limit=False,
            model_type="unigram", minloglevel=2, **settings,
        )  # fmt: skip
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(
            f"SentencePiece cannot train {size} tokens on {len(rows)} sentences: {reason[:200]}"
        ) from error
    return buffer.getvalue()


def train_vocabulary(
    texts: Iterable[str],
    target: Path,
    size: int,
    *,
    lowercase: bool = True,
    threads: int = 2,
    rules: Path | None = None,
    required: str = "",
    coverage: float = COVERAGE,
) -> Path:
    """Train a unigram model of at most `size` tokens and write its `.model` file.

    `lowercase` folds case (nmt_nfkc_cf), as for an uncased teacher; `rules` is a file of SentencePiece's normalization
    rules that replaces it. Characters of `required` always have a token. A corpus too small for `size` gets as many
    tokens as it supports, with a warning.
    """
    rows = [text for text in texts if text]
    if not rows:
        raise InputError("the corpus contains no text to train a vocabulary on")
    named: dict[str, Any] = {"normalization_rule_name": FOLDED if lowercase else UNFOLDED}
    trained = train_unigram(
        rows,
        size,
        character_coverage=coverage,
        required_chars=required,
        **(named if rules is None else {"normalization_rule_tsv": str(rules)}),
        **SPECIAL,
        input_sentence_size=1_000_000,
        shuffle_input_sentence=True,
        num_threads=threads,
    )
    tokens = sentencepiece.SentencePieceProcessor(model_proto=trained).get_piece_size()
    # Before the file is there: a run that is killed in between would not train again, and lose the warning.
    if tokens < size:
        warn(f"vocabulary: only {tokens:,} of {size:,} tokens: the {len(rows):,} sentences are too few for more")
    with atomic_path(target) as temporary:
        temporary.write_bytes(trained)
    return target


def train_mixed_vocabulary(
    texts: Mapping[str, Iterable[str]],
    target: Path,
    size: int,
    parts: int,
    *,
    words: Sequence[str] = (),
    prefixes: Sequence[str] = (),
    lowercase: bool = True,
    spellings: bool = False,
    simplified: bool = False,
) -> Path:
    """Write a `.model` of at most `size` tokens: about `parts` trained ones, then whole words.

    Args:
        texts: sentences by language. A word counts by its share of each language's words, damped (square root of the
            language's size), so that languages with little text get words too.
        words: whole words that are always tokens, if the trained tokens can write them.
        prefixes: words written together with the next one, such as Arabic clitics: tokens, and every word that the text
            has after one of them is a token inside words too.
        spellings: give a word one form (`one_spelling`), and drop rules that end in characters without a token.
        simplified: read traditional Chinese characters as simplified ones; needs OpenCC.
    """
    if not parts < size:
        raise InputError(f"vocabulary: {parts} word parts are not less than the {size} tokens in all")
    by_language = {code: sorted({text for text in texts[code] if text}) for code in sorted(texts)}
    together = [text for rows in by_language.values() for text in rows]
    rule_name = FOLDED if lowercase else UNFOLDED
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder, "rules.tsv")
        normalization = standard_rules(rule_name)
        normalization = one_spelling(normalization) if spellings else normalization
        normalization = marks_apart(simplified_han(normalization) if simplified else normalization)
        write_rules(normalization, rules)
        trained = train_vocabulary(together, Path(folder, "parts.model"), parts, rules=rules, required=MARKS,
                                   coverage=FULL_COVERAGE)  # fmt: skip
        proto = read_proto(trained.read_bytes())
    pieces_left = [
        piece for piece in proto.pieces if not RUN.fullmatch(piece.piece) and not PHRASE.fullmatch(piece.piece)
    ]
    del proto.pieces[:]
    proto.pieces.extend(pieces_left)
    characters = {character for piece in proto.pieces if piece.type == NORMAL for character in piece.piece}
    if spellings:
        proto.normalizer_spec.precompiled_charsmap = compile_rules(readable(normalization, characters))
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    spelled = {piece.piece for piece in proto.pieces}

    counts: Counter[str] = Counter()
    worth: defaultdict[str, float] = defaultdict(float)
    for code, rows in by_language.items():
        frequencies = Counter(word for text in rows for word in processor.normalize(text).split(SPACE) if word)
        total = sum(frequencies.values())
        counts.update(frequencies)
        for word, count in frequencies.items():
            if count > 1 and code not in UNSPACED:
                worth[word] += count / math.sqrt(total)

    def is_candidate(word: str) -> bool:
        return 1 < len(word) <= LONGEST_WORD and SPACE + word not in spelled and set(word) <= characters

    marks = [mark for mark in sorted(characters) if is_mark(mark) and SPACE + mark not in spelled]
    openings = sorted({processor.normalize(prefix).strip(SPACE) for prefix in prefixes}, key=len, reverse=True)
    heads = [head for head in openings if SPACE + head not in spelled and set(head) <= characters]
    named = [*marks, *heads, *(word for word in dict.fromkeys(words) if is_candidate(word) and word not in heads)]
    joined = _after_prefixes(counts, openings, spelled, {SPACE + word for word in named})
    room = size - len(proto.pieces) - len(named) - len(joined)
    if room < 0:
        raise InputError(
            f"vocabulary: {parts} word parts, {len(named)} given words and {len(joined)} after prefixes are more than "
            f"{size} tokens"
        )
    taken = set(named)
    frequent = [word for word in sorted(worth, key=lambda word: (-worth[word], word))
                if is_candidate(word) and word not in taken][:room]  # fmt: skip
    everything = sum(counts.values())

    def cost(word: str) -> float:
        return float(sum(processor.get_score(index) for index in processor.encode(word, out_type=int)))

    def add(name: str, count: int, least: float) -> None:
        # Never less than its parts: a word with a row must be tokenized as that row.
        score = max(math.log((count + 0.5) / everything), least + PREFERENCE)
        proto.pieces.add(piece=name, score=score, **({} if spellings else {"type": NORMAL}))
        scores[name] = score

    scores = {piece.piece: piece.score for piece in proto.pieces}
    for word in (*named, *frequent):
        add(SPACE + word, counts[word], cost(word))
    for rest, before in sorted(joined.items()):
        add(rest, sum(counts[head + rest] for head in before),
            max(cost(head + rest) - scores[SPACE + head] for head in before))  # fmt: skip
    proto.trainer_spec.vocab_size = len(proto.pieces)
    # The name states that case is folded; the rules are in the map.
    proto.normalizer_spec.name = rule_name
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    with atomic_path(target) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    say(f"vocabulary: {len(pieces_left):,} parts, {len(named):,} given words, {len(frequent):,} frequent words, "
        f"{len(joined):,} words after prefixes")  # fmt: skip
    return target


def _after_prefixes(
    counts: Mapping[str, int], prefixes: Sequence[str], spelled_tokens: Collection[str], named_tokens: Collection[str]
) -> dict[str, list[str]]:
    """Words that are tokens at the start of a word only, with those of `prefixes` (longest first) that they follow.

    A word that is a token itself (`spelled_tokens` or `named_tokens`) is not cut.
    """
    prefixes_by_rest: defaultdict[str, list[str]] = defaultdict(list)
    tokens = {*spelled_tokens, *named_tokens}
    for word in counts:
        if SPACE + word not in tokens:
            for prefix in prefixes:
                rest = word.removeprefix(prefix)
                if (
                    rest != word
                    and len(rest) >= SHORTEST_AFTER_PREFIX
                    and SPACE + rest in tokens
                    and rest not in spelled_tokens
                ):
                    prefixes_by_rest[rest].append(prefix)
                    break
    return dict(prefixes_by_rest)
