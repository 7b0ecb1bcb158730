"""A sweep in the report, and the page that a sweep leaves in its folder."""

import csv
import json
import re
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import CHROMIUM, layout, opened
from click.testing import CliRunner
from scipy import stats

from msdc.bench.report.cli import command
from msdc.bench.report.model import read_inputs
from msdc.bench.report.page import build_report, sweep_page, to_html, to_markdown
from msdc.bench.report.sweep import sweep_figures
from msdc.bench.result import BenchFile
from msdc.distill.sweep_table import differences_of, leading, mean_and_interval, read_sweep, table_of, to_csv
from msdc.errors import InputError
from msdc.tables import to_latex


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
    inputs = read_inputs([sweep_folder])
    report = build_report(BenchFile(), sweeps=inputs.sweeps)
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
    assert last == ["student.bottleneck=32 seed=3", "", "59.0", "1234567", "1000000", "10.0"]


@pytest.mark.parametrize("count", [2, 3, 5, 10, 11, 14])
def test_the_interval_over_seeds_is_students(count):
    values = [60 + 0.7 * n**1.5 % 5 for n in range(count)]
    mean, half = mean_and_interval(values)
    low, high = stats.t.interval(0.95, count - 1, np.mean(values), stats.sem(values))
    # The quantile is a constant beyond ten seeds.
    assert (mean - half, mean + half) == pytest.approx((low, high), abs=0.03 if count > 10 else 0.002)


def test_settings_whose_intervals_meet_have_no_winner():
    """Neither mean is inside the other interval; the settings have no seed in common."""

    def best(lower: tuple[float, float]) -> str:
        rows = rows_of({"a=1": (70.0, 70.2), "a=2": lower})
        for number, row in enumerate(rows):
            row["label"] = f"{row['label'].split()[0]} seed={number}"
        setting, *_ = leading(sweep_of(rows))
        return setting

    assert best((68.0, 68.2)) == ""
    assert best((66.0, 66.2)) == "a=1"


def test_differences_are_paired_by_seed():
    """Seeds that move both settings alike leave a narrow difference between wide intervals."""
    sweep = sweep_of(rows_of({"a=1": (70.0, 74.0, 66.0), "a=2": (69.0, 73.2, 64.8), "a=3": (70.0, 73.0, 67.5)}))
    table = differences_of(sweep)
    assert table.caption == "Differences from a=1"
    # -1, -0.8, -1.2: 4.303 x 0.2 / sqrt(3); 0, -1, 1.5.
    assert table.rows == (("a=2", "−1.0 ± 0.5"), ("a=3", "+0.2 ± 3.1"))
    assert leading(sweep)[0] == ""
    assert leading(sweep_of(rows_of({"a=1": (70.0, 74.0, 66.0), "a=2": (69.0, 73.2, 64.8)})))[0] == "a=1"
    alone = sweep_of(rows_of({"a=1": (70.0,), "a=2": (69.0,)}))
    assert differences_of(alone) is None
    (section,) = build_report(BenchFile(), sweeps=[sweep]).sections
    assert [table.caption for table in section.tables][1:] == ["Differences from a=1"]


def test_the_page_of_a_sweep_draws_every_point(sweep_folder):
    page = sweep_page(sweep_folder)
    assert page == sweep_folder / "report.html"
    text = page.read_text("utf-8")
    assert "full 67.2 / 68.2 / 69.2" in text
    assert text.count("<polyline") >= 2
    assert "var(--c2)" in text


def rows_of(scores: dict[str, tuple[float, ...]], **extra_fields) -> list[dict]:
    """Rows of several seeds with held-out scores; the programs of later settings are larger."""
    return [
        {"label": f"{setting} seed={seed}", "ours": {"held-out nearest": score}, "seconds": 10,
         "curve": [{"x": 1, "score": score - 5}, {"x": 2, "score": score}],
         "program": {"parameters": 1234567, "bytes": 1_000_000 * number}, **extra_fields}
        for number, (setting, of_seeds) in enumerate(scores.items(), 1) for seed, score in enumerate(of_seeds, 1)
    ]  # fmt: skip


def sweep_of(rows: list[dict]):
    return read_sweep({"recipe": "mine", "sweep": "a=1,2 x seed=1,2", "rows": rows}, "here")


def test_published_figures_have_no_interval_and_missing_ones_are_empty():
    scores = {"a=1": (70.0, 71.0), "a=2": (60.0, 61.0)}
    rows = rows_of(scores, paper={"cross": 82.6})
    for row, ms in zip(rows, (1.0, 2.0, 3.0, 3.0), strict=True):
        row["program"] |= {"ms": ms}
    for row in rows[2:]:
        row["paper"] = {"mono": 79.4}
    table = table_of(sweep_of(rows))
    shown = [dict(zip([column.title for column in table.columns], row, strict=True)) for row in table.rows]
    assert [(row["cross, paper"], row["mono, paper"]) for row in shown] == [("82.6", ""), ("", "79.4")]
    assert shown[0]["held-out nearest, ours"] == "70.5 ± 6.4"
    assert [row["ms"] for row in shown] == ["1.50", "3.00"]


def test_failed_points_have_a_column_and_a_note():
    rows = rows_of({"a=1": (70.0, 71.0), "a=2": (60.0,)})
    rows[1] = {"label": "a=1 seed=2", "failed": "the loss is nan"}
    rows[2] = {"label": "a=2 seed=1", "failed": "out of memory"}
    report = build_report(BenchFile(), sweeps=[sweep_of(rows)])
    (section,) = report.sections
    assert section.lead.startswith("3 points, 2 failed")
    assert list(section.notes) == ["a=1 seed=2 failed: the loss is nan", "a=2 seed=1 failed: out of memory"]
    assert "| a=1 | seed=2 | 70.0 | 1,234,567 | 1,000,000 | 10 |" in to_markdown(report)
    assert "| a=2 | seed=1 |  |  |  |  |" in to_markdown(report)
    so_far = sweep_of(rows).model_copy(update={"points": 9})
    assert build_report(BenchFile(), sweeps=[so_far]).sections[0].lead.startswith("3 of 9 points so far, 2 failed")
    everything = build_report(BenchFile(), sweeps=[sweep_of(rows[1:])])
    assert everything.sections[0].lead == "2 points, 2 failed."
    assert not everything.sections[0].figures


def test_seeds_of_a_setting_have_one_style_and_one_entry():
    curves, sizes = sweep_figures(sweep_of(rows_of({"a=1": (70.0, 71.0), "a=2": (60.0, 61.0)})))
    assert [(style.name, text) for style, text in curves.legend] == [
        ("a=1", "2 curves, which end at 70.0, 71.0"), ("a=2", "2 curves, which end at 60.0, 61.0"),
    ]  # fmt: skip
    assert curves.svg.count("<polyline") == 4
    assert set(re.findall(r"var\(--(c\d)\)", curves.svg)) == {"c1", "c2"}
    assert [style for style, _ in sizes.legend] == [style for style, _ in curves.legend]


def test_measures_and_units_are_not_mixed_in_a_drawing():
    rows = rows_of({"a=1": (70.0,), "a=2": (60.0,)})
    rows[0]["ours"]["dev"] = 50.0
    sweep = sweep_of(rows)
    assert ["Spearman" in figure.svg for figure in sweep_figures(sweep)] == [True, False]
    assert build_report(BenchFile(), sweeps=[sweep]).sections[0].lead == "2 points.", "nothing to compare"
    rows = rows_of({"a=1": (70.0,), "a=2": (60.0,)})
    rows[0]["unit"] = "step"
    assert [figure.alt.split(": ")[0].split(" by ")[1] for figure in sweep_figures(sweep_of(rows))[:2]] == [
        "steps", "epochs",
    ]  # fmt: skip


def test_an_interval_ends_at_the_bounds_of_the_measure_with_an_arrow():
    _, inside = sweep_figures(sweep_of(rows_of({"a=1": (70.0, 71.0), "a=2": (60.0, 61.0)})))
    _, beyond = sweep_figures(sweep_of(rows_of({"a=1": (93.0, 99.0), "a=2": (60.0, 61.0)})))
    assert "An arrow" not in inside.caption
    assert "An arrow" in beyond.caption
    assert beyond.svg.count("<line") > inside.svg.count("<line")
    ticks = [float(text) for text in re.findall(r">(\d+)</text>", beyond.svg)]
    assert max(ticks) <= 100


def test_every_drawing_is_a_file_of_its_own(sweep_folder):
    rows = rows_of({'<a="&">': (70.0, 71.0), "a=2" * 30: (60.0, 61.0)})
    (sweep_folder / "table.json").write_text(sweep_of(rows).model_dump_json())
    sweep_page(sweep_folder)
    files = sorted(sweep_folder.glob("*.svg"))
    assert [file.name for file in files] == ["figure-1.svg", "figure-2.svg"]
    for file in files:
        text = file.read_text("utf-8")
        root = ElementTree.fromstring(text)
        assert "var(" not in text, "other programs know no variables"
        words = " ".join("".join(element.itertext()) for element in root.iter())
        assert '<a="&">' in words
        assert "a=2a=2" in words


EVIL = r"50 % & more_of #1 $x$ {a} ~ ^ \input{x} [0] *"


def test_a_table_in_latex_is_escaped_and_balanced(tmp_path):
    rows = rows_of({EVIL: (70.0, 71.0), "[a]=2": (60.0, 61.0)})
    text = to_latex(table_of(sweep_of(rows)))
    body = text[text.index("\\midrule") + 8 : text.index("\\bottomrule")]
    assert r"50 \% \& more\_of \#1 \$x\$ \{a\} \textasciitilde{} \textasciicircum{} \textbackslash{}input" in body
    assert body.count(r" \\") == 2
    assert {len(re.findall(r"(?<!\\)&", row)) for row in body.strip().splitlines()} == {4}
    assert "{tabular}{p{6cm}rrrr}" in text, "long cells of words are wrapped"
    plain = re.sub(r"\\[{}%&_#$]", "", text)
    assert plain.count("{") == plain.count("}")
    code = "\n".join(line for line in plain.splitlines() if not line.startswith("%"))
    assert not re.search(r"[%#_~^]", code)
    assert body.strip().splitlines()[1].startswith("{[}a]=2"), "else an argument of the line end before it"
    compiler = shutil.which("tectonic") or shutil.which("pdflatex")
    if compiler is not None:
        page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + text + "\\end{document}"
        (tmp_path / "page.tex").write_text(page, encoding="utf-8")
        subprocess.run([compiler, "page.tex"], cwd=tmp_path, check=True, stdin=subprocess.DEVNULL)
        assert (tmp_path / "page.pdf").is_file()


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
@pytest.mark.parametrize("width", [390, 1024, 1440])
@pytest.mark.parametrize("columns", [4, 10, 30])
def test_the_table_of_a_sweep_is_a_table_unless_on_a_phone(sweep_folder, tmp_path, width, columns):
    rows = rows_of({"student.bottleneck=128 hard": (70.0, 71.0), "a=2": (60.0, 61.0)})
    for row in rows:
        row["ours"] |= {f"measure {number}": 12.3 for number in range(columns - 4)}
    rows[0]["paper"] = {"mono": 1.0}
    (sweep_folder / "table.json").write_text(sweep_of(rows).model_dump_json())
    page = sweep_page(sweep_folder)
    assert layout(page, tmp_path, width)["scroll"] == width, "the page itself is not scrolled sideways"
    with opened(page, width) as shown:
        display = shown.run("getComputedStyle(document.querySelector('tbody tr')).display")
        cut = shown.run("(e => e.scrollWidth > e.clientWidth)(document.querySelector('.scroll'))")
        empty = shown.run("[...document.querySelectorAll('td')].filter(e => !e.innerText.trim() && e.offsetParent)"
                          ".map(e => getComputedStyle(e, '::before').content)")  # fmt: skip
    assert display == ("block" if width == 390 else "table-row")
    assert cut == (columns == 30 and width > 390)
    assert all(content in ("none", '""') for content in empty)


def test_a_damaged_table_is_named(sweep_folder):
    (sweep_folder / "table.json").write_text('{"recipe": "r", "sweep": "s", "rows": [{"curve": 3}]}')
    with pytest.raises(InputError, match=r"table\.json is not the table of a sweep: rows\.0"):
        read_inputs([sweep_folder])
