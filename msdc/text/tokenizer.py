"""Text to ids, and ids to batches: one interface to both kinds of tokenizer in model folders.

`PieceTokenizer` reads a SentencePiece `.model` (our students; the same file the phone reads), `FastTokenizer` a
`tokenizer.json`. Both add the special ids and truncate before the last special id.

Shapes: B batch, T tokens, N texts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from msdc.arguments import require_characters
from msdc.errors import InputError, MsdcError, first_line
from msdc.files import disk_errors, parse_json, regular_size, without_system_files
from msdc.machine import thread_count
from msdc.text.tokenizer_bounds import MOST_GROWTH, MOST_TEXT, bounded, check_loaded, check_tokenizer, map_growth

if TYPE_CHECKING:
    from torch import Tensor

pb: Any = sentencepiece_model_pb2  # generated, without types

MODEL_FILE = "tokenizer.model"
# Its name in bundles, which have no `tokenizer.json`: transformers opens a lone `tokenizer.model` without <s> and </s>.
BUNDLED_FILE = "sentencepiece.model"
JSON_FILE = "tokenizer.json"
MAX_TOKENIZER_BYTES = 128 * 1024 * 1024
# Letters of two ancient scripts: their common ids are those of any unknown character. If a vocabulary has these
# letters, or tokens for single bytes, they have few or no common ids, and every text counts as known.
PROBES = ("\U00012000", "\U000103a0")
MOST_UNKNOWN = 0.5
UNTOKENIZED = "the tokenizer fails on a text"


def require_texts(texts: Sequence[str]) -> None:
    """Refuse values that `encode` does not accept."""
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            kind = f"{type(text).__name__}: {text!r}"[:80]
            raise InputError(f"encode takes texts; the value at index {number - 1} is not a string ({kind})")
        if not text.isascii():
            require_characters(text, f"text {number}")


class Tokenizer(Protocol):
    """Text to ids with special ids, truncated to `max_length`."""

    pad_id: int
    size: int
    path: Path
    content: bytes  # of the file when it was opened

    def encode(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """Ids of each text with special ids, at most `max_length` of them; the last special id is kept."""


def prompt_tokens(tokenizer: Tokenizer, prompt: str, max_length: int) -> int:
    """Tokens of `prompt` at the front of a text, for models that do not pool them (`include_prompt: false`).

    They are counted as in sentence-transformers: the prompt alone with its special ids, without the last one.
    """
    if not prompt:
        return 0
    row, empty = tokenizer.encode([prompt, ""], max_length)
    ends = bool(empty) and bool(row) and row[-1] == empty[-1]
    return len(row) - int(ends)


def count_truncated(tokenizer: Tokenizer, texts: Sequence[str], max_length: int) -> int:
    """How many of `texts` have more ids than `max_length`, special ids included."""
    rows = tokenizer.encode(texts, max_length)
    full = [text for text, row in zip(texts, rows, strict=True) if len(row) >= max_length]
    return sum(len(row) > max_length for row in tokenizer.encode(full, max_length + 1)) if full else 0


def _content(path: Path) -> bytes:
    if (size := regular_size(path)) > MAX_TOKENIZER_BYTES:
        raise InputError(f"{path}: {size} bytes, more than the {MAX_TOKENIZER_BYTES} allowed")
    return path.read_bytes()


@contextlib.contextmanager
def _refused(path: Path, what: str) -> Iterator[None]:
    """Any error of a tokenizer library as one line, also a panic of Rust, which is a BaseException."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit, MsdcError):
        raise
    except BaseException as error:
        raise InputError(f"{path}: {what} ({first_line(error)})") from error


def _read_pieces(path: Path) -> bytes:
    raw, proto = _content(path), pb.ModelProto()
    with _refused(path, "not a SentencePiece model"):
        proto.ParseFromString(raw)
        bounded("growth of a text, in times", map_growth(proto.normalizer_spec.precompiled_charsmap), MOST_GROWTH)
    return raw


def _read_json(path: Path) -> tuple[bytes, float]:
    raw = _content(path)
    with _refused(path, "not a tokenizer.json"):
        return raw, check_tokenizer(raw)


def check_tokenizer_files(folder: Path) -> None:
    """Refuse tokenizer files in or below a folder that would break the libraries which read them."""
    for path in sorted(folder.rglob("tokenizer.*json")):  # also tokenizer.4.0.json, which `transformers` knows
        _read_json(path)
    for path in without_system_files(folder.rglob("*.model")):
        _read_pieces(path)


class PieceTokenizer:
    """SentencePiece `.model`: `<s> pieces </s>`, ids are the model's own.

    `threads` encode a list of texts; None: one per processor of this process.
    """

    threads: int | None = None

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.content = _read_pieces(self.path)
        with _refused(self.path, "not a SentencePiece model"):
            # From bytes: the C++ loader aborts the process on some truncated files when given a path.
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=self.content)
        self.size = self.processor.get_piece_size()
        self.bos_id, self.eos_id = self.processor.bos_id(), self.processor.eos_id()
        self.unk_id = self.processor.unk_id()
        self.pad_id = max(self.processor.pad_id(), 0)
        if min(self.bos_id, self.eos_id) < 0:
            raise InputError(f"{path}: the SentencePiece model defines no <s> and </s>, which a sentence encoder needs")

    def encode(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """See `Tokenizer`."""
        room = max_length - 2
        encode, threads = self.processor.encode, self.threads or thread_count()
        with _refused(self.path, UNTOKENIZED):
            # A list starts a thread pool per call: for a few texts that costs more than it saves.
            if len(texts) < 32 or threads == 1:
                rows = [encode(text, out_type=int) for text in texts]
            else:
                rows = encode(list(texts), out_type=int, num_threads=threads)
        return [[self.bos_id, *row[:room], self.eos_id] for row in rows]


class FastTokenizer:
    """A `tokenizer.json` as the `tokenizers` library reads it, with the special ids of its own template."""

    def __init__(self, path: str | Path, pad_id: int = 0) -> None:
        self.path = Path(path)
        self.content, self._growth = _read_json(self.path)
        with _refused(self.path, "not a tokenizer.json"):
            self.backend = Backend.from_buffer(self.content)
            check_loaded(self.backend)
            self.backend.no_padding()
            self.backend.no_truncation()
            self.size = self.backend.get_vocab_size()
        self.pad_id = pad_id

    def encode(self, texts: Sequence[str], max_length: int) -> list[list[int]]:
        """See `Tokenizer`."""
        with _refused(self.path, UNTOKENIZED):
            bounded("special ids", self.backend.num_special_tokens_to_add(False), max_length)
            longest = max(map(len, texts), default=0)
            bounded("characters of a text, times its growth", longest * self._growth, MOST_TEXT)
            self.backend.enable_truncation(max_length)
            return [row.ids for row in self.backend.encode_batch_fast(list(texts))]

    def parsed(self) -> Any:
        """The file as JSON."""
        with _refused(self.path, "not a tokenizer.json"):
            return parse_json(self.content.decode("utf-8"))


def unknown_id(tokenizer: Tokenizer) -> int | None:
    """The id of characters that the vocabulary does not have; None if it spells them with bytes."""
    if isinstance(tokenizer, PieceTokenizer):
        return tokenizer.unk_id if tokenizer.unk_id >= 0 else None
    if not isinstance(tokenizer, FastTokenizer):
        return None
    model = tokenizer.parsed().get("model") or {}
    token = model.get("unk_id", model.get("unk_token"))
    return tokenizer.backend.token_to_id(token) if isinstance(token, str) else token


def load_tokenizer(folder: str | Path, pad_id: int = 0) -> Tokenizer:
    """The tokenizer of a model folder or bundle: its SentencePiece `.model` if it has one, else `tokenizer.json`."""
    folder = Path(folder)
    # If it exists and is not a regular file, the reader refuses it.
    for name in (MODEL_FILE, BUNDLED_FILE):
        if (folder / name).exists():
            return PieceTokenizer(folder / name)
    if (folder / JSON_FILE).exists():
        return FastTokenizer(folder / JSON_FILE, pad_id)
    raise InputError(f"{folder}: no {MODEL_FILE} and no {JSON_FILE}; save the tokenizer in its fast form first")


def _special_cuts(pieces: Sequence[Any]) -> list[str]:
    """Patterns that prevent the text `<s>` from being tokenized as the special id of that name.

    SentencePiece never finds a control piece in text; the `tokenizers` library's unigram model does. A split inside the
    name, at a position that no ordinary piece crosses, prevents that and changes no other tokenization.
    """
    ordinary = [piece.piece for piece in pieces if piece.type == piece.NORMAL]
    letters = set("".join(ordinary))
    crossed = {piece[i : i + 2] for piece in ordinary for i in range(len(piece) - 1)}
    cuts = []
    for piece in pieces:
        name = piece.piece
        if piece.type == piece.NORMAL or len(name) < 2:
            continue
        # Adjacent unknown characters are one unknown piece; a split between them would make two.
        places = [i for i in range(1, len(name)) if name[i - 1] in letters or name[i] in letters]
        free = [i for i in places if name[i - 1 : i + 1] not in crossed]
        if free or places:
            position = (free or places)[0]
            cuts.append(f"{re.escape(name[:position])}(?={re.escape(name[position:])})")
    return cuts


def write_fast_copy(model_file: Path, target: Path) -> None:
    """Write a `tokenizer.json` that tokenizes as the SentencePiece unigram `.model` does.

    SentencePiece's C++ and the `tokenizers` library differ in a few cases of white space. An export compares both on
    the golden texts, and its gate fails if they differ.
    """
    proto = pb.ModelProto()
    proto.ParseFromString(Path(model_file).read_bytes())
    if proto.trainer_spec.model_type != pb.TrainerSpec.UNIGRAM:
        raise InputError(f"{model_file}: only unigram SentencePiece models can be written as tokenizer.json")
    vocabulary = [(piece.piece, piece.score) for piece in proto.pieces]
    unk, bos, eos = (proto.trainer_spec.unk_id, proto.trainer_spec.bos_id, proto.trainer_spec.eos_id)
    backend = Backend(models.Unigram(vocabulary, unk_id=unk, byte_fallback=proto.trainer_spec.byte_fallback))
    steps: list[Any] = []
    if proto.normalizer_spec.name.endswith("_cf"):
        # `tokenizers` applies the character map per grapheme and drops the mark of a capital with a combining mark, but
        # not of a lower-case letter. SentencePiece keeps the dotted capital I, which lower-casing decomposes.
        keep = "\ufdd0"
        steps.append(normalizers.Replace("I\u0307", keep))
        steps += [normalizers.Replace("\u0130", keep), normalizers.Lowercase(), normalizers.Replace(keep, "\u0130")]
    if proto.normalizer_spec.precompiled_charsmap:
        # Of a short grapheme the first rule that fits decides, and marks after it are dropped: each mark after the
        # first of a letter, or after a character that has a rule by itself, becomes a grapheme of its own. Where the
        # map composes a letter with two marks (SentencePiece's own maps do), so does NFC, for a second one at once.
        normalize = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString()).normalize
        before = normalize("xx")[:-1]
        ruled = [letter for letter in map(chr, range(0xAA, 0x250)) if letter == letter.lower() and letter.isalpha()]
        ruled += [
            char for char in map(chr, range(0x21, 0x800)) if not char.isalpha() and unicodedata.category(char)[0] != "M"
        ]
        ruled = [char for char in ruled if normalize(f"x{char}x") != f"{before}{char}x"]
        apart = "\ufdd1"
        full = normalize("e\u0302\u0301").strip("▁") == "\u1ebf"
        if not full and normalize("か\u3099").strip("▁") == "が":
            steps += _joined_kana_and_jamo()
        steps.append(normalizers.Replace(Regex(rf"(?<=[\p{{M}}\u0130{re.escape(''.join(ruled))}])(?=\p{{M}})"), apart))
        steps.append(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
        if full:
            steps += [normalizers.Replace(Regex(rf"(?<=\P{{M}}){apart}"), ""), normalizers.NFC()]
        steps.append(normalizers.Replace(apart, ""))
        steps = [*_rules_of_two_marks(normalize, normalizers.Sequence(steps)), *steps]
    if proto.normalizer_spec.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(" {2,}"), " "), normalizers.Replace(Regex(r"\A +| +\z"), "")]
    backend.normalizer = normalizers.Sequence(steps)
    scheme = "always" if proto.normalizer_spec.add_dummy_prefix else "never"
    metaspace = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=scheme)
    cuts = [pre_tokenizers.Split(Regex(cut), "merged_with_previous") for cut in _special_cuts(proto.pieces)]
    backend.pre_tokenizer = pre_tokenizers.Sequence([metaspace, *cuts]) if cuts else metaspace
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=scheme)
    names = {i: proto.pieces[i].piece for i in (bos, eos)}
    backend.post_processor = processors.TemplateProcessing(
        single=f"{names[bos]} $A {names[eos]}",
        pair=f"{names[bos]} $A {names[eos]} {names[eos]} $B {names[eos]}",
        special_tokens=[(names[bos], bos), (names[eos], eos)],
    )
    with disk_errors(target):
        backend.save(str(target), pretty=False)


def _rules_of_two_marks(normalize: Callable[[str], str], others: Any) -> list[Any]:
    """Steps for letters with two marks or more that a character map joins at once and `others` do not (U+1EC7, \u1ec7).

    A map may have a rule of three characters whose first two have none.
    """
    steps = []
    for letter in map(chr, [*range(0xC0, 0x250), *range(0x370, 0x530), *range(0x1E00, 0x2000)]):
        parts = unicodedata.normalize("NFD", letter)
        if len(parts) > 2:
            joined = normalize(f"x{parts}x").strip("▁")[1:-1]
            if len(joined) < len(parts) and others.normalize_str(f"x{parts}x").strip("▁ ")[1:-1] != joined:
                steps.append(normalizers.Replace(parts, joined))
    return steps


def _joined_kana_and_jamo() -> list[Any]:
    """Steps that join kana with their voicing marks, half-width ones too, and jamo to syllables, and no other letters.

    A character map does so by rules of two or three letters, which `tokenizers` does not apply.
    """
    half = [chr(letter) + mark for letter in range(0xFF66, 0xFF9E) for mark in "ﾞﾟ"]
    composed = {pair: unicodedata.normalize("NFKC", pair) for pair in half}
    steps = [normalizers.Replace(pair, letter) for pair, letter in composed.items() if len(letter) == 1]
    apart = "\x1f"  # of one byte; character maps drop it
    others = normalizers.Replace(Regex(r"(?<=[^\p{Hiragana}\p{Katakana}])(?=\p{M})"), apart)
    return [*steps, others, normalizers.NFC(), normalizers.Replace(apart, "")]


def write_tokenizer_folder(model_file: Path, folder: Path, max_length: int) -> None:
    """Write `tokenizer.model`, the equal `tokenizer.json` and the stock config files into a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / MODEL_FILE
    if Path(model_file).resolve() != target.resolve():
        target.write_bytes(Path(model_file).read_bytes())
    write_fast_copy(target, folder / JSON_FILE)
    tokenizer = PieceTokenizer(target)
    bos, eos, unk, pad = tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.pad_id
    ids = {"bos": bos, "eos": eos, "cls": bos, "sep": eos, "unk": unk, "pad": pad}
    special = {f"{role}_token": tokenizer.processor.id_to_piece(id_) for role, id_ in ids.items()}
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
        # The text "<s>" is ordinary text, as SentencePiece reads it.
        "split_special_tokens": True,
        "model_input_names": ["input_ids", "attention_mask"],
        **special,
    }
    for file, value in (("tokenizer_config.json", config), ("special_tokens_map.json", special)):
        (folder / file).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8", newline="\n")


def text_key(text: str) -> int:
    """64-bit hash of a text, the key of stored vectors."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def clean(text: str) -> str:
    """NFC, with one space between words; applied to every corpus sentence."""
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())


def pack_by_length(lengths: Sequence[int] | np.ndarray, batch_tokens: int, max_batch: int = 4096) -> list[np.ndarray]:
    """Indices grouped so that (rows x longest row) stays within `batch_tokens`; longest first.

    Longest first, so that the first batch raises an out-of-memory error and the estimated time left decreases.
    """
    if len(lengths) == 1:  # a query, for which sorting takes longer than the rest of its batch
        return [np.zeros(1, np.int64)]
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        rows = int(min(max_batch, max(1, batch_tokens // max(1, int(lengths[order[start]])))))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """ids_BT (int64) and mask_BT (bool, true on real tokens) of ragged rows."""
    import torch

    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    T = int(lengths.max()) if len(rows) else 0
    mask_BT = np.arange(T)[None, :] < lengths[:, None]
    ids_BT = np.full((len(rows), T), pad_id, dtype=np.int64)
    ids_BT[mask_BT] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]) if len(rows) else []
    return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)


RUN = re.compile("[!-~]{40,}")  # without blanks
ENCODED = re.compile("[A-Za-z0-9+/=]{40,}")
DIGIT = re.compile("[0-9]")
LEAST_CODE = 200


class Reader:
    """Finds texts that a model cannot read: most of their tokens are characters outside its vocabulary, or most of
    their characters are data, not prose.

    All such texts have nearly the same vector.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        empty, probe, other = tokenizer.encode(["", *PROBES], max_length)
        self._special = set(empty)
        self._unknown = (set(probe) & set(other)) - self._special

    def unread(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """For each text whether more than half of its tokens are unknown characters, or of its characters data, bool
        [N]."""
        data_N = np.array([is_data(text) for text in texts], np.bool_)
        if not self._unknown:
            return data_N
        rows = [[i for i in row if i not in self._special] for row in self._tokenizer.encode(texts, self._max_length)]
        unknown_N = [sum(i in self._unknown for i in row) > MOST_UNKNOWN * len(row) for row in rows]
        return data_N | np.array(unknown_N, np.bool_)


def is_data(text: str) -> bool:
    """Whether most of a text is no prose: base64 and hashes (40 characters without another, with a digit), or code
    without blanks (200 characters), but not the address of a page. The same in C++ (search.cpp)."""
    count = 0
    for run in RUN.findall(text):
        is_code = len(run) >= LEAST_CODE and "://" not in run
        count += len(run) if is_code else sum(len(part) for part in ENCODED.findall(run) if DIGIT.search(part))
    return 2 * count > len(text)
