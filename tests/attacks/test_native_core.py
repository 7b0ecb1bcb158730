"""Malicious bundles against the native core, with the address and undefined-behaviour sanitizers."""

import json
import random
import subprocess
from pathlib import Path

import pytest
from native_core import seal, write_compiled_bundle, write_piece_bundle
from native_fuzz import link
from small_tokenizers import KINDS
from tiny_models import train_pieces

from msdc.export.tokenizer.compile import compile_tokenizer

# Opens each folder named on standard input and, if that works, tokenizes; one line per folder.
DRIVER = r"""
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "msdc_encoder.h"

static int32_t zeros(void*, const int32_t*, size_t, size_t, float* vector, size_t width) {
  for (size_t i = 0; i < width; ++i) vector[i] = 0;
  return 0;
}

int main() {
  const std::string texts[] = {"", " ", "hello you \xF0\x9F\x98\x80 \xEF\xAC\x81", "\xFF\xC3(", std::string(3000, 'x'),
                               "der Hund l\xC3\xA4uft \xE2\x96\x81 <mask>"};
  std::vector<int32_t> ids(1 << 16);
  for (std::string folder; std::getline(std::cin, folder);) {
    char error[512];
    msdc_tokenizer* tokenizer = nullptr;
    int status = msdc_tokenizer_open(folder.c_str(), 0, &tokenizer, error, sizeof error);
    if (status == MSDC_OK) {
      for (const std::string& text : texts) {
        size_t count = 0;
        msdc_tokenize(tokenizer, text.data(), text.size(), ids.data(), ids.size(), &count, error, sizeof error);
      }
      msdc_tokenizer_close(tokenizer);
    }
    msdc_encoder* encoder = nullptr;
    if (msdc_open_with(folder.c_str(), nullptr, "executorch", zeros, nullptr, &encoder, error, sizeof error) ==
        MSDC_OK) {
      msdc_self_test_result result;
      status = 100 + msdc_self_test(encoder, 0.9f, &result, error, sizeof error);
      msdc_close(encoder);
    }
    std::printf("%d %s\n", status, error);
  }
  return 0;
}
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    source = tmp_path_factory.mktemp("driver") / "driver.cpp"
    source.write_text(DRIVER)
    return link(source, source.with_suffix(""))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> bytes:
    changes = {"byte_fallback": True, "user_defined_symbols": ["<mask>", "ba"]}
    return train_pieces(tmp_path_factory.mktemp("pieces") / "pieces", **changes).read_bytes()


def drive(driver: Path, folders: list[Path]) -> list[tuple[int, str]]:
    done = subprocess.run(
        [str(driver)], input="".join(f"{folder}\n" for folder in folders), capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(answers) == len(folders)
    return [(int(status), rest) for status, rest in answers]


def test_damaged_tokenizers(driver, model, tmp_path):
    chosen = random.Random(3)
    mutants = [model[: chosen.randrange(len(model))] for _ in range(40)]
    for _ in range(200):
        raw = bytearray(model)
        # Pieces are at the front, specifications and the character map at the back: damage both.
        for _ in range(chosen.choice([1, 2, 8])):
            where = chosen.randrange(len(raw)) if chosen.random() < 0.5 else len(raw) - 1 - chosen.randrange(3000)
            raw[where] = chosen.randrange(256)
        mutants.append(bytes(raw))
    mutants += [b"", b"\0", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a" * 1000, model + b"\x0a\x7f", b"\x7fELF" * 50]
    folders = [write_piece_bundle(tmp_path / str(i), raw, size=1000, max_length=512) for i, raw in enumerate(mutants)]
    answers = drive(driver, folders)
    assert {status for status, _ in answers} <= {0, 2, 3, 5}
    assert sum(status != 0 for status, _ in answers) > 40
    assert all(line for status, line in answers if status != 0)


@pytest.mark.parametrize("kind", ["mpnet", "gemma", "xlm-r, e5", "chain nfkc"])
def test_damaged_compiled_tokenizers(driver, kind, tmp_path):
    """Truncations, flipped bits and hostile numbers in every table, the description and the header most often."""
    chosen = random.Random(5)
    source = tmp_path / "tokenizer.json"
    KINDS[kind](tmp_path).save(str(source))
    compiled = compile_tokenizer(source)
    tables = int.from_bytes(compiled[12:16], "little")
    starts = [int.from_bytes(compiled[20 + 8 * i : 24 + 8 * i], "little") for i in range(tables)]
    hostile = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, len(compiled), 1 << 20, 4096]
    mutants = [compiled[: chosen.randrange(len(compiled))] for _ in range(15)] + [
        b"",
        compiled[:8],
        compiled + b"\0" * 4,
    ]
    for _ in range(130):
        raw = bytearray(compiled)
        for _ in range(chosen.choice([1, 1, 3, 20])):
            draw = chosen.random()
            start = starts[0] if draw < 0.4 else chosen.choice(starts) if draw < 0.8 else 8
            position = min(start + 4 * chosen.randrange(40), len(raw) - 4)
            if chosen.random() < 0.5:
                raw[position : position + 4] = chosen.choice(hostile).to_bytes(4, "little")
            else:
                raw[chosen.randrange(len(raw)) if draw > 0.9 else position + chosen.randrange(4)] ^= (
                    1 << chosen.randrange(8)
                )
        mutants.append(bytes(raw))
    folders = [write_compiled_bundle(tmp_path / str(i), raw) for i, raw in enumerate(mutants)]
    answers = drive(driver, folders)
    assert {status for status, _ in answers} <= {0, 1, 2, 3, 5}
    assert sum(status != 0 for status, _ in answers) > 30
    assert all(line for status, line in answers if status not in (0,))


HOSTILE = [
    {"max_length": 0}, {"max_length": 1}, {"max_length": 2**31}, {"max_length": -5}, {"max_length": 1.5},
    {"max_length": "9"}, {"width": 0}, {"width": 2**40}, {"vocabulary": 3}, {"vocabulary": None}, {"format": 2},
    {"files": []}, {"files": {}},
    {"tokenizer": None}, {"programs": {"executorch": {"file": "../../etc/passwd", "style": "forward", "repeats": 1}}},
    {"programs": {"executorch": {"file": "/etc/passwd", "style": "forward", "repeats": 1}}},
    {"programs": {"executorch": {"file": "a/../../b", "style": "forward", "repeats": 1}}},
    {"programs": {"executorch": {"file": "model.pte", "style": "other", "repeats": 1}}},
    {"programs": {"executorch": {"file": "model.pte", "style": "forward", "repeats": 2**40}}},
]  # fmt: skip


def test_hostile_manifests(driver, model, tmp_path):
    folders = [
        write_piece_bundle(tmp_path / str(i), model, **{"size": 1000, "max_length": 512} | changes)
        for i, changes in enumerate(HOSTILE)
    ]
    for tokenizer in (
        {"bos_id": -1}, {"bos_id": 10**6}, {"eos_id": None}, {"file": "..\\x"}, {"file": "../tokenizer.model"},
        {"file": "tokenizer.model\0"}, {"file": ""}, {"kind": 7},
    ):  # fmt: skip
        part = {"kind": "sentencepiece", "file": "tokenizer.model", "bos_id": 2, "eos_id": 3, "pad_id": 0, "unk_id": 1}
        folders.append(write_piece_bundle(tmp_path / f"t{len(folders)}", model, size=1000, tokenizer=part | tokenizer))
    good = json.loads(
        seal(json.loads((write_piece_bundle(tmp_path / "good", model, size=1000) / "bundle.json").read_text()))
    )
    manifest_json = json.dumps(good)
    texts = [
        "", "{", "[]", "null", "{" * 5000, "[" * 100000, '{"format": 1e999}', '{"a": "\\ud800"}', '{"a": 1, "a": 1}',
        "\ufeff{}", manifest_json[:-1], manifest_json, manifest_json.replace("pieces", "Pieces"), "x" * 2_000_000,
    ]  # fmt: skip
    for text in texts:
        folder = write_piece_bundle(tmp_path / f"m{len(folders)}", model, size=1000)
        (folder / "bundle.json").write_text(text, encoding="utf-8")
        folders.append(folder)
    answers = drive(driver, folders)
    assert all(status in (2, 3) and line for status, line in answers), [a for a in answers if a[0] not in (2, 3)]


def test_damaged_golden_vectors(driver, model, tmp_path):
    """The self-test reads golden.json and must answer whatever its content."""
    import hashlib

    rows = {"texts": ["a"], "ids": [[2, 3]], "width": 4, "vectors": {"executorch": "AACAPwAAAAAAAAAAAAAAAA=="}}
    cases = [
        rows, rows | {"texts": []}, rows | {"ids": []}, rows | {"ids": [[]]}, rows | {"ids": [[10**9]]},
        rows | {"ids": [[-4]]}, rows | {"width": 5}, rows | {"vectors": {}}, rows | {"vectors": {"executorch": "A"}},
        rows | {"vectors": {"executorch": "?"}}, rows | {"vectors": {"executorch": "//////////////////////=="}},
        rows | {"texts": [1]}, rows | {"ids": [["a"]]}, {}, [],
    ]  # fmt: skip
    folders = []
    for number, case in enumerate(cases):
        folder = tmp_path / str(number)
        folder.mkdir()
        files = {"tokenizer.model": model, "golden.json": json.dumps(case).encode(), "model.pte": b"anything"}
        listed = {name: {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)} for name, raw in files.items()}
        programs = {"executorch": {"file": "model.pte", "style": "forward", "repeats": 1}, "onnx": None}
        write_piece_bundle(folder, model, size=1000, max_length=512, files=listed, programs=programs)
        for name, raw in files.items():
            (folder / name).write_bytes(raw)
        folders.append(folder)
    answers = drive(driver, folders)
    # 100 + the self-test's own status: never OK, because the program gives zeros.
    assert all(status in (101, 102, 106) and line for status, line in answers), answers
