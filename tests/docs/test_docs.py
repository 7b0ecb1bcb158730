"""Links and named files exist, commands parse, README's figures are those of the results pages."""

import importlib
import itertools
import re
from pathlib import Path

import click
import pytest
from generated import WRITES
from markdown import LINK, blocks, cell, msdc_commands, pages, prose
from places import ROOT

from msdc import __version__
from msdc.cli import msdc
from msdc.files import sha256_file

PAGES = [path for path in pages() if path.is_file()]
# Code spans that look like files of the repository: a top-level folder and a slash.
NAMED = re.compile(r"`((?:bench|benchmarks|compress|distill|docs|examples|export|msdc|tests)/[\w./*-]+)`")
# Generated pages name files of the measured version.
FIXED = ("docs/results/",)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """GitHub's anchors of a page's headings."""
    heads = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=map(relative, PAGES))
def test_links_and_named_files_exist_and_nothing_is_of_one_machine(page):
    for target in (match["target"] for match in LINK.finditer(prose(page))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), f"{relative(page)} links to {target}"
        assert not anchor or anchor in anchors(linked), f"{relative(page)} links to {target}"
    if not relative(page).startswith(FIXED) and page.name != "CHANGELOG.md":
        for name in NAMED.findall(prose(page)):
            assert "NAME" in name or any(ROOT.glob(name.rstrip("/"))), f"{relative(page)} names {name}"
    text = page.read_text(encoding="utf-8")
    private = ["../shared", "/home/", f"{ROOT}/", f"{Path.home()}/.", "/tmp/", "METHOD.md", "FACTS.md", "HOUSE.md",
               "DESIGN.md"]  # fmt: skip
    assert not [name for name in private if name in text], relative(page)


COMMANDS = [(block, words) for page in PAGES for block in blocks(page, "bash") for words in msdc_commands(block)]


def test_commands_parse():
    """Verbs and options exist and take the values shown; nothing is run."""
    for block, words in COMMANDS:
        command: click.Command = msdc
        context = click.Context(msdc, info_name="msdc")
        rest = words[1:]
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            inner = command.get_command(context, rest[0])
            if inner is None:
                break
            context, command, rest = click.Context(inner, parent=context, info_name=rest[0]), inner, rest[1:]
        assert command is not msdc, f"{block}: no verb {words[1]}"
        options = {
            option: parameter for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for word, value in itertools.zip_longest(rest, rest[1:]):
            option = word.partition("=")[0] if word.startswith("--") else word
            if option.startswith("-"):
                assert option in options, f"{block}: {' '.join(words)}: no option {option}"
                if isinstance(options[option].type, click.Choice) and "=" not in word:
                    assert value in options[option].type.choices, f"{block}: {option} {value}"


def resolves(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    parts = parts if parts[0] == "msdc" else ["msdc", *parts]
    for cut in range(len(parts), 0, -1):
        try:
            resolved = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if not hasattr(resolved, part):
                return False
            resolved = getattr(resolved, part)
        return True
    return False


DOTTED = re.compile(r"`((?:msdc|bench|compress|distill|export)(?:\.[A-Za-z_]\w*)+)(?:\(.*?\))?[^`]*`", re.DOTALL)


def test_interfaces_of_the_architecture_exist():
    """Modules, functions and classes by their dotted names; registries by the files that hold them."""
    text = prose(ROOT / "docs/architecture.md")
    names = {name for name in DOTTED.findall(text) if not name.endswith((".py", ".md"))}
    assert len(names) > 30
    wrong = sorted(name for name in names if not resolves(name))
    assert not wrong, wrong
    records = re.findall(r"`([A-Z_]+)` in\s`([\w/]+\.py)`", prose(ROOT / "CONTRIBUTING.md"))
    assert len(records) >= 5
    for record, file in records:
        assert re.search(rf"^{record}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), (record, file)


FIGURES = re.compile(r"<!-- figures: (\S+) -->\n")
WITH_FIGURES = [ROOT / "README.md", *sorted(ROOT.glob("msdc/models/*/README.md"))]


def with_current_cells(text: str) -> tuple[str, int]:
    """`text` with every figure after `<!-- figures: PAGE -->` as PAGE has it in this row and column; their number."""
    first, *parts = FIGURES.split(text)
    written, count = first, 0
    for page, part in zip(parts[::2], parts[1::2], strict=True):
        lines = list(itertools.takewhile(lambda line: line.startswith("|"), part.splitlines()))
        header, _, *rows = ([word.strip() for word in line.strip("|").split("|")] for line in lines)
        # Without its interval, which makes a table too wide.
        current = [
            [row, *(re.sub(r" \[.*\]", "", cell(ROOT / page, f"{row} > {column}")) for column in header[1:])]
            for row, *_ in rows
        ]
        count += sum(map(len, current)) - len(current)
        table = [*lines[:2], *(f"| {' | '.join(cells)} |" for cells in current)]
        written += f"<!-- figures: {page} -->\n" + "\n".join(table) + part.removeprefix("\n".join(lines))
    return written, count


def compared_cells(text: str) -> int:
    """The number of figures in tables, all of which are those of the pages that the tables name."""
    current, count = with_current_cells(text)
    for stated, line in zip(text.splitlines(), current.splitlines(), strict=True):
        assert stated == line, f"{stated}: its page has {line}"
    return count


def without_source(text: str, pages_read: list[str]) -> list[str]:
    """Figures of a text that none of its pages has in a table: decimals, and counts such as 12 of 24."""
    plain = re.sub(r"(?m)^\|.*$|```.*?```|<!--.*?-->|\]\(.*?\)|`[^`\n]*`", " ", text, flags=re.DOTALL)
    plain = re.sub(r"CC BY(?:-\w+)* \d\.\d|Python 3\.\d+(?: to 3\.\d+)?|Apache-2\.0|MIT|v?\d+\.\d+\.\d+", " ", plain)
    numbers = {
        float(value) for page in pages_read for value in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", page.replace(",", ""))
    }
    numbers |= {number / 1e6 for number in numbers if number >= 1e5}  # bytes as MB
    known_by_digits = {digits: {round(number, digits) for number in numbers} for digits in (1, 2, 3, 4)}
    decimals = re.findall(r"(?<![\w.,])\d+\.\d{1,4}(?![\w.]*\d)", plain)
    wrong = [text for text in decimals if float(text) not in known_by_digits[len(text.partition(".")[2])]]
    counts = re.findall(r"(?<![\w.])(\d+) of (\d+)(?![\w.])", plain)
    return wrong + [f"{part} of {total}" for part, total in counts if not {float(part), float(total)} <= numbers]


@pytest.mark.parametrize("page", WITH_FIGURES, ids=map(relative, WITH_FIGURES))
def test_figures_are_cells_of_the_page_that_is_named(page):
    if WRITES:
        page.write_text(with_current_cells(page.read_text(encoding="utf-8"))[0], encoding="utf-8")
    assert compared_cells(page.read_text(encoding="utf-8")) > 10


@pytest.mark.parametrize("page", WITH_FIGURES, ids=map(relative, WITH_FIGURES))
def test_figures_in_prose_are_in_a_results_page(page):
    """Those of README and the cards: in a page that they link or name."""
    text = page.read_text(encoding="utf-8").split("\n---\n", 1)[-1]
    named = sorted(set(re.findall(r"(?:docs/)?results/(\w[\w-]*\.md)", text)))
    read = [(ROOT / "docs/results" / name).read_text(encoding="utf-8") for name in named]
    assert without_source(text, read) == [], f"{relative(page)} names {named}"


def test_a_figure_in_prose_without_a_page_is_noticed():
    page = "|a|62.5 [60.1, 64.0]|12,862,014|\n|b|134 (81.0)|244|\n"
    assert without_source("It has 62.5 (12.9 MB), licensed under CC BY-SA 4.0, and 134 of 244 first.", [page]) == []
    assert without_source("It has 62.4, 183 of 244 first.", [page]) == ["62.4", "183 of 244"]


def test_every_table_of_the_readme_names_its_source():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(re.findall(r"^\|---", text, re.MULTILINE)) == len(FIGURES.findall(text)) >= 2


def test_a_changed_figure_is_found():
    page = "docs/results/models.md"
    row = "STSb test, English"
    right = cell(ROOT / page, f"{row} > msdc-mini")
    table = f"<!-- figures: {page} -->\n| | msdc-mini |\n|---|---|\n| {row} | {{}} |\n"
    assert compared_cells(table.format(right)) == 1
    with pytest.raises(AssertionError, match=row):
        compared_cells(table.format("1.0"))


def test_pages_are_about_the_shipped_model():
    """The sha256 of every file that a page names of a shipped model is that of the file that ships."""
    for page in ROOT.glob("docs/results/*.md"):
        models = re.search(r"^\* Model: (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        for name, files in re.findall(r"(msdc-\w+) \((.+?)\)", models[1] if models else ""):
            for file, stated in re.findall(r"`([\w.]+)` sha256 `(\w+)`", files):
                path = ROOT / "msdc/models" / name / file
                assert path.is_file(), f"{relative(page)}: {name} ships without {file}"
                assert stated == sha256_file(path), (
                    f"{relative(page)}: measured another {file} of {name}: measure again"
                )


def test_results_are_listed_with_their_origin():
    index = (ROOT / "docs/results/README.md").read_text(encoding="utf-8")
    for page in ROOT.glob("docs/results/*.md"):
        if page.name == "README.md":
            continue
        text = page.read_text(encoding="utf-8")
        assert f"({page.name})" in index, f"{relative(page)} is not in the index"
        assert re.search(r"Measured on \d{4}-\d\d-\d\d", text), relative(page)
        assert "* Model: " in text and "* Machine: " in text, relative(page)
        assert "Generated by benchmarks/" in text, relative(page)
        summary, _, tables = text.partition("<!-- Generated by")
        assert summary.count("**In short:** ") == 1, f"{relative(page)} does not begin with a summary"
        assert without_source(summary.partition("**In short:** ")[2], [tables]) == [], relative(page)


def test_shipped_files_name_pages_that_exist():
    """Mentions of docs/ in code, recipes and model cards."""
    for folder in ("msdc", "compress", "distill", "export", "bench", "benchmarks"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix not in (".py", ".yaml", ".md", ".cpp", ".h", ".kt", ".swift") or not path.is_file():
                continue
            for name in re.findall(r"\bdocs/[\w./-]*\w\.md", path.read_text(encoding="utf-8")):
                if "NAME" in name or "benchmarks" in path.parts:
                    continue
                assert (ROOT / name).is_file(), f"{relative(path)} names {name}"


def test_one_version():
    """Package and CITATION have the changelog's first version, with .dev0 and without a date until it is released."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (\S+) - (\d{4}-\d\d-\d\d|unreleased)$", changelog, re.MULTILINE)
    version, date = headings[0]
    assert __version__ == version + (".dev0" if date == "unreleased" else "")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [__version__]
    assert re.findall(r"^date-released: (.+)$", citation, re.MULTILINE) == [date] * (date != "unreleased")


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 155


def test_code_of_guides_fits_a_page():
    """At most 90 characters: longer lines scroll on the pages that people read."""
    for page in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        code = False
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if line.startswith("```"):
                code = not code
            assert not code or len(line) <= 90, f"{relative(page)}:{number}: {len(line)} characters"
