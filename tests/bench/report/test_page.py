"""The report in a real browser: everything there, nothing from outside, no sideways scrolling on a phone."""

import base64
import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bench_results import make_file, make_models, make_run
from browser import CHROMIUM, layout, opened
from markdown_it import MarkdownIt
from refusals import one_line

from msdc.bench.report import page as page_module
from msdc.bench.report.drawing import Figure
from msdc.bench.report.model import Report, ReportSection
from msdc.bench.report.page import build_report, to_html, to_json, to_markdown, write_report
from msdc.bench.report.targets import parse_targets
from msdc.bench.result import Accuracy, BenchFile
from msdc.errors import InputError
from msdc.tables import Column, Table

browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
SECTIONS = ["choice", "targets", "comparison", "history", "accuracy", "artifacts", "latency",
            "instructions", "memory", "training", "method"]  # fmt: skip


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rows = []
    for name in ("train-assistant", "align-bottleneck", "train-student", "contrast"):
        rows += [{"stage": name, "step": s, "epoch": 0, "loss": 1.0 / s, "seconds": s * 0.5} for s in range(1, 60)]
        rows.append({"stage": name, "step": 59, "epoch": 0, "evaluation": {"choice": 1.0, "heldout_accuracy": 55.0}})
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture(scope="module")
def report(run_folder):
    old = {"created": "2026-01-01T03:04:05+00:00"}
    before = [BenchFile(runs=(make_run(scale=1.4, seed=7, **old), make_run("onnx", seed=8, **old)))]
    return build_report(
        make_file(), created="2026-01-02 03:04 UTC", title="A <b>student</b> & its artifacts", run_folder=run_folder,
        before=before,
        targets=parse_targets(("4.5ms@32", "1s@64"), "12MB", "28MiB", ("70@sts17/en-es",)),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    return write_report(report, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def unfolded(page, tmp_path):
    """The page with all its sections open, as after a reader's clicks."""
    target = tmp_path / "open.html"
    target.write_text(page.read_text("utf-8").replace("<details>", "<details open>"), encoding="utf-8")
    return target


class Reader(HTMLParser):
    """Tags, and whether they close as they open."""

    VOID = frozenset({"meta", "link", "br", "hr", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, key, value) for key, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open = self.open[:-1] if tag not in self.VOID else self.open

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"{tag} closes out of turn"


def test_the_page_is_well_formed_and_asks_for_nothing_outside(page):
    text = page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert "script" not in reader.tags
    assert "img" not in reader.tags
    assert "iframe" not in reader.tags
    for tag, key, value in reader.attributes:
        if key in ("href", "src", "srcset", "action", "xlink:href"):
            assert value.startswith(("#", "data:")), (tag, key, value)
    # The SVG name space is a name, not a request; nothing else may look like an address.
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text)) - {"http://www.w3.org/2000/svg"}
    assert addresses == set()
    assert "@import" not in text
    assert "url(" not in text
    assert "<b>student</b>" not in text
    assert "&lt;b&gt;student&lt;/b&gt;" in text


def test_every_section_table_and_figure_is_named(page):
    reader = Reader()
    reader.feed(page.read_text(encoding="utf-8"))
    ids = [value for _, key, value in reader.attributes if key == "id"]
    assert len(ids) == len(set(ids))
    assert [i for i in ids if i in SECTIONS] == SECTIONS
    for _, key, value in reader.attributes:
        if key == "aria-labelledby":
            assert value in ids
    labels = [value for tag, key, value in reader.attributes if tag == "svg" and key == "aria-label"]
    assert len(labels) >= 10
    assert all(len(label) > 20 for label in labels)
    assert reader.tags.count("table") == [(tag, key) for tag, key, _ in reader.attributes].count(
        ("table", "aria-labelledby")
    )
    assert reader.tags.count("thead") == reader.tags.count("table")


def test_instruction_counts_are_never_shown_as_time(report):
    emulated = next(s for s in report.sections if s.id == "instructions")
    for table in emulated.tables:
        assert not any(column.unit == "ms" for column in table.columns)
        assert "3.00" in [cell for row in table.rows for cell in row]
    for figure in emulated.figures:
        assert not re.search(r"\bms\b", figure.svg + figure.caption + figure.alt)
    for section in report.sections:
        if section.id == "latency":
            text = str(section)
            assert "cortex-a53" not in text, section.id
        for table in section.tables:
            milliseconds = [i for i, column in enumerate(table.columns) if column.unit == "ms"]
            for row in table.rows:
                if any("cortex-a53" in cell for cell in row):
                    assert all(row[i] == "–" for i in milliseconds)
    *_, emulated = report.sections[0].tables[0].rows
    assert emulated[2] == "cortex-a53 (emulated)"
    assert emulated[4] == "8.0 M instructions"


def test_markdown_and_json_hold_the_same_tables(report):
    text, data = to_markdown(report), to_json(report)
    for section in report.sections:
        assert f"## {section.title}" in text
        for table in section.tables:
            for row in table.rows:
                assert all(cell.replace("|", "\\|") in text for cell in row)
    assert [s["id"] for s in data["sections"]] == [s.id for s in report.sections]
    assert BenchFile.model_validate(data["results"]) == make_file()
    widths = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    assert all(w >= 3 for w in widths)


HOSTILE = (
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "![x](http://x.example/?seen)",
    "[x](javascript:alert(1))", "[x][1]\n\n[1]: http://x.example", "\\<b>x</b>", "[x\\](http://x.example)", "<!-- x",
    "# x", "x\n# y", "x\n\n---\n", "1. x", "- x", "```\nx", "| a | b |\n|---|---|", "a | b \\| c", "> x",
    "<http://x.example>", "&lt;b&gt;", "x\r\n* y", "    x", "=====", "~~~", "a\x1b[31mb\u202ec",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_holds_no_markup_of_names(text):
    """An independent reader of Markdown sees the same blocks as for a harmless name, and no HTML, link or image."""

    def blocks(name):
        table = Table(f"c {name}", (Column(name, align="left"), Column("n")), ((name, "1"), ("x", name)), name)
        sections = (
            ReportSection("a", name, name, tables=(table,), notes=(name, "n")),
            ReportSection("b", name, name, figures=(Figure(name, "", name),)),
        )
        written = to_markdown(Report(name, name, "", sections, (name,), [("", name, name)]))
        assert "\x1b" not in written
        assert "\u202e" not in written
        tokens = MarkdownIt("commonmark").enable("table").parse(written)
        inline = {child.type for token in tokens for child in token.children or ()}
        assert not inline & {"html_inline", "link_open", "image", "code_inline", "hardbreak"}, written
        return [token.type for token in tokens]

    assert blocks(text) == blocks("harmless")


def test_notes_name_columns_that_exist_and_axes_what_they_show(report):
    named = 0
    for section in (*report.sections, *build_report(BenchFile(runs=(make_run("onnx", memory=None),))).sections):
        for table in section.tables:
            titles = {column.title for column in table.columns}
            for sentence in table.note.split(". "):
                before, colon, _ = sentence.partition(": ")
                assert not colon or before in titles, (section.id, sentence)
                named += bool(colon)
        for figure in section.figures:
            words = re.findall(r">([^<>]+)</text>", figure.svg)
            assert not {"ms", "million", "score"} & set(words), "a unit alone says not what is drawn"
    assert named > 8


def test_a_report_of_little_is_still_a_report():
    bare = make_run(latency=(), memory=None, parity=None, accuracy=(), tokenize=None, pipeline=None, load=None)
    ids = [section.id for section in build_report(BenchFile(runs=(bare,))).sections]
    assert ids == ["choice", "artifacts", "method"]
    assert "<html" in to_html(build_report(BenchFile(models=make_file().models)))
    with pytest.raises(InputError, match="nothing to report"):
        build_report(BenchFile())


def test_many_artifacts_and_sets_have_names_of_their_own():
    entries = tuple(Accuracy(task="sts", name=f"set-{i}", spearman=50.0 + i, pairs=10) for i in range(12))
    artifact = make_run().artifact
    runs = [make_run(seed=i, accuracy=entries, artifact={**artifact.model_dump(), "sha256": f"{i:x}" * 64})
            for i in range(10)]  # fmt: skip
    report = build_report(BenchFile(runs=tuple(runs)))
    assert len(next(s for s in report.sections if s.id == "accuracy").figures) == 6
    names = [row[0] for row in next(s for s in report.sections if s.id == "method").tables[0].rows]
    assert len(set(names)) == 10
    assert names[0] == "executorch 00000000"
    again = [make_run(seed=i, created=f"2026-01-0{i + 1}T00:00:00+00:00") for i in range(3)]
    data = build_report(BenchFile(runs=tuple(again)))
    table = next(s for s in data.sections if s.id == "method").tables[0]
    assert len(table.rows) == 1, "of one artifact in one place the latest run counts"
    (table,) = next(s for s in data.sections if s.id == "history").tables
    assert len(table.rows) == 3


def test_below_an_answer_the_page_is_folded_and_holds_its_json(report, page):
    text = page.read_text(encoding="utf-8")
    opened = [section.id for section in report.sections if section.open]
    assert opened == ["choice", "targets", "comparison"]
    assert text.count("<details>") == len(SECTIONS) - len(opened)
    data = re.search(r'href="data:application/json;base64,([^"]+)" download', text)[1]
    assert json.loads(base64.b64decode(data)) == to_json(report)
    assert "<details>" not in to_html(build_report(BenchFile(models=make_file().models)))


def test_no_file_is_overwritten_without_force(report, tmp_path):
    target = tmp_path / "report.md"
    write_report(report, target)
    with pytest.raises(InputError, match="exists already"):
        write_report(report, target)
    write_report(report, target, force=True)
    with pytest.raises(InputError, match=r"\.html"):
        write_report(report, tmp_path / "report.pdf")


def luminance(color):
    def linear(channel):
        channel /= 255
        return channel / 12.92 if channel <= 0.03928 else ((channel + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(float(v))) for v in re.findall(r"[\d.]+", color)[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first, second):
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@browser
@pytest.mark.parametrize("width", [390, 1280])
def test_no_sideways_scrolling_at_any_width(unfolded, page, tmp_path, width):
    assert layout(page, tmp_path, width)["height"] < (9000 if width == 390 else 3700), "folded"
    measured = layout(unfolded, tmp_path, width)
    assert measured["scroll"] == measured["client"] == width
    assert measured["wide"] == []
    assert measured["sections"] == SECTIONS
    assert measured["unnamed"] == 0
    assert measured["requests"] == []
    # Words in drawings stay readable on a phone.
    assert measured["smallest"] >= 11


@browser
@pytest.mark.parametrize("width", [390, 1024, 1440])
def test_no_table_is_cut(unfolded, width):
    cut = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.innerText)"
    with opened(unfolded, width) as shown:
        assert shown.run(cut) == []
        # On a phone a row is a card: every cell has its column's title before it.
        cards = shown.run(
            "[...document.querySelectorAll('.cards td')].map(e => getComputedStyle(e, '::before').content)"
        )
    assert cards
    assert all((text not in ("none", '""')) == (width == 390) for text in cards)


@browser
def test_a_hash_or_a_long_word_in_a_note_makes_no_page_wider(tmp_path):
    page = write_report(build_report(BenchFile(runs=(make_run(notes=["ab" * 64, "y"]),))), tmp_path / "a.html")
    page.write_text(page.read_text("utf-8").replace("<details>", "<details open>"), encoding="utf-8")
    assert layout(page, tmp_path, 390)["scroll"] == 390


@browser
def test_names_between_backticks_are_code_and_a_lone_backtick_stays():
    notes = ["`--resume` continues; `<b>` is text", "a lone ` stays"]
    page = to_html(Report("t", "s", "", [ReportSection("a", "A", notes=notes)]))
    assert "<li><code>--resume</code> continues; <code>&lt;b&gt;</code> is text</li>" in page
    assert "<li>a lone ` stays</li>" in page


def test_scores_with_and_without_an_interval_are_below_each_other():
    rows = [("a", "76.9 [70.5, 82.2]", "1"), ("mean", "80.6", "2")]
    table = Table("T", [Column("set", align="left"), Column("model"), Column("items")], rows)
    page = to_html(Report("t", "s", "", [ReportSection("a", "A", tables=[table])]))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page)
    assert cells == ['76.9 <span class="interval">[70.5, 82.2]</span>', "1", '80.6 <span class="interval"></span>', "2"]


def test_print_shows_what_is_folded(unfolded, page):
    pages = []
    for report_page in (page, unfolded):
        with opened(report_page, 1000) as shown:
            printed = base64.b64decode(shown.call("Page.printToPDF")["data"])
        pages.append(len(re.findall(rb"/Type\s*/Page\b", printed)))
    assert pages[0] == pages[1] > 4


@browser
@pytest.mark.parametrize(("flags", "dark"), [((), False), (("--blink-settings=preferredColorScheme=0",), True)])
def test_light_and_dark_have_contrast(unfolded, tmp_path, flags, dark):
    measured = layout(unfolded, tmp_path, 1000, *flags)
    assert (luminance(measured["ground"]) < 0.2) == dark
    for color in set(measured["colors"]):
        assert contrast(color, measured["ground"]) >= 4.5, color


def test_marks_have_contrast_in_both_schemes():
    css = (Path(page_module.__file__).parent / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", css, re.S)
    assert len(blocks) == 2
    for block in blocks:
        colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
        rgb = {name: f"rgb({int(c[1:3], 16)}, {int(c[3:5], 16)}, {int(c[5:7], 16)})" for name, c in colors.items()}
        for name, color in rgb.items():
            if re.fullmatch(r"[cm]\d|good|bad|axis", name):
                assert contrast(color, rgb["ground"]) >= 3, name
        for ground in ("ground", "panel"):
            assert all(contrast(rgb[ink], rgb[ground]) >= 4.5 for ink in ("ink", "ink2", "link"))


def test_csv_has_a_row_per_timed_figure_with_units_in_its_header(tmp_path):
    phone = {**make_run().device.model_dump(), "name": "=HYPERLINK(1)", "kind": "adb", "identity": "ab12cd34"}
    hot_phone = make_run(device=phone, conditions={"cpus": [4, 5], "pinned": True}, state_before={"battery_c": 44.0})
    runs = (make_run(), make_run(clock="instructions"), hot_phone)
    report = build_report(BenchFile(runs=runs))
    with open(write_report(report, tmp_path / "r.csv"), encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 5 + 3 + 5
    first, counted, hot = rows[1], rows[5], rows[8]
    assert (first["figure"], first["tokens"]) == ("latency", "32")
    assert float(first["median_ms"]) == runs[0].latency[1].p50
    assert (first["spearman_x100 graded-pairs"], first["device_identity"], first["cpus"]) == ("78.4", "", "")
    assert (counted["median_ms"], float(counted["median_instructions"])) == ("", runs[1].latency[0].p50)
    assert (hot["device"], hot["cpus"], hot["state"]) == ("'=HYPERLINK(1)", "4 5", "hot (battery 44 °C)")
    assert [row["figure"] for row in rows[:5]] == ["latency"] * 3 + ["tokenization", "text to vector"]


def test_csv_is_of_measured_runs(tmp_path):
    report = build_report(BenchFile(models=make_models()))
    assert "choose one of these suffixes" in one_line(lambda: write_report(report, tmp_path / "r.csv"), InputError)
