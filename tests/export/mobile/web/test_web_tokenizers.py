"""The module's tokenizers against the libraries that they stand for: in Node; in Chromium with the shipped model."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import places
import pytest
from small_tokenizers import KINDS, PIECES, fuzz_texts
from tiny_models import train_pieces
from tokenizers import Tokenizer
from web_pages import answer_of_engine, node, site

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
SPM = ("unigram-bytes-symbols", "bpe-bytes-symbols", "suffix", "no-prefix")
LANGUAGES = ("eng_Latn", "deu_Latn", "spa_Latn", "fra_Latn", "ita_Latn", "nld_Latn", "tur_Latn", "arb_Arab")


def ids_in_node(sources: Path, module: str, file: Path, part: dict, texts: list[str]) -> list[list[int]]:
    request = file.with_suffix(".request.json")
    value = {"module": str(sources / module), "file": str(file), "part": part, "texts": texts}
    request.write_text(json.dumps(value))
    command = [node(), HERE / "tokenize.mjs", request]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows: list[list[int]] = json.loads(done.stdout)
    return rows


def differing(texts: list[str], found: list[list[int]], wanted: list[list[int]]) -> list[str]:
    assert len(found) == len(wanted)
    return [text for text, one, other in zip(texts, found, wanted, strict=True) if one != other]


def counts(quick, every) -> list:
    """Few texts for some tokenizers, many for all."""
    return [*((name, 300) for name in quick), *(pytest.param(name, 5000, marks=pytest.mark.slow) for name in every)]


@pytest.mark.parametrize(("name", "count"), counts(SPM, SPM))
def test_sentencepiece_models(sources, tmp_path, name, count):
    model = train_pieces(tmp_path / "pieces", **PIECES[name])
    oracle, texts = PieceTokenizer(model), golden_texts() + fuzz_texts(count, seed=11)
    part = {"bos_id": oracle.bos_id, "eos_id": oracle.eos_id}
    found = ids_in_node(sources, "sentencepiece.js", model, part, texts)
    assert differing(texts, found, oracle.encode(texts, 1 << 20)) == []


@pytest.mark.parametrize(("name", "count"), counts(COMMON, KINDS))
def test_compiled_tokenizers(sources, tmp_path, name, count):
    KINDS[name](tmp_path).save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer.bin").write_bytes(compile_tokenizer(tmp_path / "tokenizer.json"))
    texts = golden_texts() + fuzz_texts(count, seed=11)
    found = ids_in_node(sources, "compiled.js", tmp_path / "tokenizer.bin", {}, texts)
    wanted = [row.ids for row in Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode_batch(texts)]
    assert differing(texts, found, wanted) == []


def test_damaged_tokenizers_are_refused(sources, tmp_path):
    """Half a file, and noise, end in one line instead of a wrong id or a loop without end."""
    model = train_pieces(tmp_path / "pieces", **PIECES["unigram-bytes-symbols"])
    KINDS["mpnet"](tmp_path).save(str(tmp_path / "tokenizer.json"))
    compiled = compile_tokenizer(tmp_path / "tokenizer.json")
    raw = model.read_bytes()
    for number, (module, content) in enumerate([
        ("sentencepiece.js", raw[: len(raw) // 2]), ("sentencepiece.js", b"noise" * 99), ("sentencepiece.js", b""),
        ("compiled.js", compiled[: len(compiled) // 2]), ("compiled.js", b"noise" * 99), ("compiled.js", b""),
    ]):  # fmt: skip
        file = tmp_path / f"{number}.bin"
        file.write_bytes(content)
        with pytest.raises(AssertionError, match=r"EncoderError: .*damaged"):
            ids_in_node(sources, module, file, {"bos_id": 2, "eos_id": 3}, ["a text"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_shipped_model_in_browsers_on_flores_and_fuzz(tmp_path, engine):
    try:
        runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))
    texts = golden_texts() + fuzz_texts(5000, seed=5)
    folder = (places.data_folder() or Path("/nonexistent")) / "flores200" / "dev"
    for language in LANGUAGES if folder.is_dir() else ():
        with gzip.open(folder / f"{language}.dev.gz", "rt", encoding="utf-8") as lines:
            texts += [line.rstrip("\n") for line in lines]
    bundle, _ = export("msdc-mini", target="web", out=tmp_path / "bundle", with_runtime=True)
    (tmp_path / "request").mkdir()
    (tmp_path / "request/request.json").write_text(json.dumps({"texts": texts}))
    with site(page=HERE, bundle=bundle, request=tmp_path / "request") as opened:
        found = answer_of_engine(opened, "page/page.html#ids", engine)
    assert differing(texts, found["rows"], load_bundle(bundle).tokenize(texts)) == []
    assert found["selfTest"]["passed"]
