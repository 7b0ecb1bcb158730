"""The state of a device: what a shell prints of it, and this machine's own files."""

import time

import pytest
from processors import processor_files
from refusals import one_line

from msdc.bench.devices import state as device_state
from msdc.bench.devices.host import HostDevice
from msdc.bench.devices.state import (
    MARK,
    Watched,
    clusters_of,
    extremes,
    host_state,
    parse_during,
    parse_state,
    with_affinity,
)
from msdc.bench.options import BenchSettings
from msdc.bench.result import Cluster, DeviceState
from msdc.errors import InputError


def test_frequencies_are_read_with_their_limits():
    folder = "/sys/devices/system/cpu/cpu{}/cpufreq/{}={}"
    names = {"scaling_max_freq": 1_500_000, "cpuinfo_max_freq": 2_850_000}
    rows = [(cpu, name, kilohertz) for cpu in (1, 0, 10)
            for name, kilohertz in (names | {"scaling_cur_freq": 900_000 + cpu}).items()]  # fmt: skip
    state = parse_state("\n".join(folder.format(*row) for row in rows))
    assert state.cpu_mhz == (900.0, 900.001, 900.01)
    assert (state.cpu_limit_mhz, state.cpu_top_mhz) == ((1500.0,) * 3, (2850.0,) * 3)


def test_the_state_during_a_run_is_that_of_its_worst_moment():
    zone, cpu = "/sys/class/thermal/thermal_zone0", "/sys/devices/system/cpu/cpu0/cpufreq"
    moments = [(41_000, 2_800_000, 2_850_000), (46_000, 1_500_000, 1_500_000)]
    text = "".join(f"{zone}/type=skin\n{zone}/temp={heat}\n{cpu}/scaling_cur_freq={now}\n"
                   f"{cpu}/scaling_max_freq={limit}\n{MARK}\n" for heat, now, limit in moments)  # fmt: skip
    state = parse_during(text + f"{zone}/temp=99000\n")
    assert state.thermal_c == {"skin": 46.0}
    assert (state.cpu_mhz, state.cpu_limit_mhz) == ((2800.0,), (1500.0,))
    assert parse_during("") is None


def test_a_processor_that_is_off_does_not_shift_the_others():
    folder = "/sys/devices/system/cpu/cpu{}/cpufreq/{}={}"
    tops = {0: 1_800_000, 1: 1_800_000, 6: 2_850_000, 7: 2_850_000}
    rows = [folder.format(cpu, name, khz) for cpu, khz in tops.items()
            for name in ("scaling_cur_freq", "scaling_max_freq", "cpuinfo_max_freq")
            if (cpu, name) != (1, "scaling_cur_freq")]  # fmt: skip
    state = parse_state("\n".join(rows))
    assert (state.cpus, state.cpu_top_mhz) == ((0, 6, 7), (1800.0, 2850.0, 2850.0))
    assert clusters_of(state) == (Cluster(cpus=(6, 7), top_mhz=2850.0), Cluster(cpus=(0,), top_mhz=1800.0))
    settings = with_affinity(BenchSettings(affinity="big", threads=2), state, "it")
    assert settings.affinity == (6, 7)
    # The same frequencies, of other processors: they are not compared column by column.
    other = state.model_copy(update={"cpus": (0, 1, 6), "cpu_mhz": (9000.0,) * 3})
    assert extremes([state, other]).cpu_mhz == state.cpu_mhz


def test_results_of_earlier_versions_have_their_clusters():
    state = DeviceState(cpu_top_mhz=(1800.0, 1800.0, 2850.0))
    assert clusters_of(state)[0] == Cluster(cpus=(2,), top_mhz=2850.0)


def test_this_machine_is_read_from_the_files_that_a_phone_prints(tmp_path):
    processor_files(tmp_path, {0: 3_000_000, 1: 2_000_000}, scaling_max_freq="1500000")
    zone = tmp_path / "sys/class/thermal/thermal_zone0"
    zone.mkdir(parents=True)
    (zone / "type").write_text("acpitz\n")
    (zone / "temp").write_text("41500\n")
    (tmp_path / "sys/firmware/acpi").mkdir(parents=True)
    (tmp_path / "sys/firmware/acpi/platform_profile").write_text("low-power\n")
    state = host_state(tmp_path)
    assert (state.cpus, state.cpu_mhz, state.cpu_limit_mhz) == ((0, 1), (900.0,) * 2, (1500.0,) * 2)
    assert (state.cpu_top_mhz, state.thermal_c["acpitz"], state.power_save) == ((3000.0, 2000.0), 41.5, True)
    assert not {"temperatures", "frequencies", "frequency limits", "battery saver"} & set(state.unreadable)


def test_what_this_machine_does_not_report_is_named(tmp_path):
    state = host_state(tmp_path)
    assert {"frequency limits", "battery saver", "thermal status"} <= set(state.unreadable)
    assert state.load_1min is not None


def test_this_machine_is_read_while_it_works(tmp_path, monkeypatch):
    monkeypatch.setattr(device_state, "DURING_S", 0.01)
    processor_files(tmp_path, {0: 3_000_000})
    limit = tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq"
    with Watched(tmp_path) as watched:
        limit.write_text("800000\n")
        time.sleep(0.2)
        limit.write_text("3000000\n")
    before, during, after = watched.states
    assert [state.cpu_limit_mhz for state in (before, during, after)] == [(3000.0,), (800.0,), (3000.0,)]


def test_big_cores_of_this_machine_are_refused_where_it_hides_them(tiny_bundle, tmp_path):
    if clusters_of(host_state()):
        pytest.skip("this machine reports its clusters")
    settings = BenchSettings(affinity="big", tasks=(), runtime="onnx")
    line = one_line(lambda: HostDevice().run(tiny_bundle, settings), InputError)
    assert line.endswith("this machine does not report the top frequencies of its processors; name CPU numbers")


def test_big_cores_are_among_the_usable_ones():
    state = DeviceState(cpus=(0, 1, 2, 3), cpu_top_mhz=(1800.0, 1800.0, 2850.0, 2850.0))
    settings = BenchSettings(affinity="big")
    assert with_affinity(settings, state, "it").affinity == (2, 3)
    assert with_affinity(settings, state, "it", {0, 1, 3}).affinity == (3,)
    assert with_affinity(settings, state, "it", {0, 1}).affinity == (0, 1)
