"""A name in backticks of a docstring exists: in its module, as a public name, or in a package that msdc installs."""

import ast
import builtins
import keyword
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from places import ROOT

FOLDERS = ("bench", "benchmarks", "compress", "distill", "export", "msdc")
NAME = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)(?:\([^`\n]*\))?`")
FILE = re.compile(r"\.(bin|json|jsonl|md|minisig|mlpackage|model|npy|onnx|pte|safetensors|txt|yaml)$")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = DOCUMENTED[1:]
PACKAGES = re.findall(r'"([a-z0-9_-]+)[>=<\[]', (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
OUTSIDE = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, *(name.replace("-", "_") for name in PACKAGES)}


def python_files() -> list[Path]:
    """Python files of the product; the links in msdc/ are not followed."""
    files = (path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in files if path.parts[0] != "msdc" or path.parts[1] not in FOLDERS)


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            yield node.body[0].value  # type: ignore[attr-defined, misc]


def names_in(tree: ast.Module) -> set[str]:
    """Every identifier of a module, and the words of its strings other than docstrings."""
    names, documentation = set[str](), {id(text) for text in docstrings(tree)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module", "asname"):
            value = getattr(node, field, None)
            names |= set(value.split(".")) if isinstance(value, str) else set()
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            names |= set(re.findall(r"\w+", node.value))
    return names


def public_names(path: Path, tree: ast.Module) -> set[str]:
    """A module's path, and what it and its classes define without an underscore."""
    names = set(path.with_suffix("").parts)
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            names.add(node.name)
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for line in node.body:
                targets = line.targets if isinstance(line, ast.Assign) else [getattr(line, "target", None)]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {name for name in names if not name.startswith("_")}


TREES = {path: ast.parse((ROOT / path).read_text(encoding="utf-8")) for path in python_files()}
PUBLIC = set[str]().union(*(public_names(path, tree) for path, tree in TREES.items()))


def unknown_names(tree: ast.Module, public: set[str]) -> list[str]:
    """Names in backticks that nothing defines, each with its line."""
    defined = names_in(tree) | public | OUTSIDE
    lines = []
    for text in docstrings(tree):
        for match in NAME.finditer(text.value):  # type: ignore[arg-type]
            parts = match[1].split(".")
            if FILE.search(match[1]) or (len(parts) > 1 and parts[0] in OUTSIDE) or set(parts) <= defined:
                continue
            lines.append(f"{text.lineno + text.value[: match.start()].count(chr(10))}: {match[1]}")  # type: ignore[index]
    return lines


def test_names_in_docstrings_exist():
    unknown = {str(path): names for path, tree in TREES.items() if (names := unknown_names(tree, PUBLIC))}
    assert unknown == {}


def test_names_that_are_gone_are_reported():
    code = (
        '"""`json.loads`, `run`, `old`."""\ndef run(model):\n    """`model`, `Bank.read`, `len`.\n\n    `gone(1)`."""\n'
    )
    assert unknown_names(ast.parse(code), {"Bank"}) == ["1: old", "3: Bank.read", "5: gone"]
