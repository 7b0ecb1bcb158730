"""A sweep in the report, and the page that a sweep leaves in its folder."""

import json

import pytest
from click.testing import CliRunner

from msdc.bench.report.cli import command
from msdc.bench.report.model import read_inputs
from msdc.bench.report.page import build_report, sweep_page, to_html, to_markdown
from msdc.bench.result import BenchFile
from msdc.errors import InputError


@pytest.fixture
def sweep_folder(tmp_path):
    rows = [
        {"label": label, "row": "a row", "paper": {"cross": 79.4}, "ours": {"cross": ours, "accuracy": 81.5},
         "report": {}, "seconds": 12.3, "unit": "epoch", "curve": [{"x": e, "score": ours + e} for e in (1, 2, 3)]}
        for label, ours in (("full", 66.2), ("<b>hard</b>", 65.1))
    ]  # fmt: skip
    (tmp_path / "table.json").write_text(json.dumps({"recipe": "msd:small", "sweep": "table=5", "rows": rows}))
    (tmp_path / "table.md").write_text("the table\n")
    return tmp_path


def test_a_sweep_is_a_section_with_its_curves_and_table(sweep_folder, tmp_path):
    found = read_inputs([sweep_folder])
    report = build_report(BenchFile(), sweeps=found.sweeps)
    (section,) = report.sections
    assert report.title == "msd:small" and section.title == "Sweep: msd:small, table=5"
    assert "full ends highest (69.2)" in section.lead and "full 67.2 / 68.2 / 69.2" in section.figures[0].alt
    assert "| full | a row | 79.4 | 66.2 | 81.5 | 12 |" in to_markdown(report)
    page = to_html(report)
    assert 'id="sweep"' in page and "<b>hard" not in page and "&lt;b&gt;hard" in page
    out = tmp_path / "out.html"
    done = CliRunner().invoke(command, [str(sweep_folder), str(sweep_folder / "table.json"), "-o", str(out)])
    assert done.exit_code == 0 and 'id="sweep-2"' in out.read_text("utf-8")


def test_the_page_of_a_sweep_draws_every_point(sweep_folder):
    page = sweep_page(sweep_folder)
    assert page == sweep_folder / "report.html"
    text = page.read_text("utf-8")
    assert "full 67.2 / 68.2 / 69.2" in text and text.count("<polyline") >= 2 and "var(--c2)" in text


def test_a_damaged_table_is_named(sweep_folder):
    (sweep_folder / "table.json").write_text('{"recipe": "r", "sweep": "s", "rows": [{"curve": 3}]}')
    with pytest.raises(InputError, match=r"table\.json is not the table of a sweep: rows\.0"):
        read_inputs([sweep_folder])
