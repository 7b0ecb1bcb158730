"""What a tokenizer's file can cost a page: the native core's bombs, and mutated files, in Node."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

import pytest
from native_bombs import BOMBS
from small_tokenizers import KINDS
from tiny_models import train_pieces
from web_pages import node

from msdc.export.tokenizer.compile import compile_tokenizer

HERE = Path(__file__).parent
MODULES = {"pieces": "sentencepiece.js", "compiled": "compiled.js"}
# Refused when they are opened, as by the native core.
REFUSED = {
    "pieces": ["one-long", "fields-in-a-piece", "fields-between", "empty-pieces", "equal-hashes"],
    "compiled": ["long-replacement", "long-mark", "long-prefix", "rules", "steps"],
}
TEXTS = ["", "a", "x" * 300, "x " * 200, "a text of words, 123!", "ab" * 400, "\u00e9\u4e2d\U0001f600" * 50, " " * 300]
# No bound would take hours; a slow machine takes seconds.
TIMEOUT_S = 900


def outcomes(sources: Path, folder: Path, target: str, files: list[Path], texts: list[str]) -> list[dict]:
    request = {"module": str(sources / MODULES[target]), "files": list(map(str, files)), "texts": texts,
               "part": {"bos_id": 2, "eos_id": 3}}  # fmt: skip
    (folder / "request.json").write_text(json.dumps(request))
    command = [node(), HERE / "bounds.mjs", folder / "request.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[dict] = json.loads(done.stdout)
    for file, one in zip(files, found, strict=True):
        for error in (one["opened"], *one["texts"]):
            assert error == "" or (error.startswith("EncoderError: ") and "\n" not in error), (file.name, error)
    return found


def written(folder: Path, target: str, size: int) -> list[Path]:
    files = []
    for name, make in BOMBS[target].items():
        files.append(folder / name)
        files[-1].write_bytes(make(size))
    return files


@pytest.mark.parametrize("target", MODULES)
def test_bombs_are_refused_or_read_in_bounded_work(sources, tmp_path, target):
    files = written(tmp_path, target, 40_000)
    found = dict(zip([file.name for file in files], outcomes(sources, tmp_path, target, files, TEXTS), strict=True))
    assert [name for name in REFUSED[target] if "damaged" not in found[name]["opened"]] == []
    assert found["small"]["opened"] == "" and set(found["small"]["texts"]) == {""}


def test_a_text_that_a_tokenizer_blows_up_is_refused(sources, tmp_path):
    names = {"pieces": ["long-replacement"], "compiled": ["replacements", "marks"]}
    for target, bombs in names.items():
        files = [file for file in written(tmp_path, target, 40_000) if file.name in bombs]
        for one in outcomes(sources, tmp_path, target, files, ["x x" * 100]):
            assert "makes this text too long" in one["texts"][0] or "too many steps" in one["texts"][0], one


def test_work_of_one_text_is_bounded_and_the_next_text_is_not_refused(sources, tmp_path):
    (file,) = [file for file in written(tmp_path, "compiled", 40_000) if file.name == "backtracking"]
    (one,) = outcomes(sources, tmp_path, "compiled", [file], ["x" * 5000, "a", "x" * 5000])
    assert "too many steps" in one["texts"][0] or "backtracks too much" in one["texts"][0]
    assert one["texts"][1] == "" and one["texts"][0] == one["texts"][2]


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
    for i in range(count):
        raw = bytearray(chance.choice(seeds))
        # Descriptions are at the front of both kinds; the rest is mostly text.
        reach = min(len(raw), chance.choice((200, 2000, len(raw))))
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(reach)] = chance.choice((0, 1, 127, 128, 255, chance.randrange(256)))
        if chance.random() < 0.1:
            del raw[chance.randrange(len(raw)) :]
        files.append(folder / f"{i}.bin")
        files[-1].write_bytes(raw)
    return files


@pytest.mark.parametrize(("target", "count"), [("pieces", 60), ("compiled", 25)])
def test_mutated_files_end_in_one_line(sources, tmp_path, target, count):
    found = outcomes(sources, tmp_path, target, mutated(tmp_path, target, count), TEXTS[1:5])
    assert {one["opened"] == "" for one in found} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("target", MODULES)
def test_large_bombs_and_many_mutated_files(sources, tmp_path, target):
    outcomes(sources, tmp_path, target, written(tmp_path, target, 900_000), TEXTS)
    outcomes(sources, tmp_path, target, mutated(tmp_path, target, 1500, ("mpnet", "llama 3", "xlm-r, e5")), TEXTS)
