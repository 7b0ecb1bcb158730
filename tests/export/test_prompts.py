"""Prompts and widths go from the folder into the bundle, and a bundle needs no sentence-transformers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from folder_kinds import MODES, PROMPTS, write_folder
from prompt_bundles import kind_bundle
from stock_models import TEXTS

import msdc
from msdc.errors import InputError
from msdc.export import export, origin
from msdc.export.cli import command
from msdc.export.manifest import read_manifest

SAMPLE = [*TEXTS, "  spaces ", "The BIG Dog"]


@pytest.mark.parametrize("kind", ["default prompt", "truncate_dim"])
def test_bundle_applies_what_the_folder_says(kind, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = write_folder(tmp_path / "folder", kind)
    theirs = SentenceTransformer(str(folder), device="cpu")
    out, manifest = export(str(folder), target="web", precision="fp32", out=tmp_path / "out")
    bundle = msdc.load_bundle(out)
    assert bundle.width == msdc.load_encoder(folder).width == theirs.encode(["x"]).shape[1]
    assert {**manifest.prompts, **PROMPTS} == manifest.prompts
    for settings in ({}, {"prompt_name": "passage"}, {"prompt": "a "}, {"truncate_dim": 5}):
        np.testing.assert_allclose(bundle.encode(SAMPLE, **settings), theirs.encode(SAMPLE, **settings), atol=1e-5)
    with pytest.raises(InputError, match="no prompt 'qery'"):
        bundle.encode(SAMPLE, prompt_name="qery")
    code = (
        "import sys, msdc\nsys.modules['sentence_transformers'] = sys.modules['transformers'] = None\n"
        f"print(msdc.load_bundle({str(out)!r}).encode(['a dog'], prompt_name='query').shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str((1, bundle.width))


NOT_POOLED = tuple(f"prompt not pooled, {mode}" for mode in MODES)


@pytest.mark.parametrize(
    ("kind", "runtimes"),
    [
        (NOT_POOLED[MODES.index("mean")], ("onnx",)),
        *(pytest.param(k, ("executorch", "onnx"), marks=pytest.mark.slow) for k in (*NOT_POOLED, "instructor")),
    ],
)
def test_pooling_without_the_prompt(kind, runtimes, monkeypatch):
    """Programs of `include_prompt: false` take the number of the prompt's tokens."""
    from sentence_transformers import SentenceTransformer

    folder, out = kind_bundle(kind, "both" if len(runtimes) == 2 else runtimes[0])
    manifest = read_manifest(out)
    theirs = SentenceTransformer(str(folder), device="cpu")
    assert not manifest.include_prompt and manifest.model.config["way"] == "generic"
    for runtime in runtimes:
        bundle = msdc.load_bundle(out, runtime=runtime)
        for settings in ({}, {"prompt_name": "passage"}, {"prompt": "the cat: "}, {"prompt": ""}):
            expected = theirs.encode(SAMPLE, **settings)
            np.testing.assert_allclose(bundle.encode(SAMPLE, **settings), expected, atol=2e-5, err_msg=str(settings))
        # Of one text alone: a batch of one is another path in ONNX.
        np.testing.assert_allclose(bundle.encode(["a dog"]), theirs.encode(["a dog"]), atol=2e-5)
    if "executorch" in runtimes:
        # Loaded as a stranger's would be: first in a child process.
        monkeypatch.setattr(origin, "is_known", lambda sha256: False)
        assert msdc.load_bundle(out, runtime="executorch").encode(["a dog"]).shape == (1, manifest.width)
    # The prompt is read all the same: it is only not pooled.
    assert np.abs(theirs.encode(SAMPLE) - theirs.encode(SAMPLE, prompt="")).max() > 1e-3


def test_the_canonical_exporter_pools_every_token(tmp_path):
    folder = write_folder(tmp_path / "folder", "prompt not pooled, mean")
    with pytest.raises(InputError, match=r"leaves the prompt's tokens out \(include_prompt: false\)"):
        export(str(folder), target="web", way="canonical", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "runtimes"),
    [("static", ("executorch", "onnx")), ("static with truncation", ("onnx",)), ("model2vec", ("onnx",))],
)
def test_static_folders(kind, runtimes):
    from sentence_transformers import SentenceTransformer

    folder, out = kind_bundle(kind, "both" if len(runtimes) == 2 else runtimes[0])
    manifest = read_manifest(out)
    theirs = SentenceTransformer(str(folder), device="cpu")
    texts = [*SAMPLE, "", "  \t ", "the dog " * 30]
    expected = theirs.encode(texts)
    assert not expected[len(SAMPLE)].any() and expected[0].any()
    for runtime in runtimes:
        bundle = msdc.load_bundle(out, runtime=runtime)
        np.testing.assert_allclose(bundle.encode(texts), expected, atol=2e-5)
        assert bundle.encode(["", " "]).shape == (2, manifest.width) and not bundle.encode([" "]).any()


def test_a_module_that_cannot_be_written_fails_the_export(tmp_path):
    folder = write_folder(tmp_path / "folder", "no normalisation")
    with pytest.raises(InputError, match=r"no ios module: .*--no-module"):
        export(folder, target="ios", runtime="onnx", precision="fp32", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    words = [folder, "--target", "ios", "--runtime", "onnx", "--precision", "fp32", "-o", tmp_path / "out"]
    done = CliRunner().invoke(command, [*map(str, words), "--no-module"], catch_exceptions=False)
    assert done.exit_code == 0 and (tmp_path / "out/bundle.json").is_file(), done.output[-500:]
    assert not (tmp_path / "out/ios").exists()
