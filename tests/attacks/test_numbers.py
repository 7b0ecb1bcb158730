"""Numbers that are none (NaN, infinity) or beyond any range are refused wherever one enters."""

import json

import numpy as np
import pytest
import tiny_models as tiny
from bench_results import make_file, make_run
from click.testing import CliRunner
from refusals import one_line

from msdc.bench.measure import BenchSettings, parity_failures
from msdc.bench.result import read_result
from msdc.cli import msdc as cli
from msdc.commands.encode import encode_stream
from msdc.commands.search import Index
from msdc.errors import MsdcError
from msdc.export.golden import FP32, INT8, decode_vectors, encode_vectors, measure, shortfalls
from msdc.export.manifest import Parity
from msdc.files import parse_json, read_json


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "-Infinity", "1e999", "-1e999", "1" * 400, "1" * 5000, "[" * 99999, r'"\ud83d"']
)
def test_json(tmp_path, text):
    with pytest.raises((ValueError, RecursionError)):
        parse_json(text)
    (tmp_path / "a.json").write_text(text)
    assert "not valid JSON" in one_line(lambda: read_json(tmp_path / "a.json"))


def test_json_keeps_characters_that_are_written_as_pairs():
    assert parse_json(r'["\ud83d\ude00", "a\\ud83d"]') == ["\U0001f600", "a\\ud83d"]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_golden_vectors_and_their_gate(bad):
    rows = np.ones((3, 4), np.float32)
    spoiled = rows.copy()
    spoiled[1, 2] = bad
    assert "NaN or infinity" in one_line(lambda: decode_vectors(encode_vectors(spoiled), 3, 4))
    assert "golden text 1: the artifact" in one_line(lambda: measure(rows, spoiled, None))
    assert "golden text 1: the float model" in one_line(lambda: measure(spoiled, rows, None))


def test_gates_fail_on_nan():
    nan = Parity.model_construct(
        mean_cosine=np.nan, min_cosine=np.nan, max_abs=np.nan, texts=1, low_bit_share=np.nan, passed=None
    )
    assert len(shortfalls(nan, FP32)) == 4 and len(shortfalls(nan, INT8)) == 3
    run = make_run()
    parity = run.parity.model_copy(update={"mean_cosine": np.nan, "min_cosine": np.nan})
    spoiled = run.model_copy(update={"parity": parity})
    assert parity_failures([spoiled]) and not parity_failures([run])


def places(value, path=()):
    """Paths of all numbers in parsed JSON."""
    if isinstance(value, dict):
        for key, one in value.items():
            yield from places(one, (*path, key))
    elif isinstance(value, list):
        for index, one in enumerate(value[:2]):
            yield from places(one, (*path, index))
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path


RAW = make_file().model_dump(mode="json")


@pytest.mark.parametrize("bad", ["NaN", "1e999", "1" * 400, "-1e300"])
def test_every_number_of_a_result(tmp_path, bad):
    checked = 0
    free = {"accuracy", "battery_c", "thermal_c", "load_1min", "battery_percent", "spearman", "cpu_mhz"}
    for path in places(RAW):
        raw = json.loads(json.dumps(RAW))
        inner = raw
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = "@"
        # Scores and temperatures have no range of their own, but they are finite.
        if bad == "-1e300" and free & set(path):
            continue
        file = tmp_path / "a.json"
        file.write_text(json.dumps(raw).replace('"@"', bad))
        with pytest.raises(MsdcError) as caught:
            read_result(file)
            pytest.fail(str(path))
        assert "\n" not in str(caught.value), path
        checked += 1
    assert checked > 60


class Broken:
    """A model whose vectors hold NaN."""

    name, width, max_length = "broken", 4, 32

    def __init__(self):
        self.tokenizer = tiny.tokenizer()

    def fingerprint(self):
        return "0" * 64

    def encode(self, texts):
        rows = np.ones((len(texts), 4), np.float32)
        rows[-1, 0] = np.nan
        return rows


def test_search_and_compare_refuse_a_model_of_nan(tmp_path):
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    assert "broken: the vector of text 2" in one_line(lambda: Index(Broken(), tmp_path / "lines.txt", tmp_path / "i"))
    assert not (tmp_path / "i").exists()
    assert "NaN" in one_line(lambda: next(encode_stream(Broken(), iter(["one", "two"]))))


@pytest.mark.parametrize("changes", [{"timeout_s": np.inf}, {"timeout_s": np.nan}, {"cooldown_s": np.inf}])
def test_settings(changes):
    with pytest.raises(ValueError):
        BenchSettings(**changes)


@pytest.mark.parametrize("option", ["--gate=nan", "--gate=inf", "--timeout=nan", "--timeout=inf", "--cooldown=nan"])
def test_options_of_the_command_line(tiny_bundle, option):
    done = CliRunner().invoke(cli, ["bench", str(tiny_bundle), "--device", "python", option])
    assert done.exit_code == 2 or getattr(done.exception, "exit_code", None) == 2, done.output
