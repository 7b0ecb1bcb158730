"""`msdc doctor` on this machine; the quickstart without a network: each need, present and taken away."""

import importlib.metadata
import json
import subprocess
from dataclasses import replace

import pytest

from msdc.cli import main
from msdc.commands import doctor
from msdc.encoders import folder as folders
from msdc.errors import InputError
from msdc.extras import PACKAGES
from msdc.machine import read_machine


def version_of(installed):
    """A stand-in for importlib.metadata.version; None: nothing is installed."""

    def version(name):
        if installed is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed

    return version


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
    monkeypatch.setattr("importlib.metadata.version", version_of(installed))
    check = doctor.check_package("torch", rule)
    assert check.state == state and bool(check.remedy) == (state != "ok")


def test_the_pins_are_those_of_the_project():
    rules = doctor.requirements()
    assert rules["torch"] == "==2.13.0" and rules["executorch"] == "==1.5.1"
    assert {*doctor.BASE_PACKAGES, *(name for _, name in PACKAGES.values())} <= set(rules)


def test_a_package_of_an_extra_may_be_absent(monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", version_of(None))
    check = doctor.check_package("torch", "==2.13.0", "train")
    assert (check.state, check.remedy, check.needed) == ("missing", "pip install 'msdc[train]'", False)
    assert doctor.healthy([check])


def test_a_missing_tool_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    checks = doctor.check_tools()
    assert all(check.state == "missing" and "apt-get install" in check.remedy and not check.needed for check in checks)
    assert doctor.healthy(checks)


def test_a_hanging_tool_does_not_hang_the_doctor(monkeypatch):
    def run(*_, **__):
        raise subprocess.TimeoutExpired("x", 20)

    monkeypatch.setattr(subprocess, "run", run)
    assert "does not answer" in doctor._version_line("adb")


def test_what_is_needed_and_wrong_makes_it_unhealthy():
    assert not doctor.healthy([doctor.Check("packages", "torch", "wrong", "2.12", needed=True)])


def test_the_command(capsys):
    with pytest.raises(SystemExit) as left:
        main(["doctor", "--json"])
    answer = json.loads(capsys.readouterr().out)
    names = {check["name"]: check for check in answer["checks"]}
    assert left.value.code == (0 if answer["healthy"] else 1)
    assert names["XNNPACK delegate"]["state"] == "ok" and names["ExecuTorch quantized operators"]["state"] == "ok"
    parts = [check for check in names.values() if check["group"] == doctor.QUICKSTART]
    wanted = all(check["state"] == "ok" for check in parts if check["name"] != "it will work")
    assert len(parts) > 5 and (names["it will work"]["state"] == "ok") == wanted
    # It is no reason for doctor to fail: with a network, or without the quickstart, msdc works.
    assert not any(check["needed"] for check in parts)


# --- the quickstart without a network --------------------------------------------------------------------------------

HERE = read_machine()
PLENTY = replace(HERE, memory_mib=64_000)


def needs(folder, machine=PLENTY) -> dict[str, doctor.Check]:
    return {check.name: check for check in doctor.check_quickstart(machine, folder)}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """An empty cache of the hub, and no package with the teacher."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(folders, "_offline", lambda name: None)
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
    assert found.state == "missing" and "not in the hub's cache" in found.found and "msdc[offline]" in found.remedy


def test_the_hubs_cache_is_enough(hub, tmp_path):
    cached(hub, *doctor.TEACHER_FILES, "tokenizer.json")
    found = needs(tmp_path)
    assert str(hub) in found["teacher's weights"].found
    assert all(check.state == "ok" and not check.remedy for check in found.values()), found


@pytest.mark.parametrize("absent", ["model.safetensors", "config.json", "tokenizer.json"])
def test_half_a_download_is_not_enough(hub, tmp_path, absent):
    cached(hub, *({*doctor.TEACHER_FILES, "tokenizer.json"} - {absent}))
    bad, works = [check for check in needs(tmp_path).values() if check.state != "ok"]
    assert absent in bad.found and bad.remedy and works.name == "it will work"


def test_damaged_weights_of_the_package(tmp_path, monkeypatch):
    def damaged(name):
        raise InputError("weights: sha256 differs")

    monkeypatch.setattr(folders, "_offline", damaged)
    found = needs(tmp_path)["teacher's weights"]
    assert found.state == "missing" and "sha256 differs" in found.found and "--force-reinstall" in found.remedy


def test_little_memory_and_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100 * 2**20}))
    monkeypatch.setattr(doctor, "installed", lambda name: name != "torch")
    found = needs(tmp_path / "not" / "made", replace(HERE, memory_mib=2048))
    assert "1 GiB needed" in found["disk"].found and "-o FOLDER" in found["disk"].remedy
    assert "4 GiB needed" in found["memory"].found
    assert found["packages"].found == "missing: torch" and "pip install" in found["packages"].remedy
    assert {found[name].state for name in ("disk", "disk of the cache", "memory", "packages")} == {"missing"}


def test_the_quickstart_names_its_extra_before_it_trains(tmp_path, monkeypatch, capsys):
    """With `msdc[train]` alone it would train for minutes and then miss ExecuTorch."""
    monkeypatch.setattr("msdc.extras.installed", lambda name: name != "executorch")
    with pytest.raises(SystemExit) as ended:
        main(["quickstart", "-o", str(tmp_path / "run")])
    assert ended.value.code == 2 and not (tmp_path / "run").exists()
    assert "msdc quickstart needs ExecuTorch: pip install 'msdc[all]'" in capsys.readouterr().err
