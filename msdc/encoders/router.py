"""Models of sentence-transformers with a `Router`: an encoder for each task, often a static one for queries.

A route is opened as a model of its own, NAME#ROUTE: a folder in the user's cache with the modules that its texts take.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import shorten
from typing import Any

from msdc.errors import InputError, did_you_mean, printable
from msdc.files import read_json, sha256_file, sha256_named, staged_folder, user_cache, write_json

KIND, FILE = "Router", "router_config.json"
MARK = "#"


def _read(folder: Path) -> tuple[list[dict[str, Any]], Path, dict[str, list[str]], dict[str, str]]:
    """The entries of modules.json, the router's folder, and its routes and classes by the names of their modules."""
    listed: Any = read_json(folder / "modules.json") if (folder / "modules.json").is_file() else None
    first = listed[0] if isinstance(listed, list) and listed and isinstance(listed[0], dict) else {}
    router = folder / str(first.get("path", ""))
    if str(first.get("type", "")).rpartition(".")[2] != KIND or not (router / FILE).is_file():
        raise InputError(f"{folder}: no model with routes (a {KIND} as its first module)")
    value = read_json(router / FILE)
    structure: Any = value.get("structure") if isinstance(value, dict) else None
    types: Any = value.get("types") if isinstance(value, dict) else None
    names = [name for path in structure.values() for name in path] if isinstance(structure, dict) else []
    if not isinstance(types, dict) or not names or not all(
        isinstance(name, str) and Path(name).name == name and name in types for name in names
    ):  # fmt: skip
        raise InputError(f"{router / FILE}: no routes of modules next to it")
    return listed, router, structure, types


def describe_routes(folder: Path) -> str:
    """What a model with routes is, and how to name one of them, in words."""
    _, _, structure, _ = _read(folder)
    names = [f"{folder.name}{MARK}{shorten(printable(name), 40)}" for name in structure]
    return f"a {KIND}, with an encoder for each task: name one of {', '.join(names[:6])}"


def route_folder(folder: Path, route: str, defaults_file: str) -> Path:
    """The folder of one route of the model in `folder`: its modules, then those after the router, and the prompts; the
    prompt of the route's name is the default one.

    Raises:
        InputError: no such model or route.
    """
    listed, router, structure, types = _read(folder)
    if route not in structure:
        raise InputError(f"{folder}: no route {route!r}{did_you_mean(route, structure)}")
    after = [{**entry, "path": str(entry.get("path", ""))} for entry in listed[1:] if isinstance(entry, dict)]
    parts = {name: (router / name, types[name]) for name in structure[route]}
    parts |= {entry["path"]: (folder / entry["path"], str(entry.get("type", ""))) for entry in after}
    for path, _ in parts.values():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise InputError(f"{folder}/modules.json: {path.name!r} leaves the model folder")
    files = [file for path, _ in parts.values() for file in sorted(path.rglob("*")) if file.is_file()]
    described = [folder / "modules.json", router / FILE, *filter(Path.is_file, [folder / defaults_file])]
    key = sha256_named([(file, sha256_file(file)) for file in (*described, *files)])
    target = user_cache() / "routes" / key[:32] / f"{folder.name}-{route}"
    if target.is_dir():
        return target
    with staged_folder(target, force=True) as stage:
        for name, (path, _) in parts.items():
            if path.is_dir():
                shutil.copytree(path, stage / name)
        modules = [{"idx": index, "name": str(index), "path": name, "type": kind}
                   for index, (name, (_, kind)) in enumerate(parts.items())]  # fmt: skip
        write_json(stage / "modules.json", modules)
        if (folder / defaults_file).is_file():
            defaults = read_json(folder / defaults_file)
            if isinstance(defaults, dict) and route in (defaults.get("prompts") or {}):
                defaults["default_prompt_name"] = route
            write_json(stage / defaults_file, defaults)
        if (folder / "README.md").is_file():
            shutil.copy2(folder / "README.md", stage)
    return target
