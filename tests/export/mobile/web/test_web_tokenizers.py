"""The module's tokenizers in Node and Chromium: the libraries' ids, and what a hostile file can cost a page."""

import json
import random
from pathlib import Path

import places
import pytest
from native_bombs import BOMBS
from programs import ask_node
from small_tokenizers import KINDS, PIECES, fuzz_texts
from tiny_models import train_pieces
from tokenizers import Tokenizer
from web_pages import answer_of_engine, site
from web_tokenizers import ids_in_node, manifest_of, tokenizer_module

from msdc.bench.devices.web.browser import ENGINES
from msdc.errors import MsdcError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.golden import golden_texts
from msdc.export.mobile.web.npm import runtime_folder
from msdc.export.tokenizer.compile import compile_tokenizer
from msdc.text.tokenizer import PieceTokenizer

HERE = Path(__file__).parent
# One of each model: WordPiece with added tokens, byte-level BPE, unigram behind a character map.
COMMON = ("mpnet", "llama 3", "xlm-r, e5")
SPM = ("unigram-bytes-symbols", "bpe-bytes-symbols", "suffix", "one-spelling", "no-prefix")


@pytest.fixture(scope="module")
def module(tmp_path_factory) -> Path:
    return tokenizer_module(tmp_path_factory.mktemp("sources"))


def differing(texts: list[str], ids: list[list[int]], expected_ids: list[list[int]]) -> list[str]:
    assert len(ids) == len(expected_ids)
    return [text for text, row, expected_row in zip(texts, ids, expected_ids, strict=True) if row != expected_row]


def counts(quick, every) -> list:
    """Few texts for some tokenizers, many for all."""
    return [*((name, 300) for name in quick), *(pytest.param(name, 5000, marks=pytest.mark.slow) for name in every)]


@pytest.mark.parametrize(("name", "count"), counts(SPM, SPM))
def test_sentencepiece_models(module, tmp_path, name, count):
    model = train_pieces(tmp_path / "pieces", **PIECES[name])
    oracle, texts = PieceTokenizer(model), golden_texts() + fuzz_texts(count, seed=11)
    ids = ids_in_node(module, model, manifest_of("sentencepiece", oracle.bos_id, oracle.eos_id), texts)
    assert differing(texts, ids, oracle.encode(texts, 1 << 20)) == []


@pytest.mark.parametrize(("name", "count"), counts(COMMON, KINDS))
def test_compiled_tokenizers(module, tmp_path, name, count):
    KINDS[name](tmp_path).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer.bin").write_bytes(compile_tokenizer(tmp_path / "tokenizer.json"))
    texts = golden_texts() + fuzz_texts(count, seed=11)
    ids = ids_in_node(module, tmp_path / "tokenizer.bin", manifest_of("tokenizer-json"), texts)
    expected_ids = [row.ids for row in Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode_batch(texts)]
    assert differing(texts, ids, expected_ids) == []


def test_damaged_tokenizers_are_refused(module, tmp_path):
    """Half a file, and noise, end in one line instead of a wrong id or a loop without end."""
    model = train_pieces(tmp_path / "pieces", **PIECES["unigram-bytes-symbols"])
    KINDS["mpnet"](tmp_path).save(str(tmp_path / "tokenizer.json"))
    compiled = compile_tokenizer(tmp_path / "tokenizer.json")
    raw = model.read_bytes()
    for number, (kind, content) in enumerate([
        ("sentencepiece", raw[: len(raw) // 2]), ("sentencepiece", b"noise" * 99), ("sentencepiece", b""),
        ("tokenizer-json", compiled[: len(compiled) // 2]), ("tokenizer-json", b"noise" * 99), ("tokenizer-json", b""),
    ]):  # fmt: skip
        file = tmp_path / f"{number}.bin"
        file.write_bytes(content)
        with pytest.raises(AssertionError, match=r"EncoderError: bundle/tokenizer: "):
            ids_in_node(module, file, manifest_of(kind), ["a text"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_shipped_model_in_browsers_on_flores_and_fuzz(tmp_path, engine):
    try:
        runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))
    texts = golden_texts() + fuzz_texts(5000, seed=5)
    if places.data_folder():
        texts += places.flores(200)
    bundle, _ = export("msdc-mini", target="web", output=tmp_path / "bundle", with_runtime=True)
    (tmp_path / "request").mkdir()
    (tmp_path / "request/request.json").write_text(json.dumps({"texts": texts}))
    with site(page=HERE, bundle=bundle, request=tmp_path / "request") as opened:
        report = answer_of_engine(opened, "page/page.html#ids", engine)
    assert differing(texts, report["rows"], load_bundle(bundle).tokenize(texts)) == []
    assert report["selfTest"]["passed"]


READERS = {"pieces": "sentencepiece", "compiled": "tokenizer-json"}
# Refused when they are opened, as by the native core.
REFUSED = {
    "pieces": ["one-long", "fields-in-a-piece", "fields-between", "empty-pieces", "equal-hashes"],
    "compiled": ["long-replacement", "long-mark", "long-prefix", "rules", "steps"],
}
TEXTS = ["", "a", "x" * 300, "x " * 200, "a text of words, 123!", "ab" * 400, "\u00e9\u4e2d\U0001f600" * 50, " " * 300]


def outcomes(module: Path, folder: Path, target: str, files: list[Path], texts: list[str]) -> list[dict]:
    request = {"module": str(module), "files": list(map(str, files)), "texts": texts,
               "manifest": manifest_of(READERS[target], 0, 0)}  # fmt: skip
    # No bound would take hours; a slow machine takes seconds.
    answers: list[dict] = ask_node(HERE / "bounds.mjs", folder, request)
    for file, answer in zip(files, answers, strict=True):
        for error in (answer["opened"], *answer["texts"]):
            assert error == "" or (error.startswith("EncoderError: ") and "\n" not in error), (file.name, error)
    return answers


def written(folder: Path, target: str, size: int) -> list[Path]:
    for name, make in BOMBS[target].items():
        (folder / name).write_bytes(make(size))
    return [folder / name for name in BOMBS[target]]


@pytest.mark.parametrize("target", READERS)
def test_bombs_are_refused_or_read_in_bounded_work(module, tmp_path, target):
    files = written(tmp_path, target, 40_000)
    outcome_of = dict(zip([file.name for file in files], outcomes(module, tmp_path, target, files, TEXTS), strict=True))
    assert [name for name in REFUSED[target] if outcome_of[name]["opened"] == ""] == []
    assert outcome_of["small"]["opened"] == ""
    assert set(outcome_of["small"]["texts"]) == {""}


def test_a_text_that_a_tokenizer_blows_up_is_refused(module, tmp_path):
    names = {"pieces": ["long-replacement"], "compiled": ["replacements", "marks"]}
    for target, bombs in names.items():
        files = [file for file in written(tmp_path, target, 40_000) if file.name in bombs]
        for outcome in outcomes(module, tmp_path, target, files, ["x x" * 100]):
            assert "makes this text too long" in outcome["texts"][0] or "too many steps" in outcome["texts"][0], outcome


def test_work_of_one_text_is_bounded_and_the_next_text_is_not_refused(module, tmp_path):
    (file,) = [file for file in written(tmp_path, "compiled", 40_000) if file.name == "backtracking"]
    (outcome,) = outcomes(module, tmp_path, "compiled", [file], ["x" * 5000, "a", "x" * 5000])
    assert "too many steps" in outcome["texts"][0] or "backtracks too much" in outcome["texts"][0]
    assert outcome["texts"][1] == ""
    assert outcome["texts"][0] == outcome["texts"][2]


def mutated(folder: Path, target: str, count: int, kinds: tuple[str, ...] = ("gemma",)) -> list[Path]:
    """Files of the kind with bytes changed, cut and repeated, from a fixed seed."""
    seeds = [train_pieces(folder / "seed", byte_fallback=True, user_defined_symbols=["<mask>", "ba"]).read_bytes()]
    if target == "compiled":
        seeds = []
        for kind in kinds:
            KINDS[kind](folder).save(str(folder / "tokenizer.json"))
            seeds.append(compile_tokenizer(folder / "tokenizer.json"))
    chance = random.Random(15)
    files = []
    for number in range(count):
        raw = bytearray(chance.choice(seeds))
        # Descriptions are at the front of both kinds; the rest is mostly text.
        reach = min(len(raw), chance.choice((200, 2000, len(raw))))
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(reach)] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        if chance.random() < 0.1:
            del raw[chance.randrange(len(raw)) :]
        files.append(folder / f"{number}.bin")
        files[-1].write_bytes(raw)
    return files


@pytest.mark.parametrize(("target", "count"), [("pieces", 60), ("compiled", 25)])
def test_mutated_files_end_in_one_line(module, tmp_path, target, count):
    answers = outcomes(module, tmp_path, target, mutated(tmp_path, target, count), TEXTS[1:5])
    assert {answer["opened"] == "" for answer in answers} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("target", READERS)
def test_large_bombs_and_many_mutated_files(module, tmp_path, target):
    outcomes(module, tmp_path, target, written(tmp_path, target, 900_000), TEXTS)
    outcomes(module, tmp_path, target, mutated(tmp_path, target, 1500, ("mpnet", "llama 3", "xlm-r, e5")), TEXTS)
