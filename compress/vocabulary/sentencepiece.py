"""Which pieces of a vocabulary stay, and the SentencePiece `.model` with only those.

A `.model` and the table are renumbered together: new ids are the new `.model`'s own, `<pad> <unk> <s> </s>` first, so
no offset between tokenizer and table (fairseq's + 1 in XLM-R) survives. A unigram segmentation that uses only kept
pieces stays the best one, because every other candidate either stays or goes.

Shapes: V old vocabulary rows, K kept ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from msdc.compress.vocabulary.alphabets import Alphabet
from msdc.errors import InputError
from msdc.files import atomic_path
from msdc.progress import warn
from msdc.text.tokenizer import PieceTokenizer, Tokenizer

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True)
class Piece:
    """One entry: its text without word-boundary marks (None: not text), the table row it had, and its rank."""

    name: str
    text: str | None
    row: int
    score: float
    fixed: bool = False
    parts: tuple[int, ...] = field(default=())


class Vocabulary(Protocol):
    """A tokenizer whose pieces can be dropped."""

    pieces: list[Piece]
    # rows that `write` adds to what is kept
    extra: int

    def rows(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Table rows of texts, special ids included."""
        ...

    def write(self, keep: Sequence[int], folder: Path) -> tuple[Path, list[int], int]:
        """Write a tokenizer of only `keep` (indices into `pieces`); (file, old table row of each new id, pad id)."""
        ...


@dataclass(frozen=True)
class Wish:
    """What to keep: pieces of `languages`, pieces found in a corpus (`counts` by table row), at most `size`."""

    languages: tuple[str, ...] = ()
    counts: dict[int, int] | None = None
    size: int | None = None


def choose(vocabulary: Vocabulary, wish: Wish) -> list[int]:
    """Indices of the pieces to keep, in their old order.

    Fixed pieces (special ids, bytes) always stay, and so do single characters of the languages or of the corpus, so
    that rare words fall into characters and not into <unk>. Under a size the most frequent pieces win: by corpus
    count, then by the vocabulary's own order of frequency.

    Raises:
        InputError: nothing is asked for, an unknown language, or a size too small for what must stay.
    """
    if not wish.languages and wish.counts is None and wish.size is None:
        raise InputError("say what to keep: --languages, --corpus or --size")
    alphabet = Alphabet(wish.languages) if wish.languages else None
    pieces, counts = vocabulary.pieces, wish.counts or {}
    seen_characters: set[str] = set()
    if wish.counts is not None:
        for piece in pieces:
            if piece.text and counts.get(piece.row):
                seen_characters |= set(piece.text)
    must: set[int] = set()
    may: list[int] = []
    for index, piece in enumerate(pieces):
        if piece.fixed:
            must.add(index)
            continue
        text = piece.text
        if alphabet is not None and text is not None and not alphabet.writes(text):
            continue
        if text is not None and len(text) == 1 and (alphabet is not None or text in seen_characters):
            must.add(index)
        elif wish.size is not None or wish.counts is None or counts.get(piece.row):
            may.append(index)
    scored = [index for index, piece in enumerate(pieces) if not piece.fixed]
    if scored:
        # A unigram model prices unknown characters by its lowest score; without this piece the price would move.
        must.add(min(scored, key=lambda index: (pieces[index].score, -index)))
    must |= {part for index in must for part in pieces[index].parts}
    room = None if wish.size is None else wish.size - vocabulary.extra
    if room is not None:
        if room < len(must):
            least = len(must) + vocabulary.extra
            raise InputError(f"a vocabulary of {wish.size} is too small: {least} special ids and characters must stay")
        may.sort(key=lambda index: (-counts.get(pieces[index].row, 0), -pieces[index].score))
    kept = set(must)
    for index in may:
        new = {index, *pieces[index].parts} - kept
        if room is None or len(kept) + len(new) <= room:
            kept |= new
    return sorted(kept)


class PieceVocabulary:
    """A SentencePiece unigram `.model`, its pieces tied to table rows by name (`row_of`) or by their own ids."""

    def __init__(self, model_file: Path, tokenizer: Tokenizer, row_of: dict[str, int] | None = None) -> None:
        from sentencepiece import sentencepiece_model_pb2 as pb

        self.model_file = Path(model_file)
        self.tokenizer = tokenizer
        self.proto: Any = pb.ModelProto()  # type: ignore[attr-defined]
        try:
            self.proto.ParseFromString(self.model_file.read_bytes())
        except Exception as error:
            raise InputError(f"{model_file}: not a SentencePiece model ({error})") from error
        if self.proto.trainer_spec.model_type != 1:
            raise InputError(f"{model_file}: only unigram SentencePiece models can be trimmed")
        names = [piece.piece for piece in self.proto.pieces]
        self.row_of = {name: index for index, name in enumerate(names)} if row_of is None else row_of
        self.pieces = [self._piece(index, entry) for index, entry in enumerate(self.proto.pieces)]
        self.extra = len({name for name, _, _ in self._special()} - set(names))

    def _piece(self, index: int, entry: Any) -> Piece:
        text = entry.piece.replace(SPACE, "")
        row = self.row_of.get(entry.piece, -1)
        # A piece without a row cannot be kept unless it is special; XLM-R has none, foreign mixtures may.
        return Piece(
            name=entry.piece,
            text=text if entry.type == NORMAL else None,
            row=row,
            score=entry.score,
            fixed=entry.type != NORMAL or row < 0 or not text,
        )

    def rows(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Table rows of each text, special ids included."""
        return self.tokenizer.encode(texts, max_length)

    def _special(self) -> list[tuple[str, int, str]]:
        """(name, type, name of the piece whose row it takes) of pad, unk, first and last, in their new order."""
        first, last = (self._name_of_row(row) for row in _ends(self.tokenizer))
        spec = self.proto.trainer_spec
        unk = next(entry.piece for entry in self.proto.pieces if entry.type == UNKNOWN)
        pad_row = self.tokenizer.pad_id
        pad = next((name for name, row in self.row_of.items() if row == pad_row), spec.pad_piece)
        pad_name = pad if pad not in (unk, first, last) else "<pad>"
        return [(pad_name, CONTROL, pad), (unk, UNKNOWN, unk), (first, CONTROL, first), (last, CONTROL, last)]

    def _name_of_row(self, row: int) -> str:
        for name, candidate in self.row_of.items():
            if candidate == row:
                return name
        raise InputError(f"{self.model_file}: table row {row} (a special id) has no piece")

    def write(self, keep: Sequence[int], folder: Path) -> tuple[Path, list[int], int]:
        """Write the trimmed tokenizer; returns its file, the old table row of each new id, and the pad id."""
        special = self._special()
        names = {name for name, _, _ in special}
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        del proto.pieces[:]
        rows: list[int] = []
        for name, kind, source in special:
            proto.pieces.add(piece=name, score=0.0, type=kind)
            rows.append(self.row_of[source])
        for index in keep:
            entry = self.proto.pieces[index]
            if entry.piece in names or entry.type in (CONTROL, UNKNOWN, UNUSED) or self.pieces[index].row < 0:
                continue
            proto.pieces.add(piece=entry.piece, score=entry.score, type=entry.type)
            rows.append(self.pieces[index].row)
        spec = proto.trainer_spec
        spec.vocab_size = len(rows)
        spec.pad_id, spec.unk_id, spec.bos_id, spec.eos_id = 0, 1, 2, 3
        spec.pad_piece, spec.unk_piece, spec.bos_piece, spec.eos_piece = (name for name, _, _ in special)
        target = folder / "tokenizer.model"
        target.write_bytes(proto.SerializeToString())
        PieceTokenizer(target)  # refuses a model that cannot be read back
        return target, rows, 0


def _ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """The ids that the tokenizer puts around an empty text.

    Raises:
        InputError: it puts none.
    """
    row = tokenizer.encode([""], 8)[0]
    if len(row) < 2:
        raise InputError("the tokenizer adds no special ids around a text; a sentence encoder needs both")
    return row[0], row[-1]


PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


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

    `lowercase` folds case (nmt_nfkc_cf), which an uncased teacher asks for: capitals would only split its rows; `rules`
    is a file of SentencePiece's normalization rules in its place. Characters of `required` have a piece in any case. A
    corpus too small for `size` gets as many pieces as it supports, and says so unless `quiet`.

    Raises:
        InputError: no text at all, or a vocabulary smaller than the corpus' alphabet.
    """
    import io

    import sentencepiece

    rows = [text for text in texts if text]
    if not rows:
        raise InputError("the corpus holds no text to train a vocabulary on")
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
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_piece="<pad>",
            unk_piece="<unk>",
            bos_piece="<s>",
            eos_piece="</s>",
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
    made = sentencepiece.SentencePieceProcessor(model_proto=buffer.getvalue()).get_piece_size()
    if made < size and not quiet:
        warn(f"vocabulary: {size:,} pieces asked, {made:,} made: the {len(rows):,} sentences support no more")
    return target
