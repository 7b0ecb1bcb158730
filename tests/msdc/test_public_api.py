"""The interface of `import msdc`: complete, lazily imported, with useful reprs, and strict about keywords."""

import ast
import importlib
import inspect
import os
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from programs import python

import msdc
from msdc.cli import msdc as cli
from msdc.encoders.folder import SENTENCE_MODULE

ROOT = Path(__file__).parents[2]


def test_dir_lists_all_names_and_importing_loads_nothing_heavy():
    assert dir(msdc) == sorted(msdc.__all__)
    assert all(getattr(msdc, name) is not None for name in msdc.__all__)
    packages = ", ".join(dict.fromkeys(package for package, *_ in VERBS))
    code = f"import sys, msdc; msdc.InputError; dir(msdc); import {packages}\n" + (
        "print({'torch', 'onnxruntime', 'transformers'} & set(sys.modules) or 'none')"
    )
    assert python(code).strip() == "none"
    with pytest.raises(AttributeError, match="no attribute 'load_model'"):
        msdc.load_model  # noqa: B018
    assert (Path(msdc.__file__).parent / "py.typed").is_file()


# Package, verb, and words of the command line that call it.
VERBS = [
    ("msdc.distill", "distill", ["distill", "RECIPE", "-o", "OUT"]),
    ("msdc.compress", "plan", ["compress", "plan", "msdc-mini"]),
    ("msdc.compress", "quantize", ["compress", "quantize", "msdc-mini", "-o", "OUT"]),
    ("msdc.compress", "trim", ["compress", "vocabulary", "msdc-mini", "-o", "OUT", "--languages", "de"]),
    ("msdc.export", "export", ["export", "msdc-mini", "--target", "linux", "-o", "OUT"]),
    ("msdc.bench", "bench", ["bench", "BUNDLE"]),
    ("msdc.bench", "evaluate_all", ["evaluate", "msdc-mini", "--tasks", "graded-pairs"]),
]


class Called(Exception):
    """Raised by a replaced verb."""


@pytest.mark.parametrize(("package", "verb", "words"), VERBS, ids=[f"{package}.{verb}" for package, verb, _ in VERBS])
def test_a_package_offers_its_verb_and_the_command_calls_it(package, verb, words, tmp_path, monkeypatch):
    function = getattr(importlib.import_module(package), verb)
    assert f"from {package} import {verb}" in (function.__doc__ or ""), "the docstring has an example"
    signature = inspect.signature(function)
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in signature.parameters.values())
    assert signature.return_annotation not in (inspect.Signature.empty, "Any", "None")

    def called(*arguments, **options):
        raise Called

    cli.get_command(click.Context(cli), words[0])
    holders = [module for name, module in sys.modules.items() if vars(module).get(verb) is function and "msdc" in name]
    for module in {importlib.import_module(package), *holders}:
        monkeypatch.setattr(module, verb, called, raising=False)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: none\n")
    places = {"RECIPE": recipe, "OUT": tmp_path / "out", "BUNDLE": tmp_path}
    done = CliRunner().invoke(cli, [str(places.get(word, word)) for word in words])
    assert isinstance(done.exception, Called), done.output + repr(done.exception)


def test_models_have_a_repr_and_refuse_unknown_keywords(tiny_bundle):
    encoder, bundle = msdc.load_encoder("msdc-mini"), msdc.load_bundle(tiny_bundle, "onnx")
    assert repr(encoder) == "Encoder('msdc-mini', width=384, max_length=128, precision='int8')"
    assert repr(bundle).startswith("Bundle(")
    assert "runtime='onnx'" in repr(bundle)
    for call in (
        lambda: encoder.encode(["x"], colour=3),
        lambda: bundle.encode(["x"], colour=3),
        lambda: msdc.load_encoder("msdc-mini", device="cpu"),
        lambda: msdc.open_index(["x"], top=3),
    ):
        with pytest.raises((TypeError, msdc.InputError), match=r"colour|device|top"):
            call()


def test_no_text_names_a_module_of_a_higher_layer():
    # What is imported by name escapes import-linter.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = settings["contracts"][0]["layers"]
    ranks = {name: -number for number, layer in enumerate(layers) for name in layer.split(" | ")}
    package = Path(msdc.__file__).parent
    upward = []
    for folder, _, names in os.walk(package, followlinks=True):
        for path in (Path(folder, name) for name in names if name.endswith(".py")):
            layer = path.relative_to(package).parts[0].removesuffix(".py")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
                named = re.fullmatch(r"msdc\.(\w+)[\w.]*(:\w+)?", text)
                # The class in a student's modules.json is imported by sentence-transformers.
                if layer in ranks and named and text != SENTENCE_MODULE and ranks.get(named[1], -99) > ranks[layer]:
                    upward.append(f"{path.relative_to(package)}: {text}")
    assert not upward
