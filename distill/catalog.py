"""The shipped recipes, their variants, and loading one by name or path.

A recipe file may end in `variants`: named changes to it, one for each row of a paper's table.

    variants:
      bool: {tables: ["5"], row: "Bool (hard labels)", paper: {cross: 79.0}, set: {KEY: VALUE}, stages: [NAME, ..]}

`set` takes the keys of `--set`; `stages` keeps the named stages only; the other entries are the paper's row, its
numbers (Spearman x 100), its tables, and `differs`: how the row departs from the paper's, beyond what the recipe says
for all its rows. `spare_stages` of a recipe are used by its variants only. `RECIPE:VARIANT` names one variant,
`RECIPE:ONE+TWO` applies two in that order.

Paths in a recipe are relative to its file; those of `--set` to the working directory. Texts of a recipe may use two
placeholders: `{embedded}` is the folder of the shipped data, `{data}` a folder that the
caller names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msdc.distill.recipe import Recipe
from msdc.distill.recipe_file import apply_overrides, parse_recipe, read_tree, set_paths, set_value
from msdc.errors import InputError, did_you_mean
from msdc.files import PACKAGE

RECIPES = Path(__file__).resolve().parent / "recipes"
EMBEDDED = PACKAGE / "data"
VARIANT_KEYS = {"set", "stages", "tables", "row", "about", "paper", "differs"}


@dataclass(frozen=True)
class Variant:
    """Named changes to a recipe, and the row of the paper they reproduce."""

    name: str
    row: str = ""
    tables: tuple[str, ...] = ()
    paper: dict[str, float] = field(default_factory=dict)
    about: str = ""
    set: dict[str, Any] = field(default_factory=dict)
    stages: tuple[str, ...] | None = None
    differs: tuple[str, ...] = ()

    def apply(self, tree: dict[str, Any], spare: list[dict[str, Any]]) -> None:
        """Change the recipe's mapping in place; `spare` are the stages that it has for variants.

        Raises:
            InputError: `stages` names a stage that the recipe does not have.
        """
        if self.stages is not None:
            have = {stage["name"]: stage for stage in [*tree["stages"], *spare]}
            missing = [name for name in self.stages if name not in have]
            if missing:
                raise InputError(f"variant {self.name}: no stage {missing[0]!r} (have {', '.join(have)})")
            tree["stages"] = [have[name] for name in self.stages]
        names = {stage["name"] for stage in tree["stages"]}
        spare_names = {stage["name"] for stage in spare}
        for key, value in self.set.items():
            place = key.split(".")
            if place[0] == "stages" and len(place) > 1 and place[1] in spare_names - names:
                set_value({"stages": spare}, key, value)
            # A setting of a stage that another variant left out is not an error.
            elif not (place[0] == "stages" and len(place) > 1 and place[1] not in names):
                set_value(tree, key, value)
        if self.row:
            tree["paper"] = {"row": self.row, "tables": list(self.tables), **self.paper}
        if self.differs:
            tree["differs"] = [*tree.get("differs", ()), *self.differs]


def shipped() -> list[str]:
    """Names of the recipes inside this package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def _read(name: str) -> tuple[dict[str, Any], dict[str, Variant], list[dict[str, Any]], Path]:
    path = RECIPES / f"{name}.yaml" if name in shipped() else Path(name)
    if not path.is_file():
        shown = ", ".join(shipped())
        hint = did_you_mean(name, shipped()) if "/" not in name else ""
        raise InputError(f"{name}: no such recipe file{hint or f'; shipped recipes: {shown}'}")
    tree = read_tree(path)
    variants: dict[str, Variant] = {}
    for key, entry in (tree.pop("variants", None) or {}).items():
        unknown = set(entry) - VARIANT_KEYS if isinstance(entry, Mapping) else {"not a mapping"}
        if unknown:
            raise InputError(f"{path}: variants.{key}: unknown key {sorted(unknown)[0]!r}")
        lists = {part: tuple(map(str, entry[part])) for part in ("tables", "stages", "differs") if part in entry}
        variants[str(key)] = Variant(str(key), **{**entry, **lists})
    return tree, variants, tree.pop("spare_stages", None) or [], path


def variants_of(name: str) -> dict[str, Variant]:
    """The variants of a recipe, by name."""
    return _read(split_name(name)[0])[1]


def split_name(name: str) -> tuple[str, str]:
    """RECIPE and VARIANT[+VARIANT]; a path may hold a colon of its own."""
    base, _, chosen = (name, "", "") if Path(name).is_file() else name.rpartition(":")
    return (base, chosen) if base else (chosen or name, "")


def load_recipe(name: str, overrides: tuple[str, ...] = (), data: str | Path | None = None) -> Recipe:
    """A recipe by path or shipped name, `NAME:VARIANT` too.

    Args:
        name: the recipe.
        overrides: `key=value` as of `--set`, applied last.
        data: the folder that `{data}` in the recipe stands for.

    Raises:
        InputError: no such recipe or variant, something in it is wrong, or it needs `data` and none is given.
    """
    base, chosen = split_name(name)
    tree, variants, spare, path = _read(base)
    tree.setdefault("name", path.stem)
    for part in filter(None, chosen.split("+")):
        if part not in variants:
            raise InputError(f"{base}: no variant {part!r}; it has {', '.join(variants) or 'none'}")
        variants[part].apply(tree, spare)
        tree["name"] += f"-{part}"
    # A shipped recipe names files of the user's, who need not know where the package lies.
    if base not in shipped():
        set_paths(tree, path.parent)
    apply_overrides(tree, overrides)
    return parse_recipe(_fill_in(tree, base, data), str(path))


def listing(name: str | None = None) -> list[dict[str, Any]]:
    """What `--list` shows: every shipped recipe (or the one named) and its variants, with the paper's row."""
    rows: list[dict[str, Any]] = []
    for recipe in shipped() if name is None else [name]:
        tree, variants, _, _ = _read(split_name(recipe)[0])
        common = tuple(map(str, tree.get("differs", ())))
        entry = Variant(recipe, about=str(tree.get("about", "")))
        for label, variant in {recipe: entry, **{f"{recipe}:{k}": v for k, v in variants.items()}}.items():
            rows.append(
                {
                    "name": label,
                    "about": variant.about,
                    "row": variant.row,
                    "tables": list(variant.tables),
                    "paper": variant.paper,
                    # A variant that is no row of a paper departs from nothing.
                    "differs": [*common, *variant.differs] if variant.row or variant is entry else [],
                }
            )
    return rows


def _fill_in(value: Any, name: str, data: str | Path | None) -> Any:
    """A part of a recipe's mapping with its placeholders replaced."""
    if isinstance(value, dict):
        return {key: _fill_in(inner, name, data) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill_in(inner, name, data) for inner in value]
    if not isinstance(value, str):
        return value
    value = value.replace("{embedded}", str(EMBEDDED))
    if "{data}" in value:
        if data is None:
            raise InputError(
                f"{name} needs corpora that are not shipped ({value}): pass --data FOLDER or set MSDC_DATA; "
                f"docs/guides/data.md lists them and where to download them"
            )
        value = value.replace("{data}", os.path.abspath(Path(data).expanduser()))
    return value
