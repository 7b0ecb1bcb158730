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
from msdc.bench.report.page import build_report, evaluation_report, to_html, to_markdown, to_text
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
    inputs = read_inputs([tmp_path])
    documents = inputs.evaluations
    assert inputs.results == make_file()
    assert len(documents) == 1
    page = to_html(build_report(make_file(), evaluations=documents))
    assert 'id="evaluation"' in page
    assert 'id="latency"' in page
    assert 'id="evaluation-2"' in to_html(build_report(BenchFile(), evaluations=documents * 2))


def test_a_document_is_kept_whole_and_others_are_refused(document):
    assert "settings" in document
    assert document["results"][0]["data"][0]["sha256"]
    assert read_document(document).as_json() == document
    with pytest.raises(InputError, match="msdc evaluate"):
        read_document({"kind": "accuracy", "results": [{"task": "sts"}]})


def test_a_page_of_its_own_names_each_table_once(document):
    report = evaluation_report(read_document(document))
    page = to_html(report)
    assert [section.id for section in report.sections] == ["summary", "task-sts", "task-bias", "training-text"]
    assert page.count("Semantic textual similarity: Spearman x 100</h2>") == 1
    assert '<p class="caption" id="task-sts-table-1">' not in page
    assert 'aria-labelledby="task-sts-title"' in page
    for key in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert f'id="{key}"' in page
    text = to_markdown(report)
    name = document["models"][0]["label"]
    created = document["created"][:16].replace("T", " ")
    sts = document["results"][0]
    lead = f"{name}: Spearman {sts['spearman']:.1f} ["
    assert text.startswith(f"# Accuracy\n\n{name}. {created} UTC.\n\n## Summary\n\n{lead}")
    assert "on graded-pairs" in text
    assert "## Semantic textual similarity: Spearman x 100\n\n| set |" in text
    assert to_text(report).startswith(lead)
    (figure,) = report.sections[0].figures
    assert f"graded-pairs {sts['spearman']:.1f}" in figure.alt
    assert "95 %" in figure.caption
    again = evaluation_report(read_document(document))
    assert to_html(again) == page, "the date is the document's"
    assert not evaluation_report(read_document(document | {"created": None})).created


def test_a_p_beside_an_interval_that_contains_zero_is_undecided(document):
    tests = [(0.029, [-0.1, 1.2], True), (0.2, [0.1, 1.2], True), (0.01, [0.1, 1.2], False), (0.5, [-1.0, 1.2], False)]
    for p_value, interval, undecided in tests:
        changed = json.loads(json.dumps(document))
        changed["results"][0]["against"] = {"model": "other", "difference": 0.5, "interval": interval, "p": p_value}
        text = to_markdown(evaluation_report(read_document(changed)))
        assert (f"{p_value:.3f} \\*" in text or f"{p_value:.3f} *" in text) == undecided
        assert ("disagree at 5 %" in text) == undecided


@pytest.mark.parametrize("values, shown", [((78.9, 80.0), "| 78.9 | 80.0 |"), ((78.9, 80.25), "| 78.90 | 80.25 |")])
def test_published_figures_have_the_decimals_of_their_paper(document, values, shown):
    row = {"system": "a system", "published": True, "values": dict(zip("ab", values, strict=True))}
    table = {"title": "Table 1", "source": "a paper", "columns": ["a", "b"], "rows": [row]}
    assert shown in to_markdown(evaluation_report(read_document(document | {"tables": [table]})))


def test_many_sets_are_a_few_rows_and_a_few_words(document):
    row = document["results"][0]
    results = [row | {"name": f"set{i}/{part}", "model": model} for i in range(9) for part in "ab" for model in "mn"]
    summary = evaluation_report(read_document(document | {"results": results})).sections[0]
    assert summary.lead.startswith("m: Spearman")
    assert "on set0 (2 sets)" in summary.lead
    assert summary.lead.endswith("and 5 more below.")
    assert summary.figures[0].svg.count("<title>") == 16
    assert "m on 16 sets" in summary.figures[0].caption


def test_a_mean_is_of_all_parts_or_a_dash(document):
    row = document["results"][0] | {"interval": None, "contamination": None}
    scores = {("m", "a"): 60.0, ("m", "b"): 70.0, ("n", "a"): 90.0}
    results = [row | {"model": model, "name": f"set/{part}", "spearman": score}
               for (model, part), score in scores.items()]  # fmt: skip
    shown = to_markdown(evaluation_report(read_document(document | {"results": results})))
    assert "| set/a | 60.0 | 90.0 |" in shown
    assert "| set, mean of 2 | 65.0 | – |" in shown


def test_a_score_that_is_not_finite_is_a_dash(document):
    broken = json.loads(json.dumps(document))
    broken["results"][0] |= {"spearman": None, "interval": [None, None]}
    assert "| graded-pairs | – [–, –] | 112 |" in to_markdown(evaluation_report(read_document(broken)))
