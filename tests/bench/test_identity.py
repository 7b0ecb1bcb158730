"""Two phones of one model are two devices in results, reports, comparisons and gates; results without an identity are
read as before."""

import json

import pytest
from bench_results import make_run
from refusals import one_line

from msdc.bench.compare import compare_results, regressions
from msdc.bench.devices import open_devices
from msdc.bench.report.page import build_report, to_markdown
from msdc.bench.report.targets import parse_targets
from msdc.bench.result import HASH, BenchFile, device_key, device_name, hash_serial, parse_result
from msdc.errors import InputError


def phone(identity="", name="Pixel 7", **changes):
    device = {**make_run().device.model_dump(), "name": name, "kind": "adb", "identity": identity}
    return make_run(device=device, **changes)


LEFT, RIGHT = hash_serial("R58M0001"), hash_serial("R58M0002")


def test_a_hash_gives_no_serial_away():
    assert HASH.fullmatch(LEFT)
    assert LEFT != RIGHT
    assert hash_serial("R58M0001") == LEFT
    # As long as a serial that is guessed: one in 2^32 fits by chance, and makers have that many.
    assert len(LEFT) == 8


def test_names_have_the_hash_where_two_devices_share_a_name():
    desk, rack, old, other = phone(LEFT), phone(RIGHT), phone(), phone(LEFT, name="Pixel 8")
    assert device_name(desk, [desk, other, old]) == "Pixel 7"
    assert device_name(desk, [desk, rack]) == f"Pixel 7 [{LEFT}]"
    assert device_name(phone("left"), [phone("left")]) == "Pixel 7 [left]"
    # A result without an identity is of the one device that is known, and of neither of two.
    assert device_key(old, [old, desk]) == device_key(desk, [old, desk])
    assert len({device_key(run, [old, desk, rack]) for run in (old, desk, rack)}) == 3


def test_both_phones_are_in_every_table_and_target():
    slow, quick = phone(LEFT, scale=2.5), phone(RIGHT, created="2026-01-02T04:04:05+00:00")
    for runs in ((slow, quick), (quick, slow)):
        report = build_report(BenchFile(runs=runs), targets=parse_targets(target_latency=["6ms@32"]))
        page = to_markdown(report)
        for identity in (LEFT, RIGHT):
            assert any(
                f"Pixel 7 [{identity}]" in line.replace("\\", "") for line in page.splitlines() if line[:1] == "|"
            )
        assert len(report.missed) == 1
        assert LEFT in report.missed[0]
        assert "## History" not in page


def test_a_phone_is_compared_with_itself_alone():
    old = BenchFile(runs=(phone(LEFT), phone(RIGHT, scale=2.5)))
    other = {**make_run().artifact.model_dump(), "sha256": "d" * 64}
    new = BenchFile(runs=(phone(RIGHT, scale=2.5, seed=2, artifact=other), phone(LEFT, seed=3, artifact=other)))
    assert regressions(compare_results(old, new), 5) == ([], [])
    slower = BenchFile(
        runs=(phone(LEFT, scale=2.5, seed=3, artifact=other), phone(RIGHT, scale=2.5, seed=2, artifact=other))
    )
    certain, _ = regressions(compare_results(old, slower), 5)
    assert len(certain) == 3
    assert all(f"executorch on Pixel 7 [{LEFT}]" in line for line in certain)
    (missing,) = [c for c in compare_results(old, BenchFile(runs=(phone(LEFT),))) if c.missing]
    assert RIGHT in missing.where
    # An older result without an identity is compared where only one phone can be meant.
    assert not compare_results(BenchFile(runs=(phone(),)), BenchFile(runs=(phone(LEFT),)))[0].missing
    assert all(c.missing for c in compare_results(BenchFile(runs=(phone(),)), old))


def test_a_label_is_part_of_a_device():
    desk, rack = open_devices("adb:R58M0001=left desk,adb:192.168.1.7:5555=right")
    assert (desk.argument, desk.label, rack.argument, rack.label) == (
        "R58M0001", "left desk", "192.168.1.7:5555", "right")  # fmt: skip
    assert open_devices("host")[0].label == ""
    for spec, words in (("adb:A=", "1 to 40 printable"), ("host=a\nb", "1 to 40 printable"), ("adb:A=x,adb:B=x", "'x'"),
                        (f"adb:A={'x' * 41}", "1 to 40 printable")):  # fmt: skip
        assert words in one_line(lambda spec=spec: open_devices(spec), InputError)


@pytest.mark.parametrize(
    ("created", "utc"),
    [("2026-01-02T10:00:00+09:00", "2026-01-02T01:00:00+00:00"), ("2026-01-02T03:00:00Z", "2026-01-02T03:00:00+00:00"),
     ("2026-01-02T03:00:00", "2026-01-02T03:00:00+00:00"), ("2026-01-02", "2026-01-02T00:00:00+00:00")],
)  # fmt: skip
def test_moments_are_instants(created, utc):
    raw = json.loads(BenchFile(runs=(make_run(created=created),)).model_dump_json())
    assert parse_result(raw, "r.json").runs[0].created == utc


@pytest.mark.parametrize("created", ["yesterday", "", "0001-01-01T00:00:00+14:00", "2026-13-01"])
def test_what_is_no_moment_is_one_line(created):
    raw = json.loads(BenchFile(runs=(make_run(),)).model_dump_json())
    raw["runs"][0]["created"] = created
    assert "not a date and time" in one_line(lambda: parse_result(raw, "r.json"), InputError)


def test_the_latest_run_is_the_latest_instant():
    early = make_run(created="2026-01-02T10:00:00+09:00")
    late = make_run(scale=2.0, seed=1, created="2026-01-02T03:00:00+00:00")
    (shown,) = [line for line in to_markdown(build_report(BenchFile(runs=(late, early)))).splitlines()
                if "recommended" in line]  # fmt: skip
    assert f"{late.latency[1].p50:.2f}" in shown
