"""What the measurements of an artifact say about its files."""

import zlib

import pytest

from msdc.bench.measure import artifact_of
from msdc.export.manifest import read_manifest


@pytest.mark.parametrize("runtime", ["onnx", "executorch"])
def test_bytes_of_an_artifact_are_those_of_all_its_files(tiny_bundle, runtime):
    """The weights of an ONNX program are in a second file: without it the program has a tenth of its bytes."""
    manifest = read_manifest(tiny_bundle)
    artifact = artifact_of(tiny_bundle, manifest, runtime)
    tokenizer = manifest.tokenizer.native_file or manifest.tokenizer.file
    programs = {"onnx": ["model.onnx", "model.onnx.data"], "executorch": ["model.pte"]}[runtime]
    contents = {name: (tiny_bundle / name).read_bytes() for name in [*programs, tokenizer]}
    assert artifact.bytes == sum(len(contents[name]) for name in programs)
    assert artifact.bundle_bytes == sum(map(len, contents.values()))
    compressed = sum(len(zlib.compress(content)) for content in contents.values())
    assert artifact.compressed_bytes == pytest.approx(compressed, rel=0.02)
