"""Bundles of the generic exporter that were tampered with: refused in one line, by Python and by the native core."""

from __future__ import annotations

import shutil

import pytest
from native_core import CORE, CoreError, CoreTokenizer, compile_cpp, core_sources
from prompt_bundles import UNPOOLED, kind_bundle
from refusals import one_line, reseal
from tiny_models import once

from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest


@pytest.fixture(params=["static", UNPOOLED])
def copy(request, tmp_path):
    _, bundle = kind_bundle(request.param, "both" if request.param == "static" else "onnx")
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    return folder


@pytest.fixture(scope="module")
def core_library():
    """The native core without a runtime."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    arguments = ("-std=c++17", "-O1", "-shared", "-fPIC", f"-I{CORE / 'include'}", *core_sources())
    return once("libmsdc_core_plain.so", lambda target: compile_cpp(target, *arguments))


def test_tampered_tokenizers(copy, core_library):
    path = copy / "tokenizer.bin"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert "tokenizer.bin" in one_line(lambda: load_bundle(copy))
    with pytest.raises(CoreError, match=r"tokenizer\.bin: sha256 differs"):
        CoreTokenizer(core_library, copy)
    # With a new hash it is still no tokenizer once its header or its description is gone.
    for damaged in (raw[:64], b"\0" * len(raw), raw[: len(raw) // 2]):
        path.write_bytes(damaged)
        reseal(copy)
        with pytest.raises(CoreError) as refused:
            CoreTokenizer(core_library, copy)
        assert refused.value.status == 2 and "\n" not in refused.value.line


def test_a_manifest_that_tells_of_another_way(copy):
    """Methods and inputs are those of the program, whatever the manifest says of prompts and styles."""
    includes = read_manifest(copy).include_prompt
    reseal(copy, include_prompt=not includes)
    for runtime in read_manifest(copy).runtimes:
        wanted = "does not take 2 tensors" if runtime == "executorch" else "the program's inputs are"
        assert wanted in one_line(lambda: load_bundle(copy, runtime=runtime))  # noqa: B023
    reseal(copy, include_prompt=includes)
    part = read_manifest(copy).programs.executorch
    if part is not None:
        reseal(copy, programs={"executorch": part.model_copy(update={"style": "multi-method"})})
        assert "no method embed" in one_line(lambda: load_bundle(copy, runtime="executorch"))
