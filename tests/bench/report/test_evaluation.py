"""Documents of `msdc evaluate` in the report: tables, pictures, and refusal of what is none."""

import json
from xml.etree import ElementTree

import pytest
from bench_results import make_file

from msdc.bench.accuracy.config import EvaluateConfig
from msdc.bench.accuracy.document import as_documents, read_document
from msdc.bench.accuracy.run import run
from msdc.bench.accuracy.task import Options
from msdc.bench.report.build import build_report
from msdc.bench.report.inputs import read_inputs
from msdc.bench.report.sections.evaluation import sections
from msdc.bench.report.write import to_html
from msdc.bench.result import BenchFile
from msdc.errors import InputError


@pytest.fixture(scope="module")
def document(tiny_student, tmp_path_factory):
    from msdc.compress.student.io import save_student

    student, tokenizer = tiny_student
    folder = save_student(student, tokenizer.path, tmp_path_factory.mktemp("student") / "tiny")
    config = EvaluateConfig(str(folder), ("graded-pairs", "bias/graded-pairs"), options=Options(resamples=50))
    return json.loads(json.dumps(run(config).as_json()))


def test_a_document_becomes_a_section_with_its_numbers(document):
    (section,) = sections(as_documents(document))
    assert section.title == "Evaluation: tiny"
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


def test_what_is_no_such_document_is_refused():
    with pytest.raises(InputError, match="msdc evaluate"):
        read_document({"kind": "accuracy", "results": [{"task": "sts"}]})
