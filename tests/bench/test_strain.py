"""Phones whose state makes their times too high: named on the first screen, and a gate on them decides nothing."""

import pytest
from bench_results import make_run

from msdc.bench.compare import compare_results, regressions, ungated
from msdc.bench.report.page import build_report, to_markdown, to_text
from msdc.bench.report.targets import parse_targets
from msdc.bench.result import BenchFile, DeviceState
from msdc.bench.strain import lower_clock, strain, surface_c

COOL = {"battery_percent": 80, "battery_c": 27.0, "charging": True, "thermal_c": {"skin": 29.0, "cpu-0": 45.0},
        "cpu_mhz": [1800, 2850], "cpu_limit_mhz": [1800, 2850], "cpu_top_mhz": [1800, 2850],
        "power_save": False, "thermal_status": 0}  # fmt: skip
STRAINED = {
    "warm battery": ({"battery_c": 41.0}, "hot (battery 41 °C)"),
    "warm skin": ({"thermal_c": {"skin-therm": 46.0, "quiet": 44.0}}, "hot (skin-therm 46 °C)"),
    "hot processor": ({"thermal_c": {"cpu-0": 91.0, "cpu-1": 88.0}}, "hot (cpu-0 91 °C)"),
    "limited": ({"cpu_limit_mhz": [1800, 1900]}, "throttled (a core was limited to 1,900 of 2,850 MHz)"),
    "status": ({"thermal_status": 3}, "throttled (thermal status severe)"),
    "saver": ({"power_save": True, "battery_percent": 9, "charging": False}, "in its battery saver"),
    "empty": ({"battery_percent": 12, "charging": False}, "at 12 % of its battery without a charger"),
}
OTHER = {"sha256": "d" * 64}


def phone(state=None, *, field="state_before", **changes):
    device = {**make_run().device.model_dump(), "name": "Pixel 7", "kind": "adb", **changes.pop("device", {})}
    states = {"state_before": COOL, "state_after": COOL, **({field: {**COOL, **state}} if state else {})}
    artifact = {**make_run().artifact.model_dump(), **changes.pop("artifact", {})}
    return make_run(device=device, artifact=artifact, **states, **changes)


def compared(old, new):
    return compare_results(BenchFile(runs=(old,)), BenchFile(runs=(new,)))


def test_a_cool_phone_and_a_computer_are_not_strained():
    assert strain(phone()) == []
    assert strain(make_run(state_before={"thermal_c": {"cpu-0": 95.0}, "power_save": True})) == []
    assert strain(phone({"battery_c": 50.0}, device={"emulated": True})) == []
    assert "MHz" not in to_markdown(build_report(BenchFile(runs=(phone(),)))).split("## ")[0]


@pytest.mark.parametrize("field", ["state_before", "state_during", "state_after"])
@pytest.mark.parametrize("case", STRAINED)
def test_each_state_is_named_at_the_top(case, field):
    state, words = STRAINED[case]
    run = phone(state, field=field)
    assert strain(run) == [words]
    report = build_report(BenchFile(runs=(run,)))
    assert report.warnings[0].startswith(f"Pixel 7 was {words}. ")
    assert words in " ".join(to_text(report).split())


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("case", STRAINED)
def test_a_gate_is_inconclusive_whichever_side_was_strained(case, side):
    state, words = STRAINED[case]
    for scale in (1.0, 1.6):
        runs = [phone(state if side == number else None, scale=scale if number else 1.0, seed=number,
                      artifact=OTHER if number else {}) for number in (0, 1)]  # fmt: skip
        comparisons = compared(*runs)
        certain, undecided = regressions(comparisons, 5)
        assert certain == []
        assert len(undecided) == (3 if scale > 1 else 0)
        line = f"executorch on Pixel 7: the phone was {words} in the {('earlier', 'new')[side]} result"
        assert line in ungated(comparisons)
        assert {comparisons[0].verdict(item) for item in comparisons[0].differences if item.unit == "ms"} & {
            "faster", "slower"} == set()  # fmt: skip
    assert regressions(compared(phone(), phone(scale=1.6, seed=1, artifact=OTHER)), 5)[0]
    assert ungated(compared(phone(), phone(seed=1, artifact=OTHER))) == []


def test_lower_clocks_than_before_are_a_doubt():
    slow = phone({"cpu_mhz": [1000, 1500]}, artifact=OTHER, scale=1.8, seed=1).model_copy(update={"state_after": None})
    assert lower_clock(phone(), slow) == "its fastest core was seen at 2,850 MHz before and at 1,500 MHz now"
    assert lower_clock(slow, phone()) is None
    certain, undecided = regressions(compared(phone(), slow), 5)
    assert (certain, len(undecided)) == ([], 3)


def test_a_target_that_only_a_strained_phone_misses_is_undecided():
    targets = parse_targets(target_latency=["3ms@32"])
    hot = phone({"battery_c": 44.0})
    report = build_report(BenchFile(runs=(hot,)), targets=targets)
    assert report.missed == []
    assert len(report.undecided) == 1
    assert "on Pixel 7, which was hot (battery 44 °C)" in report.undecided[0]
    assert "the phone's state" in to_markdown(report)
    report = build_report(BenchFile(runs=(phone(),)), targets=targets)
    assert (len(report.missed), report.undecided) == (1, [])
    report = build_report(BenchFile(runs=(hot,)), targets=parse_targets(target_latency=["9ms@32"]))
    assert (report.missed, report.undecided) == ([], [])


def test_what_cooling_waits_for():
    assert surface_c(DeviceState(battery_c=31.0, thermal_c={"skin": 38.0, "cpu-0": 70.0})) == 38.0
    assert surface_c(DeviceState(battery_c=31.0)) == 31.0
    assert surface_c(DeviceState(thermal_c={"cpu-0": 70.0})) is None


def test_throttling_during_a_run_is_judged_by_the_frequencies_read_before():
    # What is sampled while the runner works repeats no top frequencies.
    run = phone({"cpu_limit_mhz": [1800, 1900], "cpu_top_mhz": []}, field="state_during")
    assert strain(run) == ["throttled (a core was limited to 1,900 of 2,850 MHz)"]


def test_the_clocks_of_the_fixed_performance_mode_are_no_throttling():
    fixed = {"fixed_performance": {"enabled": True, "limit_mhz": [1500, 2000]}}
    for field in ("state_during", "state_after"):
        assert strain(phone({"cpu_limit_mhz": [1500, 2000]}, field=field, conditions=fixed)) == []
        lower = phone({"cpu_limit_mhz": [1500, 1200]}, field=field, conditions=fixed)
        assert strain(lower) == ["throttled (a core was limited to 1,200 of 2,000 MHz)"]
    throttled_before = phone({"cpu_limit_mhz": [1800, 1900]}, conditions=fixed)
    assert strain(throttled_before) == ["throttled (a core was limited to 1,900 of 2,850 MHz)"]


def test_a_gate_between_performance_modes_is_inconclusive():
    fixed = {"fixed_performance": {"enabled": True}}
    certain, undecided = regressions(compared(phone(), phone(scale=1.6, conditions=fixed, artifact=OTHER)), 5)
    assert (certain, len(undecided)) == ([], 3)
    assert "only the new result is of Android's fixed performance mode" in undecided[0]


def test_a_computer_that_saves_power_is_a_doubt():
    saver = {"state_before": {"power_save": True}}
    slow = make_run(scale=1.6, seed=1, artifact={**make_run().artifact.model_dump(), **OTHER}, **saver)
    certain, undecided = regressions(compared(make_run(), slow), 5)
    assert (certain, len(undecided)) == ([], 3)
    assert "the computer saved power in the new result alone" in undecided[0]
    assert regressions(compared(make_run(**saver), slow), 5)[0]
