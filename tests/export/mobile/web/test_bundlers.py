"""The web module in an app that esbuild bundles, run in Chromium: the way that docs/guides/web.md describes."""

import functools
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from web_pages import answer_of_engine, site

from msdc.bench.toolchain.packages import cached_folder
from msdc.errors import MsdcError
from msdc.export.bundle import load_bundle
from msdc.export.exporters import write_bundle
from msdc.export.mobile.web import npm
from msdc.export.options import ExportSettings

HERE = Path(__file__).parent
ESBUILD = "esbuild@0.28.2"
TEXTS = ["a cat sat", "the dog ran to the house", ""]
APP = """
import { Encoder } from %s;

export default async function run() {
  const encoder = await Encoder.load("/bundle");
  return { rows: (await encoder.encode(%s)).map((row) => [...row]), selfTest: await encoder.selfTest() };
}
"""


def _install(stage: Path) -> None:
    # Its install script only checks the program of this platform, which is a package of its own.
    done = subprocess.run(
        ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", ESBUILD], cwd=stage, check=False
    )
    if done.returncode:
        raise MsdcError(f"npm cannot fetch {ESBUILD}")


@functools.cache
def esbuild() -> Path:
    """The program, fetched once; skips the test where it cannot be."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm and node not found: apt-get install npm")
    try:
        npm.runtime_folder()
        folder = cached_folder("esbuild", {"package": ESBUILD, "format": 1}, _install)
    except MsdcError as error:
        pytest.skip(str(error))
    return folder / "node_modules/esbuild/bin/esbuild"


@pytest.mark.parametrize("with_runtime", [True, False])
def test_an_app_of_esbuild(with_runtime, tmp_path):
    tool = esbuild()
    options = ExportSettings(target="web", precision="int8", thresholds=tiny.LOOSE, with_runtime=with_runtime)
    bundle = tmp_path / "bundle"
    write_bundle(tiny.student(), tiny.tokenizer(), bundle, options=options)
    module, built = bundle / "web/msdc.js", tmp_path / "built"
    (tmp_path / "app.js").write_text(APP % (json.dumps(str(module)), json.dumps(TEXTS)))
    runtime = npm.runtime_folder()
    # In place of a node_modules with the whole package.
    alias = "--external:onnxruntime-web" if with_runtime else f"--alias:onnxruntime-web/wasm={runtime / npm.SCRIPT}"
    subprocess.run(
        ["node", tool, tmp_path / "app.js", f"msdc={module}", "--bundle", "--format=esm", f"--outdir={built}", alias],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert {path.name for path in built.iterdir()} == {"app.js", "msdc.js"}
    shutil.copy(HERE / "page.html", built)
    if not with_runtime:
        shutil.copy(runtime / npm.WASM, built)
    with site(page=built, bundle=bundle) as opened:
        found = answer_of_engine(opened, "page/page.html#app", "chromium")
    assert found["selfTest"]["passed"]
    np.testing.assert_allclose(np.float32(found["rows"]), load_bundle(bundle, "onnx").encode(TEXTS), atol=1e-4)
