"""Train vocabularies: SentencePiece unigram models, of word parts or with pieces for many whole words.

A row for a whole word helps a small student more than steps or layers (docs/decisions.md). A unigram model alone spends
pieces on a word after a space, after an apostrophe and after a bracket, and does not learn rare words of its corpus. In
`train_whole_words` marks are words of their own, as in BERT's tokenizers, so that a word has one form; most pieces are
trained (they split compounds and inflected words), and the rest are whole words: given ones, such as those with rows in
a teacher, then the most frequent that the trained pieces split.

The result is an ordinary SentencePiece `.model`: its own character map separates marks.
"""

from __future__ import annotations

import io
import math
import re
import struct
import tempfile
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece

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
LONGEST_WORD = 24  # characters
PREFERENCE = 0.5  # a whole word's score exceeds that of its parts by this, in nats
MOST_NODES = 10_000_000  # of a map; SentencePiece's own maps have half a million
LAST_MARK = 0x3100  # higher ones belong to scripts that this does not split
# Spellings of one letter that case folding does not join: the dotted capital I, sharp s, alef with and without hamza.
# Signs that are no letters are removed: Arabic vowel marks, and the stroke that widens a word.
SPELLINGS = str.maketrans(
    {"İ": "i", "ß": "ss", "ẞ": "ss", "أ": "ا", "إ": "ا", "آ": "ا", "ٱ": "ا", "ـ": "", "\u0670": ""}
    | dict.fromkeys(map(chr, range(0x064B, 0x0660)), "")
)


def train_vocabulary(
    texts: Iterable[str],
    target: Path,
    size: int,
    *,
    character_coverage: float = 0.9998,
    lowercase: bool = True,
    sample: int = 1_000_000,
    threads: int = 2,
    rules: Path | None = None,
    required: str = "",
    quiet: bool = False,
) -> Path:
    """Train a unigram model of at most `size` pieces and write its `.model` file.

    `lowercase` folds case (nmt_nfkc_cf), as for an uncased teacher; `rules` is a file of SentencePiece's normalization
    rules that replaces it. Characters of `required` always have a piece. A corpus too small for `size` gets as many
    pieces as it supports, with a warning unless `quiet`.
    """
    rows = [text for text in texts if text]
    if not rows:
        raise InputError("the corpus contains no text to train a vocabulary on")
    buffer = io.BytesIO()
    named: dict[str, Any] = {"normalization_rule_name": "nmt_nfkc_cf" if lowercase else "nmt_nfkc"}
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(rows),
            model_writer=buffer,
            vocab_size=size,
            hard_vocab_limit=False,
            model_type="unigram",
            character_coverage=character_coverage,
            required_chars=required,
            **(named if rules is None else {"normalization_rule_tsv": str(rules)}),
            **SPECIAL,
            input_sentence_size=sample,
            shuffle_input_sentence=True,
            num_threads=threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(
            f"SentencePiece cannot train {size} pieces on {len(rows)} sentences: {reason[:200]}"
        ) from error
    with atomic_path(target) as temporary:
        temporary.write_bytes(buffer.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue()).get_piece_size()
    if pieces < size and not quiet:
        warn(f"vocabulary: {pieces:,} pieces instead of {size:,}: the {len(rows):,} sentences support no more")
    return target


def is_mark(character: str) -> bool:
    """Whether a character is a word of its own: punctuation, ASCII symbols, currency signs."""
    category = unicodedata.category(character)
    return category[0] == "P" or category == "Sc" or (character.isascii() and category[0] == "S") or character in "°§©®"


def read_character_map(packed: bytes) -> dict[str, str]:
    """The rules of SentencePiece's `precompiled_charsmap`: text -> its replacement.

    A double array of 32-bit units (the layout of darts-clone) is read from its root, level by level; its values are
    offsets of NUL-terminated texts.
    """
    try:
        size = struct.unpack("<I", packed[:4])[0]
        units = np.frombuffer(packed, "<u4", size // 4, 4).astype(np.int64)
        texts = packed[4 + size :]
        offsets = (units >> 10) << ((units & (1 << 9)) >> 6)
        owner = units & ((1 << 31) | 0xFF)
        labels = np.arange(1, 256)
        rules: dict[str, str] = {}
        bases, keys, met = offsets[:1], [b""], 0
        while keys:
            places = bases[:, None] ^ labels
            rows, columns = np.nonzero(owner[np.minimum(places, len(units) - 1)] == labels)
            found = places[rows, columns]
            inside = found < len(units)
            rows, columns, found = rows[inside], columns[inside], found[inside]
            met += len(found)
            if met > MOST_NODES:
                raise ValueError("it does not end")
            steps = zip(rows.tolist(), columns.tolist(), strict=True)
            keys = [keys[row] + bytes([column + 1]) for row, column in steps]
            bases = found ^ offsets[found]
            for row in np.flatnonzero(units[found] >> 8 & 1).tolist():
                start = int(units[bases[row]]) & ((1 << 31) - 1)
                rules[keys[row].decode()] = texts[start : texts.index(b"\0", start)].decode()
    except (ValueError, IndexError, struct.error) as error:
        raise InputError(f"a damaged character map of SentencePiece ({error})") from error
    return rules


def _apart(text: str) -> str:
    spaced = "".join(f" {character} " if is_mark(character) else character for character in text)
    return spaced.replace("  ", " ")


def marks_apart(rules: Mapping[str, str]) -> dict[str, str]:
    """Rules of a character map, with spaces around every mark."""
    cut = {key: _apart(text) if any(map(is_mark, text)) else text for key, text in rules.items()}
    marks = [chr(code) for code in range(33, LAST_MARK) if is_mark(chr(code))]
    return {mark: f" {mark} " for mark in marks if mark not in cut} | cut


def one_spelling(rules: Mapping[str, str]) -> dict[str, str]:
    """Rules of a character map that give all SPELLINGS of a word one form."""
    found = {chr(code): chr(code).translate(SPELLINGS) for code in SPELLINGS} | {"i\u0307": "i", "I\u0307": "i"}
    return found | {key: text.replace("i\u0307", "i").translate(SPELLINGS) for key, text in rules.items()}


def _character_map(rules: Mapping[str, str]) -> bytes:
    """The map of these rules in SentencePiece's format."""
    with tempfile.TemporaryDirectory() as folder:
        write_rules(rules, rules_file := Path(folder, "rules.tsv"))
        model = train_vocabulary(["a b c d e"] * 8, Path(folder, "plain.model"), 16, rules=rules_file, quiet=True)
        return bytes(read_proto(model.read_bytes()).normalizer_spec.precompiled_charsmap)


def write_rules(rules: Mapping[str, str], target: Path) -> None:
    """Write the rules for SentencePiece's trainer: code points in hexadecimal, tab-separated."""

    def codes(text: str) -> str:
        return " ".join(f"{ord(character):X}" for character in text)

    lines = [f"{codes(key)}\t{codes(rules[key])}\n" for key in sorted(rules)]
    target.write_text("".join(lines), encoding="utf-8")


def train_whole_words(
    texts: Mapping[str, Iterable[str]],
    target: Path,
    size: int,
    parts: int,
    *,
    words: Sequence[str] = (),
    lowercase: bool = True,
    spellings: bool = False,
    threads: int = 2,
) -> Path:
    """Write a `.model` of at most `size` pieces: about `parts` trained ones, then whole words.

    Args:
        texts: sentences by language. A word counts by its share of each language's words, damped (square root of the
            language's size), so that languages with little text get words too.
        words: whole words that are always pieces, if the trained pieces can write them.
        spellings: give a word one form (`one_spelling`), and drop rules that end in characters without a piece.
    """
    if not parts < size:
        raise InputError(f"vocabulary: {parts} word parts are not less than the {size} pieces in all")
    by_language = {code: sorted({text for text in texts[code] if text}) for code in sorted(texts)}
    together = [text for rows in by_language.values() for text in rows]
    rule_name = "nmt_nfkc_cf" if lowercase else "nmt_nfkc"
    with tempfile.TemporaryDirectory() as folder:
        plain, rules = Path(folder, "plain.model"), Path(folder, "rules.tsv")
        train_vocabulary(["a b c d e"] * 8, plain, 16, lowercase=lowercase, quiet=True)
        found = read_character_map(read_proto(plain.read_bytes()).normalizer_spec.precompiled_charsmap)
        found = marks_apart(one_spelling(found) if spellings else found)
        write_rules(found, rules)
        trained = train_vocabulary(
            together, Path(folder, "parts.model"), parts, rules=rules, required=MARKS, threads=threads
        )
        proto = read_proto(trained.read_bytes())
    kept = [piece for piece in proto.pieces if not RUN.fullmatch(piece.piece)]
    del proto.pieces[:]
    proto.pieces.extend(kept)
    characters = {character for piece in proto.pieces if piece.type == NORMAL for character in piece.piece}
    if spellings:
        # Text that no piece can write is unknown also without its rule: nine tenths of the map are for other scripts.
        readable = {key: text for key, text in found.items() if characters.issuperset(text.replace(" ", ""))}
        proto.normalizer_spec.precompiled_charsmap = _character_map(readable)
    processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    known = {piece.piece for piece in proto.pieces}

    counts: Counter[str] = Counter()
    worth: defaultdict[str, float] = defaultdict(float)
    for rows in by_language.values():
        own = Counter(word for text in rows for word in processor.normalize(text).split(SPACE) if word)
        total = sum(own.values())
        counts.update(own)
        for word, count in own.items():
            if count > 1:
                worth[word] += count / math.sqrt(total)

    def wanted(word: str) -> bool:
        return 1 < len(word) <= LONGEST_WORD and SPACE + word not in known and set(word) <= characters

    marks = [mark for mark in sorted(characters) if is_mark(mark) and SPACE + mark not in known]
    given = marks + [word for word in dict.fromkeys(words) if wanted(word)]
    room = size - len(proto.pieces) - len(given)
    if room < 0:
        raise InputError(f"vocabulary: {parts} word parts and {len(given)} given words are more than {size} pieces")
    taken = set(given)
    frequent = [word for word in sorted(worth, key=lambda word: (-worth[word], word))
                if wanted(word) and word not in taken][:room]  # fmt: skip
    everything = sum(counts.values())
    for word in (*given, *frequent):
        # Never less than its parts: a word with a row must be tokenized as that row.
        cut = sum(processor.get_score(index) for index in processor.encode(word, out_type=int))
        score = max(math.log((counts[word] + 0.5) / everything), cut + PREFERENCE)
        proto.pieces.add(piece=SPACE + word, score=score, **({} if spellings else {"type": NORMAL}))
    proto.trainer_spec.vocab_size = len(proto.pieces)
    # The name states that case is folded; the rules are in the map.
    proto.normalizer_spec.name = rule_name
    proto.normalizer_spec.ClearField("normalization_rule_tsv")
    with atomic_path(target) as temporary:
        temporary.write_bytes(proto.SerializeToString())
    say(f"vocabulary: {len(proto.pieces) - len(given) - len(frequent):,} parts, {len(given):,} given words, "
        f"{len(frequent):,} frequent words")  # fmt: skip
    return target
