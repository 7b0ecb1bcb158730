"""What doctor says about the quickstart without a network: each need, present and taken away, with what mends it."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from msdc.cli import main
from msdc.commands import offline
from msdc.encoders import locate
from msdc.errors import InputError
from msdc.machine import read_machine

HERE = read_machine()
PLENTY = replace(HERE, memory_mib=64_000)


def needs(folder, machine=PLENTY) -> dict[str, offline.Need]:
    return {need.name: need for need in offline.quickstart_needs(machine, folder)}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and no package with the teacher."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(locate, "_offline", lambda name: None)
    return tmp_path / "hub"


def cached(hub, *files) -> None:
    """A snapshot as the hub's library writes it."""
    commit = "c" * 40
    folder = hub / "models--sentence-transformers--all-MiniLM-L6-v2"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    for name in files:
        path = folder / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}")


def test_an_empty_cache_names_the_command_that_mends_it(hub, tmp_path):
    found = needs(tmp_path)["teacher's weights"]
    assert not found.met and "not in the hub's cache" in found.found and "msdc[offline]" in found.mend


def test_the_hubs_cache_is_enough(hub, tmp_path):
    cached(hub, *offline.TEACHER_FILES, "tokenizer.json")
    found = needs(tmp_path)
    assert found["teacher's weights"].met and str(hub) in found["teacher's weights"].found
    assert found["teacher's tokenizer"].met
    assert all(need.met and not need.mend for need in found.values()), found


@pytest.mark.parametrize("absent", ["model.safetensors", "config.json", "tokenizer.json"])
def test_half_a_download_is_not_enough(hub, tmp_path, absent):
    cached(hub, *({*offline.TEACHER_FILES, "tokenizer.json"} - {absent}))
    (bad,) = [need for need in needs(tmp_path).values() if not need.met]
    assert absent in bad.found and bad.mend


def test_damaged_weights_of_the_package(tmp_path, monkeypatch):
    def damaged(name):
        raise InputError("weights: sha256 differs")

    monkeypatch.setattr(locate, "_offline", damaged)
    found = needs(tmp_path)["teacher's weights"]
    assert not found.met and "sha256 differs" in found.found and "--force-reinstall" in found.mend


def test_little_memory_and_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100 * 2**20}))
    found = needs(tmp_path / "not" / "made", replace(HERE, memory_mib=2048))
    assert not found["disk"].met and "1 GiB needed" in found["disk"].found and "-o FOLDER" in found["disk"].mend
    assert not found["disk of the cache"].met
    assert not found["memory"].met and "4 GiB needed" in found["memory"].found


def test_missing_packages_and_corpus(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(offline, "installed", lambda name: name != "torch")
    monkeypatch.setattr("msdc.text.quickstart.PARALLEL", tmp_path / "none.tsv")
    found = needs(tmp_path)
    assert found["packages"].found == "missing: torch" and "pip install" in found["packages"].mend
    assert not found["embedded corpus"].met


def test_the_quickstart_names_its_extra_before_it_trains(tmp_path, monkeypatch, capsys):
    """With `msdc[train]` alone it would train for minutes and then miss ExecuTorch."""
    monkeypatch.setattr("msdc.extras.installed", lambda name: name != "executorch")
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "-o", str(tmp_path / "run")])
    assert ended.value.code == 2 and not (tmp_path / "run").exists()
    assert "msdc quickstart needs ExecuTorch: pip install 'msdc[all]'" in capsys.readouterr().err


def test_doctor_says_whether_it_will_work(tmp_path):
    words = [sys.executable, "-m", "msdc.cli", "doctor", "--json"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    parts = [check for check in checks.values() if check["group"] == "quickstart without a network"]
    assert len(parts) > 6
    wanted = all(check["state"] == "ok" for check in parts if check["name"] != "it will work")
    assert (checks["it will work"]["state"] == "ok") == wanted
    # It is no reason for doctor to fail: with a network, or without the quickstart, msdc works.
    assert not any(check["needed"] for check in parts)
