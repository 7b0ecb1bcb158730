"""`msdc doctor` on this machine and on described machines."""

import importlib.metadata
import json
import subprocess

import pytest

from msdc import machine
from msdc.cli import main
from msdc.commands import doctor
from msdc.extras import PACKAGES

X86 = (
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)  Platinum\nflags\t\t: fpu avx2 avx512f avx512_vnni amx_bf16 junk\n"
)
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm bf16 crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"


def test_cpuinfo_of_both_architectures():
    assert machine.parse_cpuinfo(X86) == ("Intel(R) Xeon(R) Platinum", ("avx2", "avx512f", "avx512_vnni", "amx_bf16"))
    name, isa = machine.parse_cpuinfo(ARM)
    assert name == "arm implementer 0x41 part 0xd0b" and isa == ("asimd", "asimddp", "i8mm", "bf16")
    assert machine.parse_cpuinfo("") == ("", ())


def test_heat_of_a_phone(tmp_path):
    for path, text in {
        "class/thermal/thermal_zone0/type": "cpu-big\n", "class/thermal/thermal_zone0/temp": "47500\n",
        "devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1804800\n",
        "class/power_supply/battery/type": "Battery\n", "class/power_supply/battery/capacity": "81\n",
        "class/power_supply/battery/status": "Discharging\n",
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    heat = machine.read_heat(str(tmp_path))
    assert heat.thermal_c == {"cpu-big": 47.5} and heat.cpu_mhz == (1804.8,)
    assert (heat.battery_percent, heat.charging) == (81.0, False)
    assert machine.read_heat(str(tmp_path / "nowhere")).thermal_c == {}


def test_this_machine():
    here = machine.read_machine()
    assert here.cores >= 1 and here.memory_mib > 100 and here.arch


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
