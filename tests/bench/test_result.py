"""The result file: percentiles against an oracle, one clock per run, strangers' files refused with the field's name."""

import json
import math

import pytest
from bench_results import make_file, make_run
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from msdc.bench.result import InstructionTiming, WallTiming, make_timing, parse_result, percentile
from msdc.errors import InputError


def by_hand(samples, percent):
    """Linear interpolation between closest ranks, written out: the definition, without numpy."""
    ordered = sorted(samples)
    rank = percent / 100 * (len(ordered) - 1)
    low = math.floor(rank)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=60), st.sampled_from([0, 10, 50, 90, 99, 100]))
def test_percentiles_equal_the_definition(samples, percent):
    assert percentile(samples, percent) == pytest.approx(by_hand(samples, percent), rel=1e-9, abs=1e-9)


def test_percentiles_of_known_samples():
    timing = make_timing([float(i) for i in range(1, 102)], warmup=3, length=8)
    assert isinstance(timing, WallTiming)
    assert (timing.p50_ms, timing.p90_ms, timing.p99_ms, timing.min_ms) == (51.0, 91.0, 100.0, 1.0)
    assert timing.warmup == 3 and len(timing.samples_ms) == 101


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_no_percentile_of_nothing_or_of_what_is_no_number(samples):
    with pytest.raises(InputError):
        percentile(samples, 50)


def test_a_file_reads_back_equal():
    file = make_file()
    assert parse_result(json.loads(file.model_dump_json()), "x.json") == file


def test_a_single_run_reads_as_a_file_of_one():
    run = make_run()
    assert parse_result(json.loads(run.model_dump_json()), "x.json").runs == (run,)


def test_instruction_counts_never_carry_a_name_in_milliseconds():
    run = make_run(clock="instructions")
    assert all(isinstance(timing, InstructionTiming) for timing in run.latency)
    text = run.latency[0].model_dump_json()
    assert "_ms" not in text and "samples_instructions" in text


@pytest.mark.parametrize(
    "changes",
    [
        {"load_instructions": 5},
        {"latency": [make_timing([1e6], warmup=0, length=8, clock="instructions")]},
    ],
)
def test_a_run_keeps_to_one_clock(changes):
    with pytest.raises(ValidationError):
        make_run(**changes)


def test_times_under_an_instruction_clock_are_refused():
    raw = json.loads(make_run().model_dump_json()) | {"clock": "instructions"}
    with pytest.raises(InputError, match="unit of the run's clock"):
        parse_result(raw, "x.json")


def test_only_an_emulated_device_counts_instructions():
    raw = json.loads(make_run(clock="instructions").model_dump_json())
    raw["device"]["emulated"] = False
    with pytest.raises(InputError, match="only an emulated device"):
        parse_result(raw, "x.json")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw.pop("kind"), "not a result file"),
        (lambda raw: raw.update(format=9), "result format 9"),
        (lambda raw: raw.update(surprise=1), "surprise"),
        (lambda raw: raw["artifact"].update(sha256="zz"), "artifact.sha256"),
        (lambda raw: raw["latency"][0].update(samples_ms=[-1.0]), "latency"),
        (lambda raw: raw["device"].update(cores=0), "device.cores"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(spoil, words):
    raw = json.loads(make_run().model_dump_json())
    spoil(raw)
    with pytest.raises(InputError, match=words) as caught:
        parse_result(raw, "result.json")
    assert "result.json" in str(caught.value) and "\n" not in str(caught.value)
