"""The ready-made bundles of a release, of a tiny model: `.ci/bundles`."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import tiny_models as tiny
from places import ROOT
from programs import node, run

import msdc
from msdc import __version__
from msdc.export.bundle import check_files, load_bundle
from msdc.export.manifest import read_manifest
from msdc.export.schema import TARGETS
from msdc.text.tokenizer import JSON_FILE

pytestmark = pytest.mark.slow  # five exports


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    shutil.copytree(tiny.student_folder(), folder)
    return folder


@pytest.fixture(scope="module")
def dist(model, tmp_path_factory):
    if shutil.which("npm") is None:
        pytest.skip("npm not found: apt-get install npm")
    out = tmp_path_factory.mktemp("dist") / "out"
    run(sys.executable, ROOT / ".ci/bundles", out, model, env=os.environ | {"PYTHONPATH": str(ROOT)})
    return out


def unpacked(dist, target, folder):
    suffix = "tgz" if target == "web" else "tar.gz"
    with tarfile.open(dist / f"tiny-{target}-{__version__}.{suffix}") as archive:
        assert {member.mtime for member in archive.getmembers()} == {0}
        archive.extractall(folder, filter="data")
    return folder


def test_every_file_is_listed_with_its_hash_and_origin(dist):
    lines = dict(reversed(line.split("  ")) for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert lines.keys() == {path.name for path in dist.iterdir()} - {"SHA256SUMS"}
    for name, digest in lines.items():
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest, name
    provenance = json.loads((dist / "provenance.json").read_text())
    assert {entry["file"]: entry["sha256"] for entry in provenance["files"]} == {
        name: digest for name, digest in lines.items() if name != "provenance.json"
    }
    assert {entry["target"] for entry in provenance["files"]} == set(TARGETS.names())
    head = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    assert provenance["commit"] == (head or None)
    assert provenance["versions"]["msdc"] == __version__


def test_the_archives_hold_what_an_export_writes(dist, model, tmp_path):
    want = msdc.load_encoder(model).encode(["Buy milk", "Zahnarzt"])
    for target, parts in {
        "android": ["tiny-android/android/build.gradle.kts", "tiny-android/android/bundle/build.gradle.kts"],
        "ios": ["tiny-ios/bundle.json", "tiny-ios-package/Package.swift"],
        "react-native": [f"tiny-react-native/react-native/{JSON_FILE}", "tiny-react-native/model.pte"],
        "linux": ["tiny-linux/model.onnx", "tiny-linux/model.pte"],
    }.items():
        folder = unpacked(dist, target, tmp_path / target)
        assert all((folder / part).is_file() for part in parts), target
        bundle = folder / f"tiny-{target}"
        check_files(bundle, read_manifest(bundle))
        vectors = load_bundle(bundle, "executorch").encode(["Buy milk", "Zahnarzt"])
        cosines = (vectors * want).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(want, axis=1)
        assert cosines.min() > 0.99, target


def test_the_npm_package_installs_and_encodes(dist, model, tmp_path):
    (tmp_path / "package.json").write_text('{"private": true, "type": "module"}')
    run("npm", "install", "--offline", "--no-audit", "--omit=peer", dist / f"tiny-web-{__version__}.tgz", cwd=tmp_path)
    installed = tmp_path / "node_modules/tiny"
    check_files(installed, read_manifest(installed))
    code = (
        'import { Encoder } from "tiny"; import { openIndex } from "tiny/search.js";'
        f'const encoder = await Encoder.load("{installed.as_uri()}");'
        "console.log(JSON.stringify([...await encoder.encode('Buy milk')]), typeof openIndex);process.exit(0)"
    )
    (tmp_path / "app.mjs").write_text(code)
    vector, kind = run(node(), tmp_path / "app.mjs", cwd=tmp_path).split()
    want = msdc.load_encoder(model).encode(["Buy milk"])[0]
    encoded = np.array(json.loads(vector))
    assert encoded @ want / np.linalg.norm(encoded) / np.linalg.norm(want) > 0.99
    assert kind == "function"
