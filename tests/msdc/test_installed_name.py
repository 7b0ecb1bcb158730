"""The built wheel: one top-level name, every shipped file, and no clash with a user's own modules of the same names."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import programs
import pytest
import tiny_models as tiny
from places import ROOT

from msdc import __version__

PACKAGES = ("bench", "compress", "distill", "export", "msdc")


def tracked(*paths: str) -> list[str]:
    listed = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z", "--", *paths], capture_output=True, check=True)
    return [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).exists()]


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    programs.run(sys.executable, ROOT / ".ci" / "dist", "https://example.org/team/msdc", out)
    return out


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    (wheel_file,) = dist.glob("*.whl")
    return wheel_file


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel alone; this one's packages lie behind it, its editable msdc does not."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site_packages = programs.run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    programs.run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "-q", wheel)
    # A folder named in a .pth file has no .pth files of its own read.
    behind = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")])
    Path(site_packages, "behind.pth").write_text("\n".join(behind) + "\n")
    return python


@pytest.fixture
def desk(tmp_path) -> Path:
    """A user's folder with modules named as our packages."""
    for name in ("export", "bench", "compress"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module was imported')\n")
    (tmp_path / "distill").mkdir()
    (tmp_path / "distill" / "__init__.py").write_text("raise SystemExit('the wrong package was imported')\n")
    return tmp_path


def run(python: Path, desk: Path, *arguments: str) -> str:
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    return programs.run(python, *arguments, cwd=desk, env=clean)


def test_the_wheel_installs_one_name_with_every_tracked_file(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in held if ".dist-info/" not in name} == {"msdc"}
    files = [name for name in tracked(*PACKAGES) if not (ROOT / name).is_symlink()]
    expected = {name if name.startswith("msdc/") else f"msdc/{name}" for name in files}
    assert not expected - held
    kinds = "py yaml cpp h kt kts swift css csv tsv safetensors model typed"
    assert {name.split(".")[-1] for name in expected} >= set(kinds.split())
    assert {"msdc/export/mobile/android/bundle/build.gradle.kts", "msdc/export/mobile/web/search.wasm"} <= held


def test_the_sdist_holds_every_tracked_file_and_its_page_has_absolute_links(dist, wheel):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        assert not {name for name in tracked() if not (ROOT / name).is_symlink()} - {
            name.partition("/")[2] for name in sdist.getnames()
        }
    with zipfile.ZipFile(wheel) as held:
        (name,) = [name for name in held.namelist() if name.endswith(".dist-info/METADATA")]
        about = held.read(name).decode()
    links = re.findall(r"\]\(([^)#][^)]*)\)", about)
    tag = f"https://example.org/team/msdc/blob/v{__version__}/"
    assert f"{tag}docs/guides/install.md" in links
    assert all(link.startswith("https://") for link in links)
    assert f"]({tag.replace('blob', 'raw')}docs/images/report.png)" in about
    assert "Project-URL: Repository, https://example.org/team/msdc\n" in about
    assert "\nKeywords: " in about


def test_bundles_and_verbs_beside_modules_of_the_same_names(python, desk):
    verbs = ("distill", "compress", "export", "bench", "evaluate", "report", "inspect")
    code = f"""
import sys; sys.path.insert(0, "")
import msdc
from msdc.cli import main
print(msdc.load_bundle({str(tiny.bundle())!r}, "onnx").encode(["a sentence"]).shape, msdc.__file__, sep="\\n")
for verb in {verbs}:
    try:
        main([verb, "--help"])
    except SystemExit as ended:
        assert not ended.code
"""
    shape, file, *shown = run(python, desk, "-c", code).splitlines()
    assert shape == "(1, 32)"
    assert Path(file).is_relative_to(python.parents[1])
    assert sum(line.startswith("Usage: msdc") for line in shown) == len(verbs)
    assert len(run(python.parent / "msdc", desk, "encode", "msdc-mini", "one", "two").splitlines()) == 2
