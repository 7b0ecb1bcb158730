"""The recipes that ship, and finding one by name or path."""

from __future__ import annotations

import os
from pathlib import Path

from msdc.errors import InputError
from msdc.recipe import Recipe, parse_recipe, read_tree

RECIPES = Path(__file__).resolve().parent / "recipes"
EMBEDDED = Path(__file__).resolve().parent.parent / "msdc" / "data"


def shipped() -> list[str]:
    """Names of the recipes inside this package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name: str, overrides: tuple[str, ...] = ()) -> Recipe:
    """A recipe by path or shipped name, with `--set` overrides. Paths may use {embedded} for the shipped data.

    Raises:
        InputError: no such recipe, or something in it is wrong.
    """
    path = RECIPES / f"{name}.yaml" if name in shipped() else Path(name)
    if not path.is_file():
        raise InputError(f"{name}: no such recipe file; shipped recipes: {', '.join(shipped())}")
    tree = read_tree(path)
    tree.setdefault("name", path.stem)
    return parse_recipe(_embedded(tree), str(path), overrides)


def _embedded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _embedded(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_embedded(inner) for inner in value]
    if isinstance(value, str):
        return value.replace("{embedded}", str(EMBEDDED)).replace(
            "{data}", os.environ.get("MSDC_DATA", "../shared/data")
        )
    return value
