"""Prompts and widths go from the folder into the bundle, and a bundle needs no sentence-transformers."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner
from folder_kinds import PROMPTS, write_folder
from stock_models import TEXTS

import msdc
from msdc.errors import InputError
from msdc.export.cli import command
from msdc.export.export import ExportRequest, export_model

SAMPLE = [*TEXTS, "  spaces ", "The BIG Dog"]


@pytest.mark.parametrize("kind", ["default prompt", "truncate_dim"])
def test_bundle_applies_what_the_folder_says(kind, tmp_path):
    from sentence_transformers import SentenceTransformer

    folder = write_folder(tmp_path / "folder", kind)
    theirs = SentenceTransformer(str(folder), device="cpu")
    out, manifest = export_model(ExportRequest(str(folder), "web", precision="fp32", out=tmp_path / "out"))
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


def test_pooling_without_the_prompt_is_refused_at_export(tmp_path):
    folder = write_folder(tmp_path / "folder", "prompt not pooled, mean")
    with pytest.raises(InputError, match="include_prompt: false"):
        export_model(ExportRequest(str(folder), "web", out=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_module_that_cannot_be_written_fails_the_export(tmp_path):
    folder = write_folder(tmp_path / "folder", "no normalisation")
    request = ExportRequest(str(folder), "ios", runtime="onnx", precision="fp32", out=tmp_path / "out")
    with pytest.raises(InputError, match=r"no ios module: .*--no-module"):
        export_model(request)
    assert not (tmp_path / "out").exists()
    words = [folder, "--target", "ios", "--runtime", "onnx", "--precision", "fp32", "-o", tmp_path / "out"]
    done = CliRunner().invoke(command, [*map(str, words), "--no-module"], catch_exceptions=False)
    assert done.exit_code == 0 and (tmp_path / "out/bundle.json").is_file(), done.output[-500:]
    assert not (tmp_path / "out/ios").exists()
