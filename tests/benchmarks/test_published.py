"""MTEB's result files as our CSV files: which revision is read, and that a missing score stays empty."""

import importlib
import json
import subprocess

import pytest

from msdc.bench.accuracy.paper_tables import read_published

STS17 = {"ar-ar": 0.7, "es-es": 0.8, "en-en": 0.9, "en-ar": 0.61234, "en-tr": 0.6, "es-en": 0.75}


@pytest.fixture(scope="module")
def published():
    return importlib.import_module("published")


@pytest.fixture
def results(tmp_path):
    """A repository of result files: three revisions of one model, one incomplete revision of another."""

    def add(model, revision, version, scores, parameters=None):
        folder = tmp_path / "results" / model / revision
        folder.mkdir(parents=True)
        rows = [{"hf_subset": subset, "cosine_spearman": score} for subset, score in scores.items()]
        document = {"mteb_version": version, "scores": {"test": rows, "dev": [{"hf_subset": "en-tr"}]}}
        (folder / "STS17.json").write_text(json.dumps(document))
        (folder / "model_meta.json").write_text(json.dumps({"n_parameters": parameters}))

    add("org__many", "a", "2.10.0", {"en-en": 0.1})
    add("org__many", "b", "1.38.9", STS17)
    add("org__many", "c", "2.3.0-2.4.0", STS17 | {"en-en": 0.95})
    add("org__many", "external", None, STS17 | {"en-en": 0.5}, 117_654_272)
    add("org__one", "d", "1.0.0", {"en-en": 0.5, "ko-ko": 0.4}, 80_084_288)
    author = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_the_newest_complete_revision_is_read_and_absent_scores_are_empty(published, results, tmp_path):
    bare = tmp_path / "bare"
    subprocess.run(["git", "clone", "-q", "--bare", results, bare], check=True, capture_output=True)
    task, models = published.TASKS["mteb_sts17"], ("org/many", "org/one", "org/none")
    for folder in (results, bare):
        source, *lines = published.document(folder, task, models).splitlines()
        assert published.git(results, "rev-parse", "HEAD").strip() in source
        assert lines == [
            "system,ar-ar,es-es,en-en,en-ar,en-tr,en-es,parameters_M,revision",
            "many,70.0,80.0,95.0,61.2,60.0,75.0,118,c",
            "one,,,50.0,,,,80,d",
            "none,,,,,,,,",
        ]


@pytest.mark.parametrize("name", ["mteb_sts17", "mteb_stsb"])
def test_the_files_in_the_repository_have_these_models_and_columns(published, name):
    source, columns, rows = read_published(name)
    assert published.TASKS[name].name in source
    assert "commit " in source
    assert columns == ["system", *published.TASKS[name].subsets, "parameters_M", "revision"]
    assert [row["system"] for row in rows] == [model.partition("/")[2] for model in published.MODELS]
    for row in rows:
        scores = [row[column] for column in published.TASKS[name].subsets]
        assert all(score == "" or 0 < float(score) < 100 for score in scores)
        assert any(scores) == bool(row["revision"])
        assert float(row["parameters_M"]) > 0
