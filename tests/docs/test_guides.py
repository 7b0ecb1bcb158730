"""The guides' code works: every block is run, Python and command line, in a folder with the files that it names.

A block with `<!-- not run: REASON -->` before it is left out; the reason names the tests that cover it. test_types.py
checks the types of the Python blocks.
"""

import gzip
import re
import shlex
import shutil
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tiny_models as tiny
from markdown import blocks
from page_code import call_block, call_msdc, call_python
from places import ROOT

from msdc.cli import EXAMPLES, VERBS, msdc
from msdc.compress.student.io import add_stock_twin
from msdc.distill.model_card import USE_STOCK
from msdc.encoders.folder import EncodeDefaults
from msdc.export.exporters import write_bundle
from msdc.export.options import ExportSettings
from msdc.text.quickstart import GRADED_PAIRS, PARALLEL

PAGES = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")])
LANGUAGES = ("bash", "python")


@pytest.fixture(scope="module")
def guide_folder(tmp_path_factory) -> Path:
    """A folder with the models and files that the guides name."""
    folder = tmp_path_factory.mktemp("guides")
    options = ExportSettings(runtime="onnx", precision="fp32")
    defaults = EncodeDefaults({"query": "the dog: "})
    # 128 dimensions, as a guide truncates to.
    student = tiny.student(dense=128, dense_activation="tanh")
    write_bundle(student, tiny.tokenizer(), folder / "bundle", options=options, defaults=defaults)
    shutil.copytree(folder / "bundle", folder / "msdc-mini-android")
    for name in ("runs/mine/student", "path/to/model"):
        shutil.copytree(tiny.student_folder(), folder / name)
        add_stock_twin(folder / name)
    lines = ["The bus is late.", "Der Bus ist spät.", "", "Too expensive for what it is."]
    (folder / "lines.txt.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (folder / "reviews.csv").write_text("stars,text\n" + "".join(f'3,"{line}"\n' for line in lines if line))
    (folder / "notes.tsv").write_text("".join(f"{number}\t{line}\n" for number, line in enumerate(lines)))
    shutil.copy(GRADED_PAIRS, folder / "pairs.tsv")
    (folder / "sts-test.csv").write_text("A dog runs.,A dog is running.,4.2\n")
    (folder / "mine.csv").write_text("en,de\n" + 'The bus is late.,"Der Bus ist spät."\n' * 3)
    (folder / "data").mkdir()
    (folder / "shards").mkdir()
    pq.write_table(pa.table({"id": range(len(lines)), "text": lines}), folder / "shards/part-0.parquet")
    pairs = "The bus is late.\tDer Bus ist spät.\nI like cheese.\tIch mag Käse.\n"
    (folder / "data/some.en-de.tsv.gz").write_bytes(gzip.compress(pairs.encode()))
    recipe = (ROOT / "README.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    (folder / "mine.yaml").write_text(recipe.replace("mine.en-de.tsv", "data/some.en-de.tsv.gz"))
    # The page's recipe, for a model of one layer, 48 positions and 32 dimensions.
    page = (ROOT / "docs/guides/own-model.md").read_text(encoding="utf-8")
    recipe = page.partition("```yaml\n")[2].partition("```")[0].replace("[0, 3, 7, 11]", "[0]")
    (folder / "own.yaml").write_text(recipe.replace("length: 128", "length: 48").replace("128", "16"))
    sources = [row.split("\t")[0] for row in PARALLEL.read_text(encoding="utf-8").splitlines()[1:300]]
    (folder / "own.txt").write_text("\n".join(sources), encoding="utf-8")
    return folder


@pytest.mark.parametrize("page", PAGES, ids=[path.stem for path in PAGES])
def test_blocks_of_a_guide(guide_folder, page, tmp_path):
    """Python blocks of one page run as one program, because later ones use the names of earlier ones."""
    elsewhere = {"cookbook": "test_readme.py", "integrations": "test_integrations.py"}
    if page.stem in elsewhere:
        pytest.skip(f"tests/docs/{elsewhere[page.stem]} runs its blocks")
    folder = shutil.copytree(guide_folder, tmp_path / "guide")
    runnable = [block for block in blocks(page) if block.language in LANGUAGES and not block.not_run]
    for block in runnable:
        if block.language == "bash":
            call_block(block, folder)
    call_python("\n".join(block.text for block in runnable if block.language == "python"), folder)


def test_examples_of_the_help_pages(guide_folder, tmp_path):
    folder = shutil.copytree(guide_folder, tmp_path / "help")
    (folder / "notes.txt").write_text("The car is on level 2.\nLa reunión empieza a las nueve.\n", encoding="utf-8")
    for verb, example in EXAMPLES.items():
        assert call_msdc([verb, "--help"], folder).rstrip().endswith(example)
        # tests/bench/test_quickstart.py; doctor fails where something is missing
        if verb not in ("quickstart", "doctor"):
            name, *words = shlex.split(example)
            assert name == "msdc"
            assert call_msdc(words, folder)
    assert (folder / "report.html").is_file()
    assert EXAMPLES.keys() == VERBS.keys()


def test_code_of_generated_pages(guide_folder):
    """A bundle's README and a model's card: their Python runs where they lie, their commands have what is required."""
    readme, card = guide_folder / "bundle/README.md", guide_folder / "path/to/model/README.md"
    card.write_text(USE_STOCK.replace("path/to/this/folder", "."), encoding="utf-8")
    assert "--transformers-js" not in readme.read_text(encoding="utf-8")
    for page in (readme, card):
        code_blocks = blocks(page, "python")
        assert code_blocks
        for block in code_blocks:
            call_python(block.text, page.parent)
    written = [*ROOT.glob("msdc/models/*/README.md"), *ROOT.glob("export/mobile/**/*.md"), *ROOT.glob("export/**/*.j2")]
    spans = [span for page in written for span in re.findall(r"`(msdc [^`]+)`", page.read_text(encoding="utf-8"))]
    commands = [words for words in (shlex.split(span) for span in spans) if len(words) > 2]
    assert len(commands) >= 5
    for words in commands:
        command = msdc
        for rest in range(1, len(words)):
            inner = command.get_command(click.Context(msdc), words[rest]) if isinstance(command, click.Group) else None
            if inner is None:
                break
            command = inner
        needed = [option for option in command.params if isinstance(option, click.Option) and option.required]
        assert all({*option.opts} & {*words} for option in needed), words
        known_options = {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("-")} <= known_options, words


def test_what_is_not_run_is_covered_elsewhere():
    every = [block for page in PAGES for block in blocks(page) if block.language in LANGUAGES]
    for block in (block for block in every if block.not_run):
        named = [word.strip("`;,.") for word in block.not_run.split() if word.startswith("tests/")]
        assert named and all((ROOT / name).exists() for name in named), f"{block}: {block.not_run}"
    assert len([block for block in every if not block.not_run]) >= 12
