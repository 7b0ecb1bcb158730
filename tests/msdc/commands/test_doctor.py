"""`msdc doctor` on this machine; the quickstart without a network: each need, present and taken away."""

import importlib.metadata
import json
import subprocess
from dataclasses import replace

import pytest

from msdc.cli import main
from msdc.commands import doctor
from msdc.errors import InputError
from msdc.extras import PACKAGES
from msdc.machine import read_machine

HERE = read_machine()


@pytest.mark.parametrize(
    ("installed", "rule", "state"),
    [
        ("2.13.0+cpu", "==2.13.0", "ok"),
        ("2.12.1", "==2.13.0", "wrong"),
        ("5.23.0", "<6,>=5.20", "ok"),
        (None, "", "missing"),
    ],
)
def test_versions_against_the_pins(monkeypatch, installed, rule, state):
    def version(name):
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr("importlib.metadata.version", version)
    check = doctor.check_package("torch", rule)
    assert check.state == state
    assert bool(check.remedy) == (state != "ok")
    # A package of an extra may be absent.
    optional = doctor.check_package("torch", rule, "train")
    assert optional.state == state
    assert doctor.healthy([optional]) == (state != "wrong")
    assert state != "missing" or optional.remedy == "pip install '.[train]' in the checkout of msdc"


def test_the_pins_are_those_of_the_project():
    rules = doctor.requirements()
    assert rules["torch"] == "==2.13.0"
    assert rules["executorch"] == "==1.5.1"
    assert {*doctor.BASE_PACKAGES, *(name for _, name in PACKAGES.values())} <= set(rules)


def test_stores_of_the_cache_are_listed_with_their_bytes(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "user_cache", lambda: tmp_path / "msdc")
    assert doctor.check_cache() == []
    for store, size in (("int8", 2_000_000), ("text", 300_000)):
        (tmp_path / "msdc" / store / "inside").mkdir(parents=True)
        (tmp_path / "msdc" / store / "inside" / "file").write_bytes(bytes(size))
    (tmp_path / "msdc" / "int8" / "gone").symlink_to("nowhere")
    checks = doctor.check_cache()
    assert [(check.name, check.found) for check in checks] == [
        ("int8", f"2.0 MB in {tmp_path / 'msdc' / 'int8'}"),
        ("text", f"0.3 MB in {tmp_path / 'msdc' / 'text'}"),
    ]
    assert doctor.healthy(checks)


def test_tools_that_are_missing_or_hang(monkeypatch):
    def run(*_, **__):
        raise subprocess.TimeoutExpired("x", 20)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/adb" if name == "adb" else None)
    first, *checks = doctor.check_tools()
    assert "does not respond" in first.found
    assert all(check.state == "missing" and "apt-get install" in check.remedy and not check.needed for check in checks)
    assert doctor.healthy(checks)


def test_the_command(capsys):
    with pytest.raises(SystemExit) as exit_info:
        main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    names = {check["name"]: check for check in answer["checks"]}
    assert exit_info.value.code == (0 if answer["healthy"] else 1)
    assert names["XNNPACK delegate"]["state"] == "ok"
    assert names["ExecuTorch quantized operators"]["state"] == "ok"
    parts = [check for check in names.values() if check["group"] == doctor.QUICKSTART]
    all_ok = all(check["state"] == "ok" for check in parts if check["name"] != "it will work")
    assert len(parts) > 5
    assert (names["it will work"]["state"] == "ok") == all_ok
    # It is no reason for doctor to fail: with a network, or without the quickstart, msdc works.
    assert not any(check["needed"] for check in parts)


# --- the quickstart without a network --------------------------------------------------------------------------------


def needs(folder, memory_mib=64_000) -> dict[str, doctor.Check]:
    checks = doctor.check_quickstart(replace(HERE, memory_mib=memory_mib), folder)
    return {check.name: check for check in checks}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and no package with the teacher."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("msdc.encoders.folder._offline", lambda name: None)
    return tmp_path / "hub"


@pytest.mark.parametrize("absent", [None, "model.safetensors", "config.json", "tokenizer.json"])
def test_the_hubs_cache_is_enough_and_half_a_download_is_not(hub, tmp_path, absent):
    need = needs(tmp_path)["teacher's weights"]
    assert need.state == "missing"
    assert "nor in the hub's cache" in need.found
    assert ".[offline]" in need.remedy
    # A snapshot as the hub's library writes it.
    folder = hub / "models--sentence-transformers--all-MiniLM-L6-v2"
    snapshot = folder / "snapshots" / ("c" * 40)
    for path in (folder / "refs", snapshot):
        path.mkdir(parents=True)
    (folder / "refs" / "main").write_text("c" * 40)
    for name in {*doctor.TEACHER_FILES, "tokenizer.json"} - {absent}:
        (snapshot / name).write_bytes(b"{}")
    checks = needs(tmp_path)
    bad = [check for check in checks.values() if check.state != "ok"]
    if absent is None:
        assert str(hub) in checks["teacher's weights"].found
        assert not bad
    else:
        assert absent in bad[0].found
        assert bad[0].remedy
        assert [check.name for check in bad[1:]] == ["it will work"]


def test_damaged_weights_of_the_package(tmp_path, monkeypatch):
    def damaged(name):
        raise InputError("weights: sha256 differs")

    monkeypatch.setattr("msdc.encoders.folder._offline", damaged)
    need = needs(tmp_path)["teacher's weights"]
    assert need.state == "missing"
    assert "sha256 differs" in need.found
    assert "--force-reinstall" in need.remedy


def test_little_memory_and_disk_and_a_missing_package(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100 * 2**20}))
    monkeypatch.setattr(doctor, "installed", lambda name: name != "torch")
    needs_by_name = needs(tmp_path / "not" / "made", 2048)
    assert "1 GiB needed" in needs_by_name["disk"].found
    assert "-o FOLDER" in needs_by_name["disk"].remedy
    assert "4 GiB needed" in needs_by_name["memory"].found
    assert needs_by_name["packages"].found == "missing: torch"
    assert "pip install" in needs_by_name["packages"].remedy
    assert {needs_by_name[name].state for name in ("disk", "disk of the cache", "memory", "packages")} == {"missing"}


def test_the_quickstart_names_its_extra_before_it_trains(tmp_path, monkeypatch, capsys):
    """With the extra `train` alone it would train for minutes and then miss ExecuTorch."""
    monkeypatch.setattr("msdc.extras.installed", lambda name: name != "executorch")
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "-o", str(tmp_path / "run")])
    assert ended.value.code == 2
    assert not (tmp_path / "run").exists()
    assert "msdc quickstart needs ExecuTorch: pip install '.[all]' in the checkout" in capsys.readouterr().err
