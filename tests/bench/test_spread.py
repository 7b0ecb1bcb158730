"""A new result against the spread of many earlier ones: what counts, what is left out, and who decides."""

import numpy as np
import pytest
from bench_results import make_run
from refusals import one_line

from msdc.bench.compare import regressions, ungated
from msdc.bench.result import BenchFile
from msdc.bench.spread import LEAST_RUNS, PastRuns, compare_spread, left_out, prediction_interval, read_past
from msdc.cli import main
from msdc.errors import InputError

OTHER = {**make_run().artifact.model_dump(), "sha256": "d" * 64}
PHONE = {**make_run().device.model_dump(), "name": "Pixel 7", "kind": "adb"}


def nights(count=8, spread=0.06, **changes):
    """Runs of `count` nights, whose medians differ by some per cent while the samples of each hardly do."""
    generator = np.random.default_rng(3)
    return [
        make_run(
            scale=float(np.exp(generator.normal(0, spread))), seed=night,
            created=f"2026-01-{night + 1:02d}T03:00:00+00:00", **changes,
        ) for night in range(count)
    ]  # fmt: skip


def compared(past, new, other_files=0):
    return compare_spread(PastRuns(tuple(past), other_files), BenchFile(runs=(new,)))


def test_the_interval_holds_one_more_value_as_often_as_it_says():
    generator = np.random.default_rng(0)
    inside = []
    for _ in range(4000):
        *past, new = np.exp(generator.normal(1.0, 0.2, size=LEAST_RUNS + 1))
        _, low, high = prediction_interval(past)
        inside.append(low <= new <= high)
    assert np.mean(inside) == pytest.approx(0.99, abs=0.005)


def test_a_slow_night_is_noise_and_a_slow_program_is_not():
    # Against the night before alone, the samples would decide that 15 % are a regression.
    inside = compared(nights(), make_run(scale=1.15, seed=50, artifact=OTHER))
    assert regressions(inside, 5) == ([], [])
    assert ungated(inside) == []
    certain, undecided = regressions(compared(nights(), make_run(scale=1.6, seed=51, artifact=OTHER)), 5)
    assert (len(certain), undecided) == (4, [])  # three lengths and the load
    assert certain[0].startswith("executorch on bench machine: latency, 8 tokens, median rose by ")
    assert regressions(compared(nights(), make_run(scale=1.6, seed=51, artifact=OTHER)), 100) == ([], [])


def test_counts_that_repeat_exactly_have_no_spread_but_a_tolerance():
    past = [make_run(clock="instructions") for _ in range(LEAST_RUNS)]
    assert regressions(compared(past, make_run(clock="instructions", scale=1.0005)), 0) == ([], [])
    certain, _ = regressions(compared(past, make_run(clock="instructions", scale=1.02)), 1)
    assert len(certain) == 3


def test_what_is_not_comparable_is_left_out_and_counted():
    hot = {"battery_c": 44.0}
    phone = nights(6, device=PHONE)
    others = [
        make_run(device={**PHONE, "name": "Pixel 8"}), make_run(device=PHONE, threads=4),
        make_run(device=PHONE, artifact={**OTHER, "bundle": "large"}), make_run(device=PHONE, state_before=hot),
        make_run("onnx", device=PHONE), make_run(device=PHONE, conditions={"cpus": [4], "pinned": True}),
        make_run(device=PHONE, conditions={"fixed_performance": {"enabled": True}}),
    ]  # fmt: skip
    (comparison,) = compared([*phone, *others], make_run(device=PHONE, seed=9, artifact=OTHER), other_files=2)
    assert comparison.past == 6
    (line,) = left_out([comparison])
    assert line == (
        "executorch on Pixel 7: compared with 6 earlier runs; left out: 1 run on other devices, 1 run with other "
        "threads, 1 run of other models, 1 run of a hot, throttled or saving phone, 1 run of other runtimes, 1 run on "
        "other CPUs, 1 run in another performance mode, 2 files without a result"
    )
    (short,) = compared([*phone[:4], *others], make_run(device=PHONE, seed=9, artifact=OTHER))
    assert short.missing.startswith("4 comparable earlier runs, a spread needs 5 (left out: 1 run on other devices, ")
    assert ungated([short]) == [f"executorch on Pixel 7: {short.missing}"]


def test_two_phones_of_one_name_are_two_devices():
    first, second = ({**PHONE, "identity": identity} for identity in ("aaaaaaaa", "bbbbbbbb"))
    past = [*nights(5, device=first), *nights(5, device=second)]
    (comparison,) = compared(past, make_run(device=first, artifact=OTHER))
    assert (comparison.past, comparison.left_out) == (5, "left out: 5 runs on other devices")


def test_a_hot_phone_decides_nothing():
    new = make_run(device=PHONE, scale=1.8, artifact=OTHER, state_after={"battery_c": 45.0})
    (comparison,) = comparisons = compared(nights(device=PHONE), new)
    certain, undecided = regressions(comparisons, 5)
    assert (certain, len(undecided)) == ([], 4)
    assert "the phone was hot (battery 45 °C) in the new result" in comparison.strained
    assert ungated(comparisons)


def test_a_figure_of_fewer_runs_or_of_none_is_not_compared():
    past = [*nights(4), *(run.model_copy(update={"pipeline": None}) for run in nights(3))]
    (comparison,) = compared(past, make_run(seed=7, artifact=OTHER).model_copy(update={"tokenize": None}))
    assert {item.what: item.why for item in comparison.unmatched} == {
        "text to vector, median": "in 4 comparable earlier runs alone",
        "tokenization, median": "only in the earlier result",
    }


def call(*words):
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return ended.value.code


def write(folder, runs):
    folder.mkdir(exist_ok=True)
    for number, run in enumerate(runs):
        (folder / f"{number}.json").write_text(BenchFile(runs=(run,)).model_dump_json())
    return folder


def test_a_folder_with_too_few_results_is_refused_before_measuring(tmp_path, tiny_bundle, capsys):
    folder = write(tmp_path / "past", nights(4))
    (folder / "notes.json").write_text("{}")
    assert "holds 4 runs and 1 file without a result; a spread needs 5" in one_line(
        lambda: read_past(folder), InputError
    )
    assert call("bench", tiny_bundle, "--device", "adb:never", "--compare", folder, "--gate", "5") == 2
    assert "a spread needs 5" in capsys.readouterr().err


def test_a_report_draws_the_spread_and_names_what_is_outside(tmp_path, capsys):
    folder = write(tmp_path / "past", nights())
    (folder / "report.json").write_text('{"kind": "report"}')
    new = tmp_path / "new.json"
    new.write_text(BenchFile(runs=(make_run(scale=1.6, seed=51, artifact=OTHER),)).model_dump_json())
    assert call("report", new, "--compare", folder, "-o", tmp_path / "r.md") == 0
    page = (tmp_path / "r.md").read_text()
    assert "8 runs from 2026-01-01 to 2026-01-08" in page
    assert "prediction interval of one more run" in page
    assert page.index("latency, 8 tokens, median rose by") < page.index("## ")
    assert "compared with 8 earlier runs; left out: 1 file without a result" in capsys.readouterr().err
    # Too few: the latest of them, as ever.
    few = write(tmp_path / "few", nights(3))
    assert call("report", new, "--compare", few, "-o", tmp_path / "f.md") == 0
    assert "bootstrap over blocks" in (tmp_path / "f.md").read_text()
