"""Every field of a manifest with a value of every type: read, or refused in one line; in Python and the native core."""

import copy
import json
import random
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import tiny_models as tiny
from folder_kinds import kind_bundle
from native_core import seal
from native_fuzz import link

from msdc.errors import InputError
from msdc.export.bundle import defaults_of, open_tokenizer
from msdc.export.manifest import MANIFEST_FILE, read_manifest

ODD = (
    None, True, False, -1, 0, 1, 2, 2**31, 2**63, -(2**63), 1e308, 0.5, "", "x", "x" * 70_000, "\x00", "../x",
    "/etc/passwd", "\x1b[2J", [], [[]], [None] * 5000, {}, {"a": {"b": []}}, {"": None},
)  # fmt: skip
# Opens the encoder of each folder named on standard input; one line per folder.
DRIVER = r"""
#include <cstdio>
#include <iostream>
#include <string>

#include "msdc_encoder.h"

static int32_t zeros(void*, const int32_t*, size_t, size_t, float* vector, size_t width) {
  for (size_t i = 0; i < width; ++i) vector[i] = 0;
  return 0;
}

int main() {
  for (std::string folder; std::getline(std::cin, folder);) {
    char error[512];
    msdc_encoder* encoder = nullptr;
    int status = msdc_open_with(folder.c_str(), nullptr, "onnx", zeros, nullptr, &encoder, error, sizeof error);
    if (status == MSDC_OK) {
      float one = 0;
      const std::string text = "hello you";
      status = 100 + msdc_encode(encoder, nullptr, text.data(), text.size(), &one, 1, error, sizeof error);
      msdc_close(encoder);
    }
    std::printf("%d %s\n", status, error);
  }
}
"""


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all parts of a JSON value; of lists and of the files the first three."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, part) in enumerate(inner):
        if number < 3 or path not in (("files",), ("model", "config")):
            yield from places(part, (*path, key))


def changed(good: dict, path: tuple, odd: Any) -> Any:
    if not path:
        return odd
    out = copy.deepcopy(good)
    parent: Any = out
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = odd
    return out


def manifests(good: dict) -> list[Any]:
    out = [changed(good, path, odd) for path in places(good) for odd in ODD]
    for path in places(good):
        if path and isinstance(path[-1], str):
            less = changed(good, path, None)
            parent = less
            for key in path[:-1]:
                parent = parent[key]
            del parent[path[-1]]
            out.append(less)
    return out


@pytest.fixture(params=["pieces", "json"])
def bundle(request):
    return tiny.bundle() if request.param == "pieces" else kind_bundle("static", "both")[1]


def linked(bundle, folder, manifest) -> None:
    """A bundle with the same files and another manifest, its seal made right."""
    folder.mkdir()
    for path in bundle.iterdir():
        if path.name != MANIFEST_FILE:
            (folder / path.name).symlink_to(path)
    value = seal(manifest) if isinstance(manifest, dict) else json.dumps(manifest)
    (folder / MANIFEST_FILE).write_text(value, encoding="utf-8")


def test_in_python(bundle, tmp_path):
    good = json.loads((bundle / MANIFEST_FILE).read_text())
    read = refused = 0
    linked(bundle, folder := tmp_path / "bundle", good)
    for manifest in manifests(good):
        value = seal(manifest) if isinstance(manifest, dict) else json.dumps(manifest)
        (folder / MANIFEST_FILE).write_text(value, encoding="utf-8")
        try:
            read_back = read_manifest(folder)
            defaults_of(read_back).prompt()
            open_tokenizer(bundle, read_back)
            read += 1
        except InputError as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 1500
            refused += 1
    assert refused > 1000
    assert read > 50


def test_in_the_native_core(bundle, tmp_path):
    good = json.loads((bundle / MANIFEST_FILE).read_text())
    driver = link(*_driver(tmp_path))
    tried = random.Random(5).sample(manifests(good), 600)
    for number, manifest in enumerate(tried):
        linked(bundle, tmp_path / str(number), manifest)
    done = subprocess.run(
        [str(driver)], input="".join(f"{tmp_path / str(i)}\n" for i in range(len(tried))), capture_output=True,
        text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(answers) == len(tried)
    statuses = [int(status) for status, _ in answers]
    assert set(statuses) <= {1, 2, 3, 100, 101}
    assert statuses.count(100) > 20
    assert statuses.count(2) > 100
    assert all(line for status, line in answers if status != "100")


def _driver(folder):
    source = folder / "driver.cpp"
    source.write_text(DRIVER)
    return source, folder / "driver"
