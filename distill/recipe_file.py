"""From a recipe's file to the recipe: YAML, `--set`, relative paths, and mistakes said with their place."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from msdc.distill.recipe import Recipe
from msdc.errors import InputError, did_you_mean
from msdc.files import regular_size

MAX_RECIPE_BYTES = 1_000_000


class _SafeLoader(yaml.SafeLoader):
    """Safe YAML without aliases: anchors are how a small file grows to gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed in a recipe")
        return super().compose_node(parent, index)


def set_value(tree: dict[str, Any], key: str, value: Any) -> None:
    """Change one value of a recipe's mapping; dots for depth, a stage by its name.

    Raises:
        InputError: the key leads nowhere.
    """
    parts = key.split(".")
    node: Any = tree
    for depth, part in enumerate(parts):
        last = depth == len(parts) - 1
        if isinstance(node, list):
            names = [item.get("name") if isinstance(item, dict) else None for item in node]
            if part in names:
                position = names.index(part)
            elif part.isdigit() and int(part) < len(node):
                position = int(part)
            else:
                raise InputError(f"--set {key}: no entry {part!r} (have {', '.join(str(n) for n in names)})")
            if last:
                node[position] = value
            else:
                node = node[position]
        elif isinstance(node, dict):
            if last:
                node[part] = value
            else:
                if not isinstance(node.get(part), (dict, list)):
                    node[part] = {}
                node = node[part]
        else:
            raise InputError(f"--set {key}: {part!r} is inside a plain value")


def read_tree(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file.

    Raises:
        InputError: missing, too large, not YAML, or not a mapping.
    """
    if not path.exists():
        raise InputError(f"{path}: no such recipe")
    try:
        if (size := regular_size(path)) > MAX_RECIPE_BYTES:
            raise InputError(f"{path}: {size} bytes is too large for a recipe")
        tree = yaml.load(path.read_text(encoding="utf-8"), Loader=_SafeLoader)
    # ValueError: not UTF-8, or a scalar like 2026-99-99, which looks like a date.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{path}: not valid YAML ({' '.join(str(error).split())[:200]})") from error
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a recipe is a mapping with keys like teacher, corpora, stages")
    return tree


def apply_overrides(tree: dict[str, Any], overrides: tuple[str, ...]) -> None:
    """Change a recipe's mapping by texts `key=value`, with dots for depth and stages by name.

    Raises:
        InputError: not `key=value`, a value that is not YAML, or a key that leads nowhere.
    """
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise InputError(f"--set {override!r}: expected key=value")
        try:
            parsed = yaml.load(value, Loader=_SafeLoader)
        except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"--set {override!r}: the value is not valid YAML") from error
        # YAML 1.1 reads 2e-5 as text; a learning rate written like this is a number.
        if isinstance(parsed, str):
            with contextlib.suppress(ValueError):
                parsed = float(parsed)
        set_value(tree, key.strip(), parsed)


def _absolute(value: Any, folder: Path) -> Any:
    """A path of a recipe, or each of a list, relative to `folder`; placeholders and `~` stay."""
    if isinstance(value, list):
        return [_absolute(one, folder) for one in value]
    if not isinstance(value, str) or value.startswith(("{", "~")):
        return value
    return os.path.abspath(folder / value)


def set_paths(tree: dict[str, Any], folder: Path) -> None:
    """Make the relative paths of a recipe's mapping absolute: they are relative to `folder`, where the recipe lies.

    Paths are corpora, graded files, vocabularies and caches, and names of models that begin with `./` or `../`.
    """

    def mapping(value: Any) -> dict[str, Any]:
        return value if isinstance(value, dict) else {}

    def entries(value: Any) -> list[dict[str, Any]]:
        return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []

    def model(node: dict[str, Any], key: str) -> None:
        inner = mapping(node.get(key))
        place, name = (inner, "model") if "model" in inner else (node, key)
        if isinstance(place.get(name), str) and place[name].startswith(("./", "../")):
            place[name] = _absolute(place[name], folder)

    assistant, student = mapping(tree.get("assistant")), mapping(tree.get("student"))
    stages = entries(tree.get("stages"))
    corpora = [*entries(tree.get("corpora")), *(c for stage in stages for c in entries(stage.get("corpora")))]
    vocabularies = [mapping(node.get("vocabulary")) for node in (assistant, mapping(student.get("scratch")))]
    for node, keys in (
        *((corpus, ("path", "files")) for corpus in corpora),
        *((vocabulary, ("file",)) for vocabulary in vocabularies),
        (mapping(tree.get("heldout")), ("graded",)),
        (tree, ("report", "cache", "exclude")),
    ):
        for key in keys:
            if node.get(key):
                node[key] = _absolute(node[key], folder)
    for node, key in ((tree, "teacher"), (tree, "assistant"), (tree, "student"), (assistant, "body")):
        model(node, key)
    for stage in stages:
        model(stage, "guide")


def parse_recipe(tree: dict[str, Any], origin: str, overrides: tuple[str, ...] = ()) -> Recipe:
    """Validate a recipe after `apply_overrides`; `origin` names it in messages.

    Raises:
        InputError: the first thing that is wrong, with its place.
    """
    apply_overrides(tree, overrides)
    try:
        return Recipe(**tree)
    except ValidationError as error:
        raise InputError(f"{origin}: {say_what_is_wrong(error, Recipe)}") from error
    except TypeError as error:
        raise InputError(f"{origin}: {error}") from error


def say_what_is_wrong(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing that is wrong with a mapping, with its place; for an unknown key the known one it resembles.

    An unknown key is told before a missing one: a key that is misspelled is both.
    """
    errors = _of_best_members(error.errors())
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    unknown = first["type"] == "extra_forbidden"
    keys, known = _walk(model, first["loc"][:-1] if unknown else first["loc"])
    place = ".".join(map(str, [*keys, first["loc"][-1]] if unknown else keys))
    said = f"unknown key{did_you_mean(str(first['loc'][-1]), known)}" if unknown else str(first["msg"])
    return f"{place}: {said}" if place else said


def _of_best_members(errors: list[Any]) -> list[Any]:
    """Of a union's members, the errors of the one that knows the most keys: it is what was meant."""
    members: dict[tuple[int | str, ...], dict[str, int]] = {}
    named = []
    for one in errors:
        place = one["loc"]
        # Members are named by their classes, keys are in lower case.
        at = next((i for i, part in enumerate(place) if isinstance(part, str) and part != part.lower()), None)
        named.append(None if at is None else (place[:at], place[at]))
        if at is not None:
            strange = one["type"] in ("extra_forbidden", "missing") and at == len(place) - 2
            counts = members.setdefault(place[:at], {})
            counts[place[at]] = counts.get(place[at], 0) + strange
    best = {place: min(counts, key=lambda name: counts[name]) for place, counts in members.items()}
    return [one for one, name in zip(errors, named, strict=True) if name is None or best[name[0]] == name[1]]


def _walk(model: type[BaseModel], place: tuple[int | str, ...]) -> tuple[list[int | str], list[str]]:
    """A place in a model without the names of union members, which are no keys; and the keys that are known there."""
    models, keys = [model], list[int | str]()
    for part in place:
        kinds = [
            one.model_fields[part].annotation for one in models if isinstance(part, str) and part in one.model_fields
        ]
        if kinds:
            models = [found for kind in kinds for found in _models_in(kind)]
        elif isinstance(part, str) and any(one.__name__ in part for one in models):
            models = [one for one in models if one.__name__ in part]
            continue
        elif isinstance(part, str) and not re.fullmatch(r"\w+", part):
            continue
        keys.append(part)
    return keys, [key for one in models for key in one.model_fields]


def _models_in(kind: Any) -> list[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [kind]
    return [found for inner in get_args(kind) for found in _models_in(inner)]
