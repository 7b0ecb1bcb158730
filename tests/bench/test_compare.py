"""Comparison: what is noise is called noise, what is not is found, instruction counts are held to a tolerance."""

import numpy as np
import pytest
from bench_results import make_run

from msdc.bench.compare import (
    compare_results,
    not_compared,
    percentile_change,
    regressions,
    shares_nothing,
    slower_timings,
    ungated,
)
from msdc.bench.report.page import build_report, to_markdown
from msdc.bench.result import Accuracy, BenchFile, Timing
from msdc.errors import InputError


def file_of(*runs):
    return BenchFile(runs=runs)


def latencies(old, new):
    (comparison,) = compare_results(file_of(old), file_of(new))
    return [d for d in comparison.differences if d.what.startswith("latency")]


def test_the_same_distribution_twice_is_noise():
    generator = np.random.default_rng(3)
    called = []
    for _ in range(40):
        old, new = (10 + generator.exponential(0.5, 80) for _ in range(2))
        _, (low, high) = percentile_change([old], [new], resamples=400)
        called.append(not low <= 0 <= high)
    # A 95 % interval errs one time in twenty; blocks of correlated samples make it no sharper than that.
    assert np.mean(called) <= 0.15


def test_a_real_difference_is_found_with_its_size():
    differences = latencies(make_run(), make_run(scale=1.3, seed=4))
    assert [d.verdict for d in differences] == ["slower"] * 3
    assert {d.verdict for d in latencies(make_run(scale=1.3), make_run(seed=4))} == {"faster"}
    for difference in differences:
        assert difference.interval is not None
        assert difference.change == pytest.approx(0.3, abs=0.02)
        assert difference.interval[0] < 0.3 < difference.interval[1]


def test_other_work_on_the_machine_is_noise_when_the_fastest_runs_did_not_move():
    generator = np.random.default_rng(0)
    quiet = 10 + 0.1 * np.abs(generator.standard_normal(200))
    # More than half of the runs disturbed: the median moves far, the fastest tenth does not.
    busy = np.where(generator.random(200) < 0.7, quiet * 1.8, quiet)
    old = make_run(latency=[Timing(samples=quiet.tolist(), warmup=0, length=8)])
    new = make_run(latency=[Timing(samples=busy.tolist(), warmup=0, length=8)])
    (difference,) = latencies(old, new)
    assert difference.change > 0.5
    assert difference.verdict == "noise"


def test_a_median_alone_is_noise_where_the_fastest_runs_are_too_few_to_tell():
    """The fastest tenth rises by half, but one fast sample more or less would turn that round."""
    few, positions = [5.0] * 30, [n for n in range(30) if n % 10 != 4]

    def timed(value):
        samples = list(few)
        for position in positions:
            samples[position] = value
        return make_run(latency=[Timing(samples=samples, warmup=0, length=8)])

    (difference,) = latencies(timed(10.0), timed(15.0))
    assert difference.interval == (0.5, 0.5)
    assert difference.fastest > 0.4
    assert difference.verdict == "noise"


def test_slow_waves_widen_the_interval():
    """Blocks: samples that drift together must not count as independent evidence."""
    generator = np.random.default_rng(1)
    wave = 10 + np.repeat(generator.normal(0, 1, 10), 30)
    shuffled = generator.permutation(wave)

    def width(samples):
        _, (low, high) = percentile_change([samples], [samples], resamples=800)
        return high - low

    assert width(wave) > 1.5 * width(shuffled)


def test_several_runs_of_one_artifact_are_resampled_as_runs():
    """Two processes that differ more between than within: the interval must span their difference."""
    first_run, second_run = np.full(50, 10.0), np.full(50, 12.0)
    _, (low, high) = percentile_change([first_run, second_run], [first_run, second_run], resamples=500)
    assert low < -0.1
    assert high > 0.1


def test_instruction_counts_have_a_tolerance_and_no_interval():
    old = make_run(clock="instructions")
    assert {d.verdict for d in latencies(old, make_run(clock="instructions", scale=1.0005))} == {"same"}
    slower = latencies(old, make_run(clock="instructions", scale=1.01))
    assert {(d.verdict, d.unit, d.interval) for d in slower} == {("slower", "instructions", None)}


def test_bytes_and_scores_are_compared():
    new = make_run(artifact={**make_run().artifact.model_dump(), "bytes": 9_000_000, "sha256": "c" * 64})
    (comparison,) = compare_results(file_of(make_run()), file_of(new))
    by_name = {d.what: d for d in comparison.differences}
    assert by_name["program bytes"].verdict == "smaller"
    assert by_name["Spearman, graded-pairs"].verdict == "same"
    assert by_name["load"].verdict == "unknown"
    assert not any("same artifact" in note for note in comparison.notes)
    (comparison,) = compare_results(file_of(make_run()), file_of(make_run(seed=2)))
    assert any("same artifact" in note for note in comparison.notes)


def test_two_precisions_of_one_runtime_can_be_compared():
    new = make_run(artifact={**make_run().artifact.model_dump(), "precision": "int8-embed4"})
    (comparison,) = compare_results(file_of(make_run()), file_of(new))
    assert "the precisions differ: int8, then int8-embed4" in comparison.notes


@pytest.mark.parametrize("sides", [(file_of(), file_of(make_run())), (file_of(make_run()), file_of())])
def test_a_result_without_a_run_is_an_error(sides):
    with pytest.raises(InputError, match="result holds no run of a device: nothing to compare"):
        compare_results(*sides)


def changed(of, **fields):
    return make_run(**{of: {**getattr(make_run(), of).model_dump(), **fields}})


@pytest.mark.parametrize(("other", "word"), [
    (make_run("onnx"), "onnx int8 (bbbbbbbb)"),
    (make_run(threads=2), "2 threads"),
    (make_run(harness="native"), "native, 1 thread"),
    (make_run(clock="instructions"), "cortex-a53 (emulator, native, 1 thread, instructions)"),
    (changed("device", name="another machine"), "on another machine (host, python"),
    (changed("device", kind="adb"), "(adb, python"),
])  # fmt: skip
def test_nothing_in_common_is_named_on_both_sides_and_passes_no_gate(other, word):
    comparisons = compare_results(file_of(make_run()), file_of(other))
    assert shares_nothing(comparisons)
    now, before = not_compared(comparisons)
    assert now.endswith(": only in the new result")
    assert word in now
    assert before == (
        "tiny executorch int8 (aaaaaaaa) on bench machine (host, python, 1 thread): only in the earlier result"
    )
    assert ungated(comparisons) == [now, before]
    assert regressions(comparisons, 5) == ([], [])


@pytest.mark.parametrize("gone", [
    make_run("onnx"),
    make_run(clock="instructions"),
    changed("artifact", precision="int4", sha256="c" * 64),
    changed("artifact", bundle="another", sha256="c" * 64),
    # An earlier program of the same name: the last one is compared.
    changed("artifact", sha256="c" * 64).model_copy(update={"created": "2026-01-01T00:00:00+00:00"}),
])  # fmt: skip
def test_what_is_gone_or_new_is_named_and_passes_no_gate(gone):
    for sides, where in ((([make_run(), gone], [make_run(seed=2)]), "only in the earlier result"),
                         (([make_run(seed=2)], [make_run(), gone]), "only in the new result")):  # fmt: skip
        comparisons = compare_results(*(file_of(*side) for side in sides))
        assert not shares_nothing(comparisons)
        (line,) = ungated(comparisons)
        artifact = gone.artifact
        assert line.startswith(f"{artifact.bundle} {artifact.runtime} {artifact.precision} ({artifact.sha256[:8]})")
        assert line.endswith(where)
        (shared,) = [comparison for comparison in comparisons if not comparison.missing]
        assert shared.same_program
        assert shared.differences


FIGURES = {
    "latency, 32 tokens, median": {"latency": [t for t in make_run().latency if t.length != 32]},
    "tokenization, median": {"tokenize": None},
    "text to vector, median": {"pipeline": None},
    "load": {"load": None},
    "rise of anonymous memory": {"memory": None},
    "Spearman, graded-pairs": {"accuracy": [make_run().accuracy[1]]},
    "scores, xsr": {"accuracy": [*make_run().accuracy, Accuracy(task="xsr", name="xsr", found=81.0)]},
}


@pytest.mark.parametrize("what", FIGURES)
def test_a_figure_of_one_result_is_named_and_passes_no_gate(what):
    lacking, complete = make_run(**FIGURES[what]), make_run(seed=2)
    before, now = ("new", "earlier") if what == "scores, xsr" else ("earlier", "new")
    for sides, where in (((complete, lacking), before), ((lacking, complete), now)):
        (comparison,) = compare_results(*map(file_of, sides))
        (figure,) = comparison.unmatched
        assert figure.what == what
        assert [value is None for value in (figure.old, figure.new)] == [where == "new", where == "earlier"]
        assert ungated([comparison]) == [f"executorch on bench machine: {what}: only in the {where} result"]
    assert ungated(compare_results(file_of(complete), file_of(make_run()))) == []


def test_every_figure_is_in_one_list_and_a_gate_without_a_time_is_none():
    bare = {"latency": (), "tokenize": None, "pipeline": None}
    comparisons = compare_results(file_of(make_run(**bare)), file_of(make_run(**bare)))
    assert ungated(comparisons) == ["no time and no count is in both results: the gate compared nothing"]
    (comparison,) = compare_results(file_of(make_run(clock="instructions")), file_of(make_run(clock="instructions")))
    (wall,) = compare_results(file_of(make_run()), file_of(make_run()))
    names = [item.what for item in wall.differences]
    assert names[:4] == ["program bytes", *(f"latency, {length} tokens, median" for length in (8, 32, 128))]
    assert names[4:6] == ["tokenization, median", "text to vector, median"]
    assert [item.what for item in comparison.differences] == [*names[:4], *names[6:]], "loads of both clocks"


def test_a_clock_too_coarse_for_a_time_passes_no_gate():
    zero = [Timing(samples=[0.0, 0.0, 0.1] * 20, warmup=0, length=8)]
    comparisons = compare_results(file_of(make_run(latency=zero)), file_of(make_run(latency=zero)))
    assert ungated(comparisons) == [
        "executorch on bench machine: latency, 8 tokens, median: the earlier samples are below the step of their clock"
    ]


def test_scores_without_spearman_in_both_are_a_note():
    other = [Accuracy(task="xsr", name="xsr", found=81.0)]
    comparisons = compare_results(file_of(make_run(accuracy=other)), file_of(make_run(accuracy=other)))
    assert ungated(comparisons) == []
    assert "scores of xsr are not compared here: msdc evaluate --against tests them" in comparisons[0].notes


def test_gate_names_what_rose_and_leaves_noise_alone():
    counted = make_run(clock="instructions"), make_run(clock="instructions", scale=1.03)
    lines, undecided = regressions(compare_results(*map(file_of, counted)), 2)
    assert len(lines) == 3
    assert undecided == []
    rose = "latency, 8 tokens, median rose by 3.0 % to 3,090,000 instructions (gate 2 %)"
    assert lines[0] == f"executorch on cortex-a53, native: {rose}"
    assert regressions(compare_results(*map(file_of, counted)), 5) == ([], [])
    assert regressions(compare_results(*map(file_of, reversed(counted))), 0) == ([], [])
    assert gated(make_run(scale=1.3, seed=4, artifact=OTHER)) == (3, 0)
    assert regressions(compare_results(file_of(make_run(seed=1)), file_of(make_run(seed=2))), 0) == ([], [])


def test_a_timing_of_the_same_program_or_a_noisy_machine_is_not_called_faster():
    (comparison,) = compare_results(
        file_of(make_run(scale=1.6)), file_of(make_run(seed=4, created="2026-01-02T03:04:59"))
    )
    assert comparison.same_program
    assert "03:04:05), then" in comparison.title
    assert "03:04:59)" in comparison.title
    assert {comparison.verdict(item) for item in comparison.differences if item.unit in ("ms", "MiB")} == {
        "same program"
    }
    assert slower_timings(comparison) == ([], [])
    newer = make_run(seed=4, versions={"executorch": "1.6"})
    assert not compare_results(file_of(make_run()), file_of(newer))[0].same_program, "another version of the runtime"
    (comparison,) = compare_results(file_of(make_run(scale=1.6)), file_of(make_run(seed=4, artifact=OTHER)))
    assert {comparison.verdict(item) for item in comparison.differences if "latency" in item.what} == {"faster"}
    spread = Timing(samples=[4.0, 4.1, 9.0] * 40, warmup=0, length=8)
    (comparison,) = compare_results(file_of(make_run(latency=[spread])), file_of(make_run(scale=0.5, artifact=OTHER)))
    assert comparison.differences[1].verdict == "faster"
    assert comparison.verdict(comparison.differences[1]) == "not decided (noisy before)"


OTHER = {**make_run().artifact.model_dump(), "sha256": "c" * 64}


def gated(new, old=None, percent=10):
    regressed = regressions(compare_results(file_of(old or make_run()), file_of(new)), percent)
    return tuple(map(len, regressed))


def test_what_the_machine_may_have_done_is_inconclusive_and_no_regression():
    assert gated(make_run(scale=1.3, seed=4)) == (0, 3), "the same program"
    busy = {"state_before": {"load_1min": 5.6}}
    old = make_run(state_before={"load_1min": 0.65})
    assert gated(make_run(scale=1.3, seed=4, artifact=OTHER, **busy), old) == (0, 3)
    idle = {"state_before": old.state_before.model_dump()}
    assert gated(make_run(scale=1.3, seed=4, artifact=OTHER, **idle), make_run(**busy)) == (3, 0), "busier before"
    generator = np.random.default_rng(0)
    quiet = 10 + 0.1 * np.abs(generator.standard_normal(300))

    def timed(samples, **changes):
        return make_run(latency=[Timing(samples=samples.tolist(), warmup=0, length=8)], **changes)

    # The median rises by 260 %, the fastest tenth by 9 %: the gate looks at the smaller.
    disturbed = np.where(generator.random(300) < 0.7, quiet * 3.6, quiet * 1.09)
    assert gated(timed(disturbed, artifact=OTHER), timed(quiet)) == (0, 0)
    # Both rise beyond the gate, but the samples are spread too far to say so.
    assert gated(timed(disturbed * 1.2, artifact=OTHER), timed(quiet)) == (0, 1)


def pinned(*cpus, **changes):
    return make_run(conditions={"cpus": cpus, "pinned": True}, **changes)


def test_runs_on_other_processors_are_not_compared():
    artifact = {**make_run().artifact.model_dump(), "sha256": "d" * 64}
    slow = pinned(0, scale=1.8, seed=1, artifact=artifact)
    comparisons = compare_results(file_of(pinned(4, 5)), file_of(slow))
    assert regressions(comparisons, 5) == ([], [])
    assert [comparison.missing != "" for comparison in comparisons] == [True, True]
    assert "1 thread, CPUs 0)" in comparisons[0].where
    assert ungated(comparisons)
    assert len(regressions(compare_results(file_of(pinned(0)), file_of(slow)), 5)[0]) == 3
    # What no one requested is no other place, also where an older result does not state it.
    anywhere = make_run(conditions={"cpus": [0, 1]}, seed=1, artifact=artifact)
    assert not compare_results(file_of(make_run()), file_of(anywhere))[0].missing


def test_the_rise_of_memory_counts_swapped_pages():
    """Pages that a phone compresses in the middle of a run are still the process's."""
    sizes = {"vmhwm_mib": 40, "pss_mib": 20, "file_mib": 5}
    start = {**sizes, "anon_mib": 10, "swap_mib": 0}
    memory = {"start": start, "loaded": start, "warm": {**sizes, "anon_mib": 12, "swap_mib": 48}}
    (comparison,) = compare_results(file_of(make_run(memory=memory)), file_of(make_run(memory=memory)))
    (rise,) = [item for item in comparison.differences if item.what == "rise of anonymous memory"]
    assert rise.new == 50
    page = to_markdown(build_report(file_of(make_run(memory=memory))))
    assert "Swapped" in page
    assert "48.0" in page


def test_conditions_are_in_the_table_of_runs():
    clusters = [{"cpus": [6, 7], "top_mhz": 2850}, {"cpus": [0, 1, 2, 3, 4, 5], "top_mhz": 1800}]
    conditions = {"cpus": [6, 7], "pinned": True, "cooldown_s": 2, "cool_below_c": 37, "clusters": clusters}
    page = to_markdown(build_report(file_of(make_run(conditions=conditions))))
    assert "pinned to CPUs 6,7, pauses of 2 s, cooled below 37 °C, 2 x 2,850 MHz, 6 x 1,800 MHz" in page
