"""What `import msdc` offers: complete, typed without Any, shown by what it is, and strict about keywords."""

import importlib
import inspect
import sys
import typing
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from programs import python

import msdc
from msdc.cli import msdc as cli
from msdc.lazy import HIGHER, higher

CALLABLES = [
    msdc.load_encoder,
    msdc.load_bundle,
    msdc.open_index,
    msdc.Encoder.encode,
    msdc.Encoder.tokenize,
    msdc.Encoder.fingerprint,
    msdc.Bundle.encode,
    msdc.Bundle.encode_ids,
    msdc.Bundle.tokenize,
    msdc.Index.__init__,
    msdc.Index.search,
    msdc.SentenceEncoder.encode,
]


def test_dir_lists_what_there_is_and_importing_loads_nothing_heavy():
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
    assert all(one.annotation is not inspect.Parameter.empty for one in signature.parameters.values())
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


def parts(hint):
    """A type and everything inside it; the shape of an array is left out, which numpy itself types as Any."""
    yield hint
    inner = typing.get_args(hint)
    for one in inner[1:] if typing.get_origin(hint) is np.ndarray else inner:
        if not isinstance(one, str):
            yield from parts(one)


@pytest.mark.parametrize("function", CALLABLES, ids=lambda f: f.__qualname__)
def test_signatures_are_typed_without_any(function):
    import msdc.encoders.encoder as encoders

    hints = typing.get_type_hints(function, vars(sys.modules[function.__module__]) | vars(encoders))
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    assert set(names) <= hints.keys() and "return" in hints
    for name, hint in hints.items():
        assert typing.Any not in list(parts(hint)), f"{function.__qualname__}: {name} is {hint}"
    assert function.__doc__ or function.__name__ == "__init__"


def test_models_say_what_they_are_and_refuse_unknown_keywords(tiny_bundle):
    encoder, bundle = msdc.load_encoder("msdc-mini"), msdc.load_bundle(tiny_bundle, "onnx")
    assert repr(encoder) == "Encoder('msdc-mini', width=384, max_length=128)"
    assert repr(bundle).startswith("Bundle(") and "runtime='onnx'" in repr(bundle)
    for call in (
        lambda: encoder.encode(["x"], colour=3),
        lambda: bundle.encode(["x"], colour=3),
        lambda: msdc.load_encoder("msdc-mini", device="cpu"),
        lambda: msdc.open_index(["x"], top=3),
    ):
        with pytest.raises((TypeError, msdc.InputError), match=r"colour|device|top"):
            call()


def test_lower_packages_find_what_they_use_of_higher_ones():
    assert all(higher(name) is not None for name in HIGHER)
