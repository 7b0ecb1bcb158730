"""The Python of a bundle's README runs next to the bundle, and gives the golden vectors."""

import os
import sys

import numpy as np
import pytest
import tiny_models
from markdown import blocks
from places import ROOT
from programs import run

from msdc.export.golden import read_golden
from msdc.export.manifest import read_manifest
from msdc.export.readme import bundle_readme


def test_executorch_without_msdc(tmp_path):
    bundle = tiny_models.bundle()
    (block,) = [candidate for candidate in blocks(bundle / "README.md", "python") if "executorch" in candidate.text]
    code = f"{block.text}\nimport numpy; numpy.save(r'{tmp_path / 'vector.npy'}', value.numpy())"
    run(sys.executable, "-c", code, cwd=bundle, env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"})
    assert np.allclose(np.load(tmp_path / "vector.npy")[0], read_golden(bundle)["vectors"]["executorch"][0], atol=1e-4)


@pytest.mark.parametrize("pooled", [True, False])
def test_the_code_of_one_forward_method_compiles(tmp_path, pooled):
    manifest = read_manifest(tiny_models.bundle())
    program = manifest.programs.executorch.model_copy(update={"style": "forward"})
    programs = manifest.programs.model_copy(update={"executorch": program})
    page = tmp_path / "README.md"
    page.write_text(bundle_readme(manifest.model_copy(update={"programs": programs, "include_prompt": pooled})))
    (block,) = [candidate for candidate in blocks(page, "python") if "executorch" in candidate.text]
    compile(block.text, "README.md", "exec")
    assert 'methods = ["forward"]' in block.text
    assert ("torch.tensor([0])" in block.text) != pooled
