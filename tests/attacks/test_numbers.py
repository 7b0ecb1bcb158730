"""Numbers that are none (NaN, infinity) or beyond any range are refused wherever one enters."""

import json
import shutil

import numpy as np
import pytest
import tiny_models as tiny
import torch
from bench_results import make_file, make_run
from click.testing import CliRunner
from refusals import one_line, spoil

from msdc.bench.measure import parity_failures
from msdc.bench.options import BenchSettings
from msdc.bench.result import read_result
from msdc.cli import msdc as cli
from msdc.commands.vectors import encode_stream, of_texts
from msdc.encoders.encoder import Encoder, SentenceEncoder
from msdc.errors import MsdcError
from msdc.export.bundle import Bundle, load_bundle
from msdc.export.golden import FP32, INT8, decode_vectors, encode_vectors, parity_of, shortfalls
from msdc.export.manifest import Parity
from msdc.files import parse_json, read_json
from msdc.search.index import Index
from msdc.text.tokenizer import FastTokenizer


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
    assert "golden text 1: the artifact" in one_line(lambda: parity_of(rows, spoiled, None))
    assert "golden text 1: the float model" in one_line(lambda: parity_of(spoiled, rows, None))


def test_gates_fail_on_nan():
    nan = Parity.model_construct(
        mean_cosine=np.nan, min_cosine=np.nan, max_abs=np.nan, texts=1, low_bit_share=np.nan, passed=None
    )
    assert len(shortfalls(nan, FP32)) == 4
    assert len(shortfalls(nan, INT8)) == 3
    run = make_run()
    parity = run.parity.model_copy(update={"mean_cosine": np.nan, "min_cosine": np.nan})
    spoiled = run.model_copy(update={"parity": parity})
    assert parity_failures([spoiled])
    assert not parity_failures([run])


def places(value, path=()):
    """Paths of all numbers in parsed JSON."""
    if isinstance(value, dict):
        for key, member in value.items():
            yield from places(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value[:2]):
            yield from places(member, (*path, index))
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


def broken_encoder(parent) -> SentenceEncoder:
    """A student with a weight that is infinite."""
    student = tiny.student()
    with torch.no_grad():
        student.layers[0].output_norm.bias[3] = np.inf
    return Encoder(student, tiny.tokenizer(), tiny.MAX_LENGTH, "broken")


def broken_bundle(parent) -> SentenceEncoder:
    """A bundle whose seal is right and whose weights are NaN."""
    folder = shutil.copytree(tiny.bundle("fp32", "onnx"), parent / "bundle")
    spoil(folder, name="broken")
    return load_bundle(folder)


@pytest.mark.parametrize("make", [broken_encoder, broken_bundle])
def test_a_vector_that_is_none_leaves_no_encoder(make, tmp_path):
    model = make(tmp_path)
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    attempts = [
        lambda: model.encode(["one", "two"]),
        lambda: model.encode(["one"], truncate_dim=1),
        lambda: next(encode_stream(model, of_texts(iter(["one"])))),
    ]
    if isinstance(model, Bundle):
        attempts.append(lambda: model.encode_ids([[2, 5, 3]]))
        attempts.append(lambda: Index(model, tmp_path / "i").add(["one", "two"]))
    for attempt in attempts:
        assert "broken: the vector of text 1 holds NaN or infinity" in one_line(attempt)
    assert (
        not (tmp_path / "i").exists() or not (tmp_path / "i").stat().st_size or len(Index(model, tmp_path / "i")) == 0
    )


@pytest.mark.parametrize("half", ["a\ud800b", "\udfff"])
def test_half_of_a_surrogate_pair(half):
    model = Encoder(tiny.student(), tiny.tokenizer(), tiny.MAX_LENGTH, "tiny")
    assert "text 2 has half of a surrogate pair" in one_line(lambda: model.encode(["one", half]))
    fast = FastTokenizer(tiny.student_folder() / "tokenizer.json")
    for tokenizer in (model.tokenizer, fast):
        assert "tokenizer fails" in one_line(lambda tokenizer=tokenizer: tokenizer.encode([half] * 40, 8))
    assert "`prompt` has half of a surrogate" in one_line(lambda: model.encode(["one"], prompt=half))


@pytest.mark.parametrize("changes", [{"timeout_s": np.inf}, {"timeout_s": np.nan}, {"cooldown_s": np.inf}])
def test_settings(changes):
    with pytest.raises(ValueError, match=f"(?s){next(iter(changes))}.*finite number"):
        BenchSettings(**changes)


@pytest.mark.parametrize("option", ["--gate=nan", "--gate=inf", "--timeout=nan", "--timeout=inf", "--cooldown=nan"])
def test_options_of_the_command_line(tiny_bundle, option):
    done = CliRunner().invoke(cli, ["bench", str(tiny_bundle), "--device", "python", option])
    assert done.exit_code == 2 or getattr(done.exception, "exit_code", None) == 2, done.output
