"""A sweep in the report, and its plot as PNG: the drawing of the page, set in pixels."""

import json
import re

import pytest
from click.testing import CliRunner
from PIL import Image

from msdc.bench.report import charts
from msdc.bench.report.build import build_report, plot_sweep
from msdc.bench.report.cli import command
from msdc.bench.report.data import Style
from msdc.bench.report.inputs import read_inputs
from msdc.bench.report.raster import CSS, write_png
from msdc.bench.report.write import to_html, to_markdown
from msdc.bench.result import BenchFile
from msdc.errors import InputError


def color(name):
    code = re.search(rf"--{name}: #([0-9a-f]{{6}})", CSS.read_text("utf-8"))[1]
    return tuple(int(code[i : i + 2], 16) for i in (0, 2, 4))


def pixels(path):
    with Image.open(path) as image:
        return image.size, {value for _, value in image.convert("RGB").getcolors(10**6)}


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
    assert "full ends highest (69.2)" in section.lead and "full 69.2" in section.figures[0].alt
    assert "| full | a row | 79.4 | 66.2 | 81.5 | 12 |" in to_markdown(report)
    page = to_html(report)
    assert 'id="sweep"' in page and "<b>hard" not in page and "&lt;b&gt;hard" in page
    out = tmp_path / "out.html"
    done = CliRunner().invoke(command, [str(sweep_folder), str(sweep_folder / "table.json"), "-o", str(out)])
    assert done.exit_code == 0 and 'id="sweep-2"' in out.read_text("utf-8")


def test_the_plot_of_a_sweep_holds_its_colors(sweep_folder):
    path = plot_sweep(sweep_folder)
    assert path == sweep_folder / "convergence.png"
    size, found = pixels(path)
    assert size[0] > 1000 and size[1] > 800
    assert {color("c1"), color("c2"), (255, 255, 255)} <= found


def test_every_kind_of_figure_can_be_set_in_pixels(tmp_path):
    style, other = Style("näme − ×", "c1", "diamond"), Style("名前", "c3", "cross")
    figures = [
        charts.bars("bars", [(style, 5.0, "5 MB")]),
        charts.score_dots("dots", [(style, 70.0, (60.0, 80.0)), (other, 71.0, None)]),
        charts.trade_off("trade", "MB", [(style, 5.0, 70.0, "a"), (other, 9.0, 75.0, "b")], log=True),
        charts.latency_lines([(style, [(8, 1.0, 1.2), (128, 9.0, 9.9)])], "ms", "lines"),
        charts.samples_over_time("samples", "ms", [(style, [1.0, 1.1, 50.0] * 50)]),
        charts.histogram("counts", ["0 to 1", "1 to 2"], [3, 0]),
        charts.scatter("two", {"en": [(0.0, 1.0)], "de": [(1.0, 0.0)]}),
    ]
    for figure in figures:
        write_png([figure], tmp_path / "one.png")
        assert color("c1") in pixels(tmp_path / "one.png")[1], figure.title
    write_png(figures, tmp_path / "all.png")
    assert pixels(tmp_path / "all.png")[0][1] > 4 * pixels(tmp_path / "one.png")[0][1]


def test_a_damaged_table_is_named(sweep_folder):
    (sweep_folder / "table.json").write_text('{"recipe": "r", "sweep": "s", "rows": [{"curve": 3}]}')
    with pytest.raises(InputError, match=r"table\.json is not the table of a sweep: rows\.0"):
        read_inputs([sweep_folder])
