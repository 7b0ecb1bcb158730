"""Small tokenizers of the kinds that published encoders use, and texts to try them on."""

import functools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny_models import train_pieces
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from msdc.compress.texts import quickstart_texts
from msdc.export.golden import golden_texts

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
ALPHABET = pre_tokenizers.ByteLevel.alphabet()


@functools.cache
def _texts() -> list[str]:
    return [*quickstart_texts(), *golden_texts()]


def _wrap(tokenizer: Tokenizer, first: str, last: str) -> Tokenizer:
    ends = [(name, tokenizer.token_to_id(name)) for name in dict.fromkeys((first, last)) if name]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{first} $A {last}".strip(), special_tokens=ends)
    return tokenizer


def word_piece(normalizer: Any, pre_tokenizer: Any) -> Tokenizer:
    """WordPiece after any normalizer and pre-tokenizer."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        _texts(), trainers.WordPieceTrainer(vocab_size=1500, special_tokens=special, show_progress=False)
    )
    return _wrap(tokenizer, "[CLS]", "[SEP]")


def bert(lowercase: bool = True) -> Tokenizer:
    """BERT, with the post-processor that older files have."""
    tokenizer = word_piece(normalizers.BertNormalizer(lowercase=lowercase), pre_tokenizers.BertPreTokenizer())
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def mpnet() -> Tokenizer:
    """MPNet: BERT's, with RoBERTa's special ids and a mask that takes the space before it."""
    tokenizer = bert()
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("Hello", single_word=True, rstrip=True, normalized=True)])
    tokenizer.post_processor = processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def modernbert(prefix_space: bool = False) -> Tokenizer:
    """ModernBERT: byte-level BPE after NFC, with runs of spaces as tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    special = ["[UNK]", "[CLS]", "[SEP]", "[PAD]"]
    tokenizer.train_from_iterator(
        _texts(),
        trainers.BpeTrainer(vocab_size=1500, initial_alphabet=ALPHABET, special_tokens=special, show_progress=False),
    )
    tokenizer.add_special_tokens([AddedToken("[MASK]", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(2, 25)])
    return _wrap(tokenizer, "[CLS]", "[SEP]")


def qwen(
    pattern: str = QWEN, ignore_merges: bool = False, texts: Sequence[str] | None = None, size: int = 2000
) -> Tokenizer:
    """Qwen and Llama 3: byte-level BPE over a split pattern of their own, one special id at the end."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.train_from_iterator(
        texts or _texts(), trainers.BpeTrainer(vocab_size=size, initial_alphabet=ALPHABET, show_progress=False)
    )
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    return _wrap(tokenizer, "", "<|endoftext|>")


def gemma(texts: Sequence[str] | None = None, size: int = 2500) -> Tokenizer:
    """Gemma: SentencePiece-style BPE over whole texts, unknown characters as bytes."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    special = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(
        texts or _texts(),
        trainers.BpeTrainer(
            vocab_size=size, limit_alphabet=300 if texts is None else 3000, special_tokens=special, show_progress=False
        ),
    )
    description = json.loads(tokenizer.to_str())
    description["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious",
                              "invert": False}  # fmt: skip
    # The bytes are ordinary pieces, which text does not name.
    description["added_tokens"] = [
        token for token in description["added_tokens"] if not token["content"].startswith("<0x")
    ]
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.add_tokens([AddedToken("\n" * n, normalized=False) for n in range(2, 5)])
    return _wrap(tokenizer, "<bos>", "<eos>")


def unigram(folder: Path, *, split_words: bool, byte_fallback: bool = False) -> Tokenizer:
    """XLM-R and E5 (`split_words`) or T5: unigram after SentencePiece's character map."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    model = train_pieces(
        folder / "unigram", normalization_rule_name="nmt_nfkc", vocab_size=1500, byte_fallback=byte_fallback
    )
    proto: Any = pb.ModelProto()  # type: ignore[attr-defined]
    proto.ParseFromString(model.read_bytes())
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=byte_fallback))
    charsmap = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.normalizer = normalizers.Sequence([charsmap, normalizers.Replace(Regex(" {2,}"), " ")])
    meta = pre_tokenizers.Metaspace()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta]) if split_words else meta
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return _wrap(tokenizer, "<s>", "</s>")


# Every other normalizer, pre-tokenizer and behavior, in chains that no published model has.
_N, _P = normalizers, pre_tokenizers
CHAINS: dict[str, Callable[[], Tokenizer]] = {
    "chain nfkd": lambda: word_piece(
        _N.Sequence([_N.NFKD(), _N.StripAccents(), _N.Lowercase(), _N.Strip()]), _P.Whitespace()
    ),
    "chain nfkc": lambda: word_piece(
        _N.Sequence([_N.NFKC(), _N.Prepend("x"), _N.Replace("a", "e")]),
        _P.Sequence([_P.WhitespaceSplit(), _P.Digits(True), _P.Punctuation("merged_with_previous")]),
    ),
    "chain nfd": lambda: word_piece(
        _N.Sequence([_N.NFD(), _N.Strip(left=False), _N.Nmt()]),
        _P.Sequence([_P.Punctuation("contiguous"), _P.Digits(False), _P.Split(" ", "merged_with_next")]),
    ),
    "chain nfc": lambda: word_piece(
        _N.NFC(), _P.Sequence([_P.Split(Regex(r"\w+\s?"), "contiguous", invert=True), _P.CharDelimiterSplit("e")])
    ),
}
KINDS: dict[str, Callable[[Path], Tokenizer]] = {
    "bert": lambda folder: bert(),
    "bert cased": lambda folder: bert(lowercase=False),
    "mpnet": lambda folder: mpnet(),
    "modernbert": lambda folder: modernbert(),
    "roberta": lambda folder: modernbert(prefix_space=True),
    "qwen": lambda folder: qwen(),
    "llama 3": lambda folder: qwen(LLAMA3, ignore_merges=True),
    "gemma": lambda folder: gemma(),
    "xlm-r, e5": lambda folder: unigram(folder, split_words=True),
    "t5": lambda folder: unigram(folder, split_words=False, byte_fallback=True),
    **{name: lambda folder, make=make: make() for name, make in CHAINS.items()},
}

# SentencePiece models, by what `tiny_models.train_pieces` is told to change.
PIECES: dict[str, dict[str, Any]] = {
    "unigram": {},
    "unigram-bytes-symbols": {
        "byte_fallback": True,
        "user_defined_symbols": ["<mask>", "▁foo", "ba", "😀😀"],
        "normalization_rule_name": "nmt_nfkc_cf",
    },
    "bpe": {"model_type": "bpe"},
    "bpe-bytes-symbols": {
        "model_type": "bpe",
        "byte_fallback": True,
        "user_defined_symbols": ["<mask>", "th"],
        "normalization_rule_name": "identity",
        "remove_extra_whitespaces": False,
    },
    "suffix": {"treat_whitespace_as_suffix": True, "normalization_rule_name": "nfkc"},
    "one-spelling": {"one_spelling": True},
    "no-prefix": {"add_dummy_prefix": False, "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
}

_BLOCKS = [
    (0x20, 0x7F), (0x20, 0x7F), (0, 0x20), (0x80, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700),
    (0x900, 0xE80), (0x1100, 0x1200), (0x2000, 0x2070), (0x20D0, 0x2200), (0x3040, 0x3100), (0x4E00, 0xA000),
    (0xAC00, 0xD7A4), (0xE000, 0xE100), (0xF900, 0xFB50), (0xFB50, 0x10000), (0x10000, 0x12000), (0x1D100, 0x1D800),
    (0x1F1E6, 0x1F200), (0x1F300, 0x1FB00), (0x20000, 0x32000), (0x40000, 0xE0000), (0xE0000, 0xE0200),
    (0xF0000, 0x110000),
]  # fmt: skip
_PICKED = " \t\r\n\u00a0\u3000\u200d\u200b\u200e\u202e\ufe0f\u00ad\ufeff\u2028\u0085\ufffd©İıßẞﬁΣς\u0344\u0958'’"
_REPEATED = [" ", "a", "\u0301", "x ", "가", "👍🏽", "\n", "ab", "'s", "9", "\u0e33", "🇳🇱", "नि", "<mask>", "▁"]


def fuzz_texts(count: int, seed: int) -> list[str]:
    """Texts of all planes: marks, controls, emoji, right-to-left, long runs, words of the corpus in between."""
    chosen = random.Random(seed)
    words = [word for text in golden_texts() for word in text.split()]

    def fragment() -> str:
        draw = chosen.random()
        if draw < 0.1:
            return chosen.choice(_PICKED)
        if draw < 0.15:
            return chosen.choice(words)
        return chr(chosen.randrange(*chosen.choice(blocks)))

    out = []
    for _ in range(count):
        blocks = chosen.sample(_BLOCKS, chosen.randrange(1, 4))
        if chosen.random() < 0.05:
            out.append(chosen.choice(_REPEATED) * chosen.randrange(1, 300))
        else:
            out.append("".join(fragment() for _ in range(chosen.choice([1, 2, 3, 5, 8, 20, 60]))))
    return out


def every_character() -> list[str]:
    """Every code point that is a character, each between two letters, 500 per text."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    return ["".join(f"a{chr(code)}b " for code in codes[i : i + 500]) for i in range(0, len(codes), 500)]
