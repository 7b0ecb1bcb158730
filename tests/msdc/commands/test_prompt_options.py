"""--prompt-name, --prompt and --truncate-dim of every command that encodes: what the model itself gives with them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from prompt_bundles import kind_bundle

import msdc
from msdc.bench.settings import BenchSettings
from msdc.bench.workload import collect
from msdc.cli import msdc as cli
from msdc.encoders.encoder import configured
from msdc.scores import cosine_rows

KIND = "default prompt"


@pytest.fixture(scope="module")
def folder() -> Path:
    return kind_bundle(KIND, "onnx")[0]


@pytest.fixture(scope="module")
def encoder(folder):
    return msdc.load_encoder(folder)


def run(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == code, done.output[-800:] + str(done.exception)
    return done.stdout


def spearman_of(value) -> float:
    """The first score of a document: that of the whole set."""
    if isinstance(value, dict):
        if "spearman" in value and "pairs" in value:
            return float(value["spearman"])
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        found = spearman_of(one)
        if found == found:
            return found
    return float("nan")


def expected_score(model, **settings) -> float:
    (found,) = collect(BenchSettings(tasks=("graded-pairs",))).score(configured(model, **settings))
    return float(found.spearman)


SETTINGS = [({}, []), ({"prompt_name": "passage"}, ["--prompt-name", "passage"]), ({"prompt": ""}, ["--prompt", ""])]


@pytest.mark.parametrize(("settings", "words"), SETTINGS)
def test_encode_and_compare(folder, encoder, settings, words):
    (row,) = json.loads(run("encode", folder, "a cat", "--json", "--truncate-dim", 9, *words))
    np.testing.assert_allclose(row["vector"], encoder.encode(["a cat"], truncate_dim=9, **settings)[0], atol=1e-5)
    value = json.loads(run("compare", folder, "a cat", "the dog", "--json", *words))
    vectors_ND = encoder.encode(["a cat", "the dog"], **settings)
    cosine = float(cosine_rows(vectors_ND[:1], vectors_ND[1:])[0])
    assert any(abs(number - cosine) < 2e-3 for number in _numbers(value)), (cosine, value)


def test_search_prompts_of_queries_and_of_lines(folder, encoder, tmp_path):
    lines = ["a cat", "the dog sleeps", "a house"]
    file = tmp_path / "notes.txt"
    file.write_text("\n".join(lines) + "\n")
    for query, line in (({}, {}), ({"prompt": "a "}, {"prompt": ""}), ({}, {"prompt_name": "passage"})):
        words = [f"--{name.replace('_', '-')}={value}" for name, value in query.items()]
        words += [f"--line-{name.replace('_', '-')}={value}" for name, value in line.items()]
        value = json.loads(run("search", file, "the cat", "-m", folder, "--json", *words))
        cosines = cosine_rows(
            encoder.encode(["the cat"] * 3, **query), encoder.encode(lines, **(line or query))
        ).tolist()
        found = [number for number in _numbers(value) if any(abs(number - cosine) < 2e-3 for cosine in cosines)]
        assert len(found) >= 3, (query, line, value, cosines)


def _numbers(value) -> list[float]:
    if isinstance(value, dict):
        return [number for one in value.values() for number in _numbers(one)]
    if isinstance(value, list):
        return [number for one in value for number in _numbers(one)]
    return [value] if isinstance(value, float) else []


@pytest.mark.parametrize(("settings", "words"), SETTINGS[1:])
def test_evaluate(folder, encoder, settings, words):
    output = run("evaluate", folder, "--tasks", "graded-pairs", "--json", "--quiet", *words)
    assert abs(spearman_of(json.loads(output)) - expected_score(encoder, **settings)) < 0.02
    # Another prompt is another score, or this test says nothing.
    assert abs(expected_score(encoder, **settings) - expected_score(encoder)) > 0.05


def test_bench_scores_the_vectors_of_the_prompt(tmp_path):
    _, bundle = kind_bundle(KIND, "onnx")
    words = ["--device", "python", "--lengths", "4", "--runs", "1", "--tasks", "graded-pairs", "--prompt", "the cat: "]
    run("bench", bundle, *words, "--truncate-dim", 8, "--json", tmp_path / "out.json")
    found = json.loads((tmp_path / "out.json").read_text())
    expected = expected_score(msdc.load_bundle(bundle), prompt="the cat: ", truncate_dim=8)
    assert abs(spearman_of(found) - expected) < 0.02


@pytest.mark.parametrize("words", [["--prompt-name", "qery"], ["--prompt-name", "query", "--prompt", "a"]])
def test_wrong_prompts_are_one_line(folder, words, tmp_path):
    (tmp_path / "notes.txt").write_text("a cat\n")
    for command in (["encode", folder, "a"], ["compare", folder, "a", "b"], ["search", tmp_path / "notes.txt", "a",
                    "-m", folder]):  # fmt: skip
        done = CliRunner().invoke(cli, [*map(str, command), *words])
        line = str(done.exception)
        assert done.exit_code != 0 and "\n" not in line
        assert "no prompt 'qery'; its prompts: " in line or "not both" in line
