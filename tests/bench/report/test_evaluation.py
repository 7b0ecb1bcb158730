"""Documents of `msdc evaluate` in the report: tables, pictures, and refusal of what is none."""

import json
import re
from xml.etree import ElementTree

import pytest
from accuracy_models import evaluated
from bench_results import make_file

from msdc.bench.accuracy.document import read_document
from msdc.bench.report.evaluation import evaluations
from msdc.bench.report.model import read_inputs
from msdc.bench.report.page import build_report, evaluation_report, to_html, to_markdown
from msdc.bench.result import BenchFile
from msdc.errors import InputError


@pytest.fixture(scope="module")
def document(tiny_student):
    return evaluated(tiny_student, ("graded-pairs", "bias/graded-pairs"), resamples=50)


def test_a_document_becomes_a_section_with_its_numbers(document):
    (section,) = evaluations([read_document(document)])
    assert section.title == "Evaluation: tiny-student"
    text = str(section.tables)
    scored = next(r for r in document["results"] if r["task"] == "sts")
    assert f"{scored['spearman']:.1f} [" in text
    for figure in section.figures:
        assert ElementTree.fromstring(figure.svg).get("aria-label") == figure.alt
    assert section.figures, "the bias task has a picture"


def test_it_stands_beside_bench_results_in_one_page(document, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(document))
    (tmp_path / "b.json").write_text(make_file().model_dump_json())
    found = read_inputs([tmp_path])
    documents = found.evaluations
    assert found.results == make_file() and len(documents) == 1
    page = to_html(build_report(make_file(), evaluations=documents))
    assert 'id="evaluation"' in page and 'id="latency"' in page
    assert 'id="evaluation-2"' in to_html(build_report(BenchFile(), evaluations=documents * 2))


def test_a_document_is_kept_whole_and_others_are_refused(document):
    assert "settings" in document and document["results"][0]["data"][0]["sha256"]
    assert read_document(document).as_json() == document
    with pytest.raises(InputError, match="msdc evaluate"):
        read_document({"kind": "accuracy", "results": [{"task": "sts"}]})


def test_a_page_of_its_own_names_each_table_once(document):
    report = evaluation_report(read_document(document))
    page = to_html(report)
    assert [section.id for section in report.sections] == ["task-sts", "task-bias", "training-text"]
    assert page.count("Semantic textual similarity: Spearman x 100</h2>") == 1
    assert '<p class="caption" id="task-sts-table-1">' not in page and 'aria-labelledby="task-sts-title"' in page
    for key in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert f'id="{key}"' in page
    text = to_markdown(report)
    name = document["models"][0]["label"]
    head = f"# Accuracy\n\n{name}\n\n## Semantic textual similarity: Spearman x 100\n\n| set | {name} | items |"
    assert text.startswith(head)


def test_a_score_that_is_not_finite_is_a_dash(document):
    broken = json.loads(json.dumps(document))
    broken["results"][0] |= {"spearman": None, "interval": [None, None]}
    assert "| graded-pairs | – [–, –] | 112 |" in to_markdown(evaluation_report(read_document(broken)))
