"""What a device says of its heat and energy, in the many ways devices say it."""

from __future__ import annotations

import re
import subprocess

import pytest

from msdc.bench.devices.adb import SCRIPT, parse_state
from msdc.bench.system_programs import last_words

PHONE = """
/sys/class/thermal/thermal_zone0/type=cpu-0-0
/sys/class/thermal/thermal_zone0/temp=38400
/sys/class/thermal/thermal_zone1/type=battery
/sys/class/thermal/thermal_zone1/temp=31
/sys/class/thermal/thermal_zone2/type=cpu-0-0
/sys/class/thermal/thermal_zone2/temp=39000
/sys/class/thermal/thermal_zone3/type=broken
/sys/class/thermal/thermal_zone3/temp=
/sys/devices/system/cpu/cpu10/cpufreq/scaling_cur_freq=2400000
/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq=1800000
dumpsys.status=4
dumpsys.level=83
dumpsys.temperature=312
dumpsys.AC powered=true
/proc/loadavg=1.50 1.20 1.00 2/345 6789
"""


def test_a_phone_that_tells_all():
    state = parse_state(PHONE)
    assert state.thermal_c == {"cpu-0-0": 38.4, "battery": 31.0, "cpu-0-0 thermal_zone2": 39.0}
    assert state.cpu_mhz == (1800.0, 2400.0)
    assert (state.battery_percent, state.battery_c, state.charging, state.load_1min) == (83.0, 31.2, False, 1.5)


@pytest.mark.parametrize(
    "text",
    ["", "no facts here\n", "/proc/loadavg=\n", "dumpsys.level=full\n", "dumpsys.status=9\n"],
)
def test_devices_that_tell_less(text):
    assert parse_state(text).model_dump(exclude_defaults=True) == {}


def test_script_runs_in_a_plain_shell():
    done = subprocess.run(["sh", "-c", SCRIPT], capture_output=True, text=True, check=True)
    load = parse_state(done.stdout).load_1min
    assert load is not None and re.search(r"/proc/loadavg=", done.stdout)


def test_last_words_prefer_the_error():
    assert last_words(b"a\nerror: it broke\nmake: *** stop\n") == "error: it broke"
    assert last_words("one\ntwo\n\n") == "two"
    assert last_words("") == ""
