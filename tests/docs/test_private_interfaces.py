"""Private interfaces of other libraries: each still exists in the installed release, and one module uses it.

A release may rename them without notice. A new use needs a row in `PYTHON` or `NATIVE`, or better, a public interface.
"""

import ast
import functools
import importlib
import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pytest
from places import ROOT

PRODUCT = ("bench", "compress", "distill", "export", "msdc")
# Attributes of every named tuple, which the standard library documents.
DOCUMENTED = {"_asdict", "_fields", "_replace", "_make"}


class PrivateName(NamedTuple):
    """A private name of a distribution: its owner (a module, then attributes of it), and the file that uses it."""

    distribution: str
    owner: str
    name: str
    file: str


_TRANSFORMER = "sentence_transformers.models:Transformer"
_LOWER, _PROGRAM, _PARTITION = (f"export/executorch/{name}.py" for name in ("lower", "program", "partition"))
PYTHON = (
    PrivateName("sentence-transformers", _TRANSFORMER, "_load_encoder_only_model", "msdc/encoders/stock.py"),
    # Overridden: under another name the library would read a folder with its own loader.
    PrivateName("sentence-transformers", _TRANSFORMER, "_load_model", "msdc/encoders/stock.py"),
    PrivateName("transformers", "transformers:PreTrainedModel", "_supports_sdpa", "export/generic/model.py"),
    PrivateName("torch", "torch.nn:Module", "_load_from_state_dict", "distill/objectives/distilcse.py"),
    PrivateName("torch", "torch:ops.aten.bmm.default", "_name", _LOWER),
    PrivateName("torch", "torch:ops.aten.bmm.default", "_schema", _LOWER),
    PrivateName("executorch", "executorch.exir.dialects._ops:ops.edge.aten.bmm.default", "_op", _LOWER),
    PrivateName("executorch", "executorch.backends.xnnpack.operators.node_visitor", "_node_visitor_dict", _PARTITION),
    PrivateName("executorch", "executorch.exir._serialize._flatbuffer", "_flatc_decompile", _PROGRAM),
    PrivateName("executorch", "executorch.exir._serialize._program", "_get_extended_header", _PROGRAM),
    PrivateName(
        "executorch",
        "executorch.backends.xnnpack.serialization.xnnpack_graph_serialize",
        "_get_schema_bytes",
        _PROGRAM,
    ),
    PrivateName("executorch", "executorch.extension.pybindings.portable_lib", "_unsafe_reset_threadpool", _PROGRAM),
    PrivateName("mteb", "mteb.get_tasks", "_TASKS_REGISTRY", "bench/accuracy/mteb_tasks.py"),
)
# Symbols of shared libraries: those of a class that the engine declares itself, and a function that it replaces.
_ENGINE, _POOL = "export/native/src/engine_executorch.cpp", "_ZN10executorch9extension10threadpool"
NATIVE = (
    PrivateName("executorch", "lib/libexecutorch_threadpool.so", f"{_POOL}14get_threadpoolEv", _ENGINE),
    PrivateName(
        "executorch", "lib/libexecutorch_threadpool.so", f"{_POOL}10ThreadPool24_unsafe_reset_threadpoolEj", _ENGINE
    ),
    PrivateName(
        "executorch", "lib/libexecutorch_threadpool.so", f"_ZNK{_POOL[3:]}10ThreadPool16get_thread_countEv", _ENGINE
    ),
    PrivateName("executorch", "lib/libexecutorch_backend_xnnpack.so", "xnn_subgraph_optimize_packed_lhs", _ENGINE),
)
# What stands for a symbol in the source.
NATIVE_WORDS = ("_unsafe_reset_threadpool", "xnn_subgraph_optimize_packed_lhs", "class ThreadPool")


def message(private: PrivateName) -> str:
    return (
        f"{private.distribution} {version(private.distribution)} has no {private.name} in {private.owner} any more: "
        f"change {private.file}"
    )


@pytest.mark.parametrize("private", PYTHON, ids=lambda private: private.name)
def test_a_private_name_exists_in_the_installed_release(private):
    module, _, attributes = private.owner.partition(":")
    pytest.importorskip(module.partition(".")[0])
    try:
        owner = functools.reduce(getattr, filter(None, attributes.split(".")), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{message(private)} ({error})")
    assert hasattr(owner, private.name), message(private)


@pytest.mark.parametrize("private", NATIVE, ids=lambda private: private.name)
def test_a_symbol_exists_in_the_installed_release(private):
    pytest.importorskip(private.distribution)
    (folder,) = importlib.util.find_spec(private.distribution).submodule_search_locations
    library = Path(folder, private.owner)
    if not library.exists():
        pytest.skip(f"no {private.owner} in the package for this system")
    assert b"\0" + private.name.encode() + b"\0" in library.read_bytes(), message(private)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in DOCUMENTED


@functools.cache
def trees() -> dict[str, ast.Module]:
    files = [file for folder in PRODUCT for file in sorted((ROOT / folder).rglob("*.py"))]
    return {file.relative_to(ROOT).as_posix(): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def defined(tree: ast.Module) -> set[str]:
    """Private names that a module defines: functions, classes, variables, fields, and attributes that it sets."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return names


def used(tree: ast.Module) -> set[str]:
    """Names that a module imports from other libraries, or reads of an object, also by getattr and hasattr."""
    names = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute():
                names.add(node.attr)
            case ast.ImportFrom() if not (node.module or "").startswith("msdc"):
                names |= {alias.name for alias in node.names}
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                names.add(name)
    return {name for name in names if is_private(name)}


def test_one_module_uses_each_private_name_and_no_other_is_used():
    names = {private.name for private in PYTHON}
    msdc_names = set().union(*map(defined, trees().values())) - names
    uses = {(name, file) for file, tree in trees().items() for name in used(tree) - msdc_names}
    # A method that replaces a private one is a definition.
    uses |= {(name, file) for file, tree in trees().items() for name in defined(tree) & names}
    assert uses == {(private.name, private.file) for private in PYTHON}


@pytest.mark.parametrize("word", NATIVE_WORDS)
def test_one_native_file_uses_each_private_symbol(word):
    sources = [file for file in sorted((ROOT / "export" / "native").rglob("*")) if file.suffix in (".cpp", ".h")]
    using = [file.relative_to(ROOT).as_posix() for file in sources if word in file.read_text(encoding="utf-8")]
    assert using == [_ENGINE]
