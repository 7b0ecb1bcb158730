"""`msdc export` on real model folders: stock encoders with WordPiece, students of ours; refusals before any work."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest
import tiny_models as tiny
from click.testing import CliRunner
from stock_models import TEXTS, write_stock

from msdc import load_bundle, load_encoder
from msdc.cli import main
from msdc.compress.quantization.plan import plan_for
from msdc.compress.student.io import save_student
from msdc.errors import InputError
from msdc.export import export
from msdc.export.cli import command
from msdc.export.exporters import load_precision
from msdc.export.readme import read_card


@pytest.mark.parametrize("family", ["bert", "xlm-roberta"])
def test_stock_encoder_goes_through_as_it_is(family, tmp_path):
    model = write_stock(tmp_path / family, family)
    words = [model, "--target", "web", "--precision", "fp32", "--no-module", "-o", tmp_path / "out", "--json"]
    done = CliRunner().invoke(command, list(map(str, words)), catch_exceptions=False)
    manifest = json.loads(done.output[done.output.index("{") :])
    assert manifest["tokenizer"]["kind"] == "tokenizer-json" and manifest["name"] == family
    bundle, encoder = load_bundle(tmp_path / "out"), load_encoder(model)
    assert bundle.tokenize(TEXTS) == encoder.tokenize(TEXTS)
    np.testing.assert_allclose(bundle.encode(TEXTS), encoder.encode(TEXTS), atol=1e-5)


def test_student_folder_carries_its_card(tmp_path):
    card = "---\nlanguage:\n- en\n- de\nlicense: mit\n---\n# x\n\n## Data\n\n* Tatoeba, CC BY\n* own sentences\n"
    save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "small", card=card)
    folder, manifest = export(tmp_path / "small", target="web", out=tmp_path / "out", gates=False)
    assert folder == tmp_path / "out"
    assert manifest.languages == ["en", "de"] and manifest.licenses == ["mit"]
    assert manifest.data_sources == ["Tatoeba, CC BY", "own sentences"]
    assert manifest.precision == "int8" and manifest.tokenizer.kind == "sentencepiece"
    assert manifest.model.source_sha256 == load_encoder(tmp_path / "small").fingerprint()


def test_the_shipped_student_keeps_its_promises_on_onnx(tmp_path):
    """An int8 folder, whose numbers are rounded already: the gates hold as they do for a float one."""
    words = ["msdc-mini", "--target", "web", "--no-module", "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    assert str(tmp_path / "out") in done.output and "mean cosine" in done.output
    parity = load_bundle(tmp_path / "out").manifest.parity["onnx"]
    assert parity.passed and parity.mean_cosine > 0.999 and parity.min_cosine > 0.99


def test_card_with_a_bomb_gives_no_facts(tmp_path):
    names = [chr(97 + i) for i in range(21)]
    bomb = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in itertools.pairwise(names))
    (tmp_path / "README.md").write_text(f"---\n{bomb}language: en\n---\n")
    assert read_card(tmp_path).languages == ()
    assert read_card(None).licenses == () and read_card(tmp_path / "absent").licenses == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing option"),
        (["x", "--target", "toaster"], "toaster"),
        (["x", "--target", "web", "--precision", "int3"], "int3"),
        # Refused before the model is loaded.
        (["no-such-model", "--target", "linux", "-o", "."], "--force"),
    ],
)
def test_usage_errors(arguments, said, capsys):
    with pytest.raises(SystemExit) as stop:
        main(["export", *arguments])
    assert stop.value.code == 2 and said in capsys.readouterr().err


def test_precision_may_be_a_plan_file(tmp_path):
    plan = plan_for(tiny.student(), "int8")
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    assert load_precision(str(tmp_path / "plan.json")) == plan
    assert load_precision("int8-embed4") == "int8-embed4"
    (tmp_path / "bad.json").write_text('{"precision": "x", "weights": {"a": "int3"}}')
    for bad in (str(tmp_path / "bad.json"), "int3", str(tmp_path / "absent.json")):
        with pytest.raises(InputError):
            load_precision(bad)


def test_help_and_the_function_import_no_torch():
    code = (
        "import sys\nfrom msdc.cli import main\nfrom msdc.export import export\n"
        "try: main(['export', '--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("False")
