"""Bundles of the Hugging Face hub: by id from a hub, and in its cache, where every file is a link into `blobs`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models as tiny
from hub import COMMIT, cached, hub
from refusals import one_line

from msdc.encoders.folder import is_bundle
from msdc.errors import InputError
from msdc.export.bundle import load_bundle
from msdc.export.inspect import inspect_path
from msdc.export.manifest import MANIFEST_FILE, check_files, locate_bundle, read_manifest
from msdc.export.signature import verify_signature
from msdc.files import link_root
from msdc.loading import load_encoder

RUNTIMES = ["executorch", "onnx"]
OTHER = "f" * 40


@pytest.fixture
def snapshot(tmp_path) -> Path:
    return cached(tiny.bundle(), tmp_path / "hub")


def msdc(*words: object, env: dict[str, str], code: int = 0) -> str:
    """Standard output, or of a refusal its last line."""
    command = [sys.executable, "-m", "msdc.cli", *map(str, words)]
    done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_snapshot_of_the_cache_is_opened(snapshot, runtime):
    assert all(path.is_symlink() for path in snapshot.iterdir())
    check_files(snapshot, read_manifest(snapshot))
    bundle = load_bundle(snapshot, runtime)
    assert (bundle.encode(["a cat"]) == load_bundle(tiny.bundle(), runtime).encode(["a cat"])).all()
    assert inspect_path(snapshot)["hashes"] == "ok"


def test_a_bundle_below_a_snapshot_and_a_link_to_a_snapshot(tmp_path):
    repository = tmp_path / "whole"
    shutil.copytree(tiny.bundle(), repository / "phone/bundle")
    snapshot = cached(repository, tmp_path / "hub")
    short = tmp_path / "short"
    short.symlink_to(snapshot)
    for folder in (snapshot / "phone/bundle", short / "phone/bundle"):
        assert load_bundle(folder, "onnx").width
        assert link_root(folder) == snapshot.parent.parent


@pytest.mark.parametrize("target", ["outside", "another repository", "a name in blobs", "itself"])
def test_a_link_that_leaves_the_repository_is_refused(snapshot, tmp_path, target):
    readme = snapshot / "README.md"
    raw = readme.read_bytes()
    other = tmp_path / "hub/models--me--other/blobs/0"
    other.parent.mkdir(parents=True)
    for destination in (tmp_path / "outside.md", other):
        destination.write_bytes(raw)
    blob = readme.resolve()
    readme.unlink()
    if target == "a name in blobs":
        # A link inside the tree that itself leaves it.
        blob.unlink()
        blob.symlink_to(tmp_path / "outside.md")
        readme.symlink_to(blob)
    else:
        readme.symlink_to({"outside": tmp_path / "outside.md", "another repository": other, "itself": readme}[target])
    line = one_line(lambda: load_bundle(snapshot), InputError)
    assert "leads outside the bundle" in line or "cannot be read" in line


@pytest.mark.parametrize("renamed", ["models", "snapshots", "blobs"])
def test_links_of_another_tree_are_refused(snapshot, tmp_path, renamed):
    """Only the layout of the hub's cache has a tree of its own."""
    root = snapshot.parent.parent
    if renamed == "models":
        root = root.rename(root.with_name("bundles--me--bundle"))
        folder = root / "snapshots" / COMMIT
    elif renamed == "snapshots":
        (root / "snapshots").rename(root / "trees")
        folder = root / "trees" / COMMIT
    else:
        (root / "blobs").rename(root / "objects")
        (root / "blobs").symlink_to("objects")
        folder = snapshot
        assert load_bundle(folder, "onnx").width, "still inside the repository"
        return
    assert "leads outside the bundle" in one_line(lambda: load_bundle(folder), InputError)


def test_bench_measures_a_snapshot(snapshot, tmp_path):
    words = ["--device", "host", "--lengths", 8, "--runs", 2, "--tasks", "none", "--json", tmp_path / "r.json", "-q"]
    msdc("bench", snapshot, *words, env={})
    assert (tmp_path / "r.json").is_file()


def test_a_bundle_by_its_id(tmp_path):
    """The files that its manifest lists, at one commit, and from the cache where the hub is not reached."""
    folder = tmp_path / "repository"
    shutil.copytree(tiny.bundle(), folder)
    (folder / "training.log").write_text("no file of the bundle")
    branches = {"main": COMMIT, "v1": OTHER}
    code = "import msdc, sys; b = msdc.load_bundle(sys.argv[1], 'onnx'); print(b.folder, b.encode('a cat').shape[0])"
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}

    def load(name: str, **changes: str) -> tuple[Path, str]:
        command = [sys.executable, "-c", code, name]
        env = os.environ | environment | changes
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        where, width = done.stdout.split()
        assert width == "32"
        return Path(where), done.stderr

    with hub("me/bundle", folder, branches=branches) as (address, _):
        environment["HF_ENDPOINT"] = address
        where, _ = load("me/bundle")
        assert where.name == COMMIT
        assert {path.name for path in where.iterdir()} == {path.name for path in tiny.bundle().iterdir()}
        assert load("me/bundle@v1")[0].name == OTHER
        assert load(f"me/bundle@{OTHER}")[0].name == OTHER
        # The command line takes it wherever it takes a bundle.
        assert "bundle tiny" in msdc("inspect", "me/bundle", env=environment)
        assert msdc("encode", "me/bundle@v1", "hello", env=environment)
        words = ["--tasks", "none", "--lengths", 8, "--runs", 2, "--device", "python", "--runtime", "onnx"]
        assert "tiny onnx" in msdc("bench", "me/bundle", *words, env=environment)
        told = msdc("evaluate", "me/bundle", "--runtime", "onnx", "--tasks", "graded-pairs", env=environment)
        assert "tiny (onnx)" in told
        absent = msdc("inspect", "me/nothing", env=environment, code=2)
        assert (
            "me/nothing: no such folder, no shipped model (shipped: msdc-mini, msdc-nano, msdc-search), and not found"
            in absent
        )
        assert "me/bundle@v9: no such folder" in msdc("inspect", "me/bundle@v9", env=environment, code=2)
    # The hub is gone, or not to be asked.
    assert load("me/bundle")[0].name == COMMIT
    assert load("me/bundle@v1", HF_HUB_OFFLINE="1")[0].name == OTHER
    absent = msdc("inspect", "me/other", env=environment | {"HF_HUB_OFFLINE": "1"}, code=2)
    assert "not found on the hub: Cannot find an appropriate cached snapshot folder" in absent


def test_a_cache_of_the_hub_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("x")
    with hub("me/bundle", tiny.bundle()) as (address, _):
        env = {"HF_ENDPOINT": address, "HF_HUB_DISABLE_XET": "1", "HF_HUB_CACHE": str(tmp_path / "file/hub")}
        line = msdc("inspect", "me/bundle", env=env, code=1)
        assert f"the hub's cache {tmp_path}/file/hub cannot be written" in line
        assert line.endswith("set HF_HOME to a folder that you may write")
        # The library takes "~" as it is for a user without a home folder.
        line = msdc("inspect", "me/bundle", env=env | {"HF_HUB_CACHE": "~/hub", "HOME": "~"}, code=2)
        assert line.endswith("this user has no home folder for the hub's cache: set HF_HOME to a folder")


def test_a_model_of_the_hub_is_no_bundle(tmp_path):
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with hub("me/student", tiny.student_folder()) as (address, asked):
        environment["HF_ENDPOINT"] = address
        line = msdc("inspect", "me/student", env=environment, code=2)
        assert "me/student: not a bundle (no bundle.json); it is a model: `msdc export me/student --target" in line
        assert not [path for path in asked if path.endswith(".safetensors")], "weights are not needed to say so"
        assert msdc("encode", "me/student", "hello", env=environment)


@pytest.mark.parametrize("name", ["nothing", "./me/bundle", "../bundle", "/nothing/there", "a/b/c", "runs/mine/bundle"])
def test_what_is_no_id_is_a_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert locate_bundle(name) == Path(name)
    assert not is_bundle(name)
    assert one_line(lambda: load_bundle(name), InputError).startswith(f"{Path(name)}: no such folder")


@pytest.mark.parametrize("load", [load_bundle, load_encoder, is_bundle])
def test_a_path_is_never_an_id(load, tmp_path, monkeypatch):
    """`./me/bundle` as a Path has no dot: a folder that is missing must not become a download."""
    monkeypatch.chdir(tmp_path)
    with hub("me/bundle", tiny.bundle()) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        if load is is_bundle:
            assert not load(Path("./me/bundle"))
        else:
            assert "me/bundle: no such" in one_line(lambda: load(Path("./me/bundle")), InputError)
        line = msdc("inspect", "./me/bundle", env={"HF_ENDPOINT": address}, code=2)
        assert "me/bundle: no such file" in line
        assert not asked


def test_a_signature_is_checked_in_the_cache(tmp_path):
    """As far as the signature itself: that of a bundle in the cache is found next to its manifest."""
    folder = tmp_path / "signed"
    shutil.copytree(tiny.bundle(), folder)
    (folder / f"{MANIFEST_FILE}.minisig").write_text("one line\n")
    snapshot = cached(folder, tmp_path / "hub")
    key = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3"
    assert "not of minisign's format" in one_line(lambda: verify_signature(snapshot, key), InputError)


@pytest.mark.parametrize(("file", "sizes"), [("golden.json", True), (MANIFEST_FILE, True), ("golden.json", False)])
def test_a_file_that_is_larger_than_listed_is_not_downloaded(tmp_path, file, sizes):
    """By the size that the hub states, or its tree alone, before its bytes are asked for."""
    folder = tmp_path / "repository"
    shutil.copytree(tiny.bundle(), folder)
    with (folder / file).open("ab") as handle:
        handle.write(b" " * 2**21)
    environment = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    with hub("me/bundle", folder, sizes=sizes) as (address, asked):
        line = msdc("inspect", "me/bundle", env=environment | {"HF_ENDPOINT": address}, code=2)
    assert f"me/bundle: {file} has " in line
    assert not [path for path in asked if "/resolve/" in path and path.endswith(file)]
