"""A type checker accepts the code of examples, docstrings and guides, and finds wrong arguments of every verb."""

import ast
import inspect
import re
import subprocess
import sys
import textwrap

import pytest
from markdown import blocks
from places import ROOT

import msdc
from msdc import bench, compress, distill, export

# Every line is an error.
WRONG = """\
compress.plan("msdc-mini", unitt=2)
compress.plan_budget("10MB", "msdc-mini", bottlneck=64)
compress.cut_student(output="out", unit="two")
compress.code_table(output="out", rows=9)
compress.quantize(output="out", max_loss="little")
compress.trim(output="out", languages=3)
distill.distill("recipe.yaml", "out", colour=3)
export.export("msdc-mini", target="linux", preicsion="int8")
bench.bench("bundle", wrmup=3)
bench.evaluate("msdc-mini", resample=3)
bench.evaluate("msdc-mini", ["sts17"])
export.export("msdc-mini", target="linux", exporter="x")
msdc.load_encoder(3)
msdc.load_encoder("msdc-mini").tokenize(3)
msdc.load_encoder("msdc-mini").fingerprint().colour
msdc.load_encoder("msdc-mini").encode(["x"]).colour
msdc.load_encoder("msdc-mini").encode(["x"], batchsize=3)
msdc.load_encoder("msdc-mini").encode_query(["x"], batchsize=3)
msdc.load_bundle("bundle", runtime=3)
msdc.load_bundle("bundle").encode(["x"], batchsize=3)
msdc.load_bundle("bundle").encode_ids("x").colour
msdc.open_index(["x"], column=3)
msdc.open_index(["x"]).search("x", tops=3)
msdc.open_index(["x"]).search("x").hits[0].colour
"""


def snippets(thing: object) -> list[str]:
    """The indented Python code of a docstring, without its sections; YAML has no calls."""
    text = re.split(r"^(?:Args|Raises|Returns):$", inspect.getdoc(thing) or "", flags=re.MULTILINE)[0]
    blocks = re.findall(r"(?:^(?:    .*)?\n)+", f"{text}\n", flags=re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in blocks if "(" in block]


def test_examples_and_docstrings(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed: pip install '.[check]'")
    files = []
    for package in (msdc, compress, distill, export, bench):
        for name in package.__all__:
            for number, code in enumerate(snippets(getattr(package, name))):
                ast.parse(code)
                files.append(tmp_path / f"{package.__name__.replace('.', '_')}_{name}_{number}.py")
                files[-1].write_text(f"import msdc\n\n{code}\n", encoding="utf-8")
    assert len(files) >= 10, files
    guides = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("docs/guides/*.md")]
    # The blocks of a page are one program: later ones use the names of earlier ones.
    for page in (page for page in guides if blocks(page, "python")):
        code = "\n".join(block.text for block in blocks(page, "python"))
        files.append(tmp_path / f"page_{page.stem.replace('-', '_')}.py")
        files[-1].write_text(code, encoding="utf-8")
    wrong = tmp_path / "wrong.py"
    wrong.write_text(f"import msdc\nfrom msdc import bench, compress, distill, export\n{WRONG}", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *(ROOT / "examples").rglob("*.py"), *files, wrong]
    done = subprocess.run([str(word) for word in command], cwd=ROOT, capture_output=True, text=True, timeout=900)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    unexpected = [line for line in errors if "wrong.py" not in line]
    assert not unexpected and not done.stderr, "\n".join(unexpected) + done.stderr
    lines = {int(match[1]) for line in errors if (match := re.search(r"wrong\.py:(\d+):", line))}
    missed = [line for number, line in enumerate(WRONG.splitlines(), 3) if number not in lines]
    assert not missed
