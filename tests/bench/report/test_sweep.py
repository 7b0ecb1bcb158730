"""A sweep in the report, and the page that a sweep leaves in its folder."""

import csv
import json

import pytest
from click.testing import CliRunner

from msdc.bench.report.cli import command
from msdc.bench.report.model import read_inputs
from msdc.bench.report.page import build_report, sweep_page, to_html, to_markdown
from msdc.bench.result import BenchFile
from msdc.distill.sweep import to_csv
from msdc.errors import InputError


@pytest.fixture
def sweep_folder(tmp_path):
    rows = [
        {"label": label, "row": "a row", "paper": {"cross": 79.4}, "ours": {"cross": ours, "held-out nearest": 81.5},
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
    assert report.title == "msd:small"
    assert section.title == "Sweep: msd:small, table=5"
    assert "full ends highest (69.2, one seed each)" in section.lead
    assert "full 67.2 / 68.2 / 69.2" in section.figures[0].alt
    note = section.tables[0].note
    assert "cross: Spearman x 100" in note
    assert "held-out nearest: pairs" in note
    assert "paper's columns" in note
    assert not any(word in note for word in ("mono", "avg", "mse", "dev", "bytes", "ms:")), "no column of the table"
    assert "held-out pairs found, %" in section.figures[0].svg
    assert "| full | a row | 79.4 | 66.2 | 81.5 | 12 |" in to_markdown(report)
    page = to_html(report)
    assert 'id="sweep"' in page
    assert "<b>hard" not in page
    assert "&lt;b&gt;hard" in page
    out = tmp_path / "out.html"
    done = CliRunner().invoke(command, [str(sweep_folder), str(sweep_folder / "table.json"), "-o", str(out)])
    assert done.exit_code == 0
    assert 'id="sweep-2"' in out.read_text("utf-8")


def test_seeds_are_a_mean_and_points_have_bytes(tmp_path):
    scores = {"student.bottleneck=64": (70.0, 71.0, 72.0), "student.bottleneck=32": (60.0, 61.0, 59.0)}
    rows = [
        {"label": f"{setting} seed={seed}", "ours": {"dev": score}, "seconds": 10, "curve": [{"x": 1, "score": score}],
         "program": {"parameters": 1234567, "bytes": 2_000_000 if "64" in setting else 1_000_000}}
        for setting, of_seeds in scores.items() for seed, score in enumerate(of_seeds, 1)
    ]  # fmt: skip
    table = {"recipe": "mine", "sweep": "student.bottleneck=64,32 x seed=1,2,3", "rows": rows}
    (tmp_path / "table.json").write_text(json.dumps(table))
    report = build_report(BenchFile(), sweeps=read_inputs([tmp_path]).sweeps)
    (section,) = report.sections
    # 95 % of Student's t at two degrees of freedom: 4.303 x 1 / sqrt(3).
    assert "| student.bottleneck=64 | 71.0 ± 2.5 | 1,234,567 | 2,000,000 | 30 |" in to_markdown(report)
    assert "Mean of 3 seeds" in section.tables[0].note
    assert "paper's row" not in to_markdown(report)
    assert "student.bottleneck=64 ends highest (71.0 ± 2.5)" in section.lead
    assert all("Spearman × 100, development files" in figure.svg for figure in section.figures)
    assert section.figures[1].title == "Size and accuracy"
    assert "1.00 MB, 60.0" in section.figures[1].alt
    rows[1]["curve"] = [{"x": 1, "score": 40.0}]  # now the interval of the first holds the mean of the second
    (tmp_path / "table.json").write_text(json.dumps(table))
    (section,) = build_report(BenchFile(), sweeps=read_inputs([tmp_path]).sweeps).sections
    assert section.lead == "6 points; no significant winner."
    (first, *_, last) = csv.reader(to_csv(read_inputs([tmp_path]).sweeps[0]).splitlines())
    assert first == ["point", "row of the paper", "dev", "parameters", "bytes", "seconds"]
    assert last == ["student.bottleneck=32 seed=3", "", "59.0", "1234567.0", "1000000.0", "10.0"]


def test_the_page_of_a_sweep_draws_every_point(sweep_folder):
    page = sweep_page(sweep_folder)
    assert page == sweep_folder / "report.html"
    text = page.read_text("utf-8")
    assert "full 67.2 / 68.2 / 69.2" in text
    assert text.count("<polyline") >= 2
    assert "var(--c2)" in text


def test_a_damaged_table_is_named(sweep_folder):
    (sweep_folder / "table.json").write_text('{"recipe": "r", "sweep": "s", "rows": [{"curve": 3}]}')
    with pytest.raises(InputError, match=r"table\.json is not the table of a sweep: rows\.0"):
        read_inputs([sweep_folder])
