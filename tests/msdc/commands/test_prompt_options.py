"""--prompt-name, --prompt and --truncate-dim of every command that encodes: what the model itself gives with them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from prompt_bundles import kind_bundle

import msdc
from msdc.bench.measure import BenchSettings, collect
from msdc.cli import msdc as cli
from msdc.encoders.encoder import configured
from msdc.scores import cosine_rows

KIND = "default prompt"
SETTINGS = [{}, {"prompt_name": "passage"}, {"prompt": ""}]


@pytest.fixture(scope="module")
def folder():
    return kind_bundle(KIND, "onnx")[0]


@pytest.fixture(scope="module")
def encoder(folder):
    return msdc.load_encoder(folder)


def run(*words: object) -> str:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    assert done.exit_code == 0, done.output[-800:] + str(done.exception)
    return done.stdout


def options(settings: dict[str, str], prefix: str = "") -> list[str]:
    return [f"--{prefix}{name.replace('_', '-')}={value}" for name, value in settings.items()]


def scores(value) -> list[float]:
    """Scores of whole sets in a document, the first one first."""
    if isinstance(value, dict) and "spearman" in value and "pairs" in value:
        return [float(value["spearman"])]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [score for one in inner for score in scores(one)]


def expected_score(model, **settings) -> float:
    (found,) = collect(BenchSettings(tasks=("graded-pairs",))).score(configured(model, **settings))
    return float(found.spearman)


@pytest.mark.parametrize("settings", SETTINGS)
def test_encode_and_compare(folder, encoder, settings):
    (row,) = json.loads(run("encode", folder, "a cat", "--json", "--truncate-dim", 9, *options(settings)))
    np.testing.assert_allclose(row["vector"], encoder.encode(["a cat"], truncate_dim=9, **settings)[0], atol=1e-5)
    (cosine,) = json.loads(run("compare", folder, "a cat", "the dog", "--json", *options(settings)))["cosine"]
    vectors_ND = encoder.encode(["a cat", "the dog"], **settings)
    assert cosine == pytest.approx(cosine_rows(vectors_ND[:1], vectors_ND[1:])[0], abs=2e-3)


def test_other_defaults_are_those_of_the_call(encoder):
    """A configured model keeps its prompts, is another key of a cache, and leaves the model alone."""
    plain, other = encoder.encode(["a cat"]), configured(encoder, prompt="the ", truncate_dim=9)
    np.testing.assert_array_equal(other.encode(["a cat"]), encoder.encode(["a cat"], prompt="the ", truncate_dim=9))
    np.testing.assert_array_equal(encoder.encode(["a cat"]), plain)
    assert (other.width, encoder.width) == (9, plain.shape[1])
    assert len({other.fingerprint(), encoder.fingerprint(), configured(encoder, truncate_dim=9).fingerprint()}) == 3
    np.testing.assert_array_equal(
        other.encode(["a cat"], prompt_name="passage"),
        encoder.encode(["a cat"], prompt_name="passage", truncate_dim=9),
    )


def test_search_prompts_of_queries_and_of_lines(folder, encoder, tmp_path):
    lines, file = ["a cat", "the dog sleeps", "a house"], tmp_path / "notes.txt"
    file.write_text("\n".join(lines) + "\n")
    for query, line in (({}, {}), ({"prompt": "a "}, {"prompt": ""}), ({}, {"prompt_name": "passage"})):
        words = [*options(query), *options(line, "line-")]
        (answer,) = json.loads(run("search", file, "the cat", "-m", folder, "--json", *words))["queries"]
        expected = cosine_rows(encoder.encode(["the cat"] * 3, **query), encoder.encode(lines, **line))
        found = {hit["text"]: hit["cosine"] for hit in answer["hits"]}
        np.testing.assert_allclose([found[text] for text in lines], expected, atol=2e-3)


@pytest.mark.parametrize("settings", SETTINGS[1:])
def test_evaluate(folder, encoder, settings):
    output = run("evaluate", folder, "--tasks", "graded-pairs", "--json", "--quiet", *options(settings))
    assert abs(scores(json.loads(output))[0] - expected_score(encoder, **settings)) < 0.02
    # Another prompt is another score, or this test says nothing.
    assert abs(expected_score(encoder, **settings) - expected_score(encoder)) > 0.05


def test_bench_scores_the_vectors_of_the_prompt(tmp_path):
    _, bundle = kind_bundle(KIND, "onnx")
    words = ["--device", "python", "--lengths", "4", "--runs", "1", "--tasks", "graded-pairs", "--prompt", "the cat: "]
    run("bench", bundle, *words, "--truncate-dim", 8, "--json", tmp_path / "out.json")
    found = scores(json.loads((tmp_path / "out.json").read_text()))[0]
    assert abs(found - expected_score(msdc.load_bundle(bundle), prompt="the cat: ", truncate_dim=8)) < 0.02


@pytest.mark.parametrize("words", [["--prompt-name", "qery"], ["--prompt-name", "query", "--prompt", "a"]])
def test_wrong_prompts_are_one_line(folder, words, tmp_path):
    (tmp_path / "notes.txt").write_text("a cat\n")
    search = ["search", tmp_path / "notes.txt", "a", "-m", folder]
    for command in (["encode", folder, "a"], ["compare", folder, "a", "b"], search):
        done = CliRunner().invoke(cli, [*map(str, command), *words])
        line = str(done.exception)
        assert done.exit_code != 0 and "\n" not in line
        assert "no prompt 'qery'; its prompts: " in line or "not both" in line
