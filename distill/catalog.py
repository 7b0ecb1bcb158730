"""The shipped recipes, their variants, and a recipe from its file: YAML, `--set`, relative paths, placeholders.

A recipe file may end in `variants`: named changes to it, one for each row of a paper's table.

    variants:
      bool: {tables: ["5"], row: "Bool (hard labels)", paper: {cross: 79.0}, set: {KEY: VALUE}, stages: [NAME, ..]}

`set` takes the keys of `--set`; `stages` keeps the named stages only; the other entries are the paper's row, its
numbers (Spearman x 100), its tables, and `differs`: how the row departs from the paper's, beyond what the recipe says
for all its rows. `spare_stages` of a recipe are used by its variants only. `RECIPE:VARIANT` names one variant,
`RECIPE:ONE+TWO` applies two in that order.

Paths in a recipe are relative to its file; those of `--set` to the working directory. Texts of a recipe may use two
placeholders: `{embedded}` is the folder of the shipped data, `{data}` a folder that the caller names.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field

from msdc.distill.recipe import Assistant, Corpus, NamedModel, Recipe, Stage, Strict, StudentShape, corpus_label, parse
from msdc.errors import InputError, did_you_mean
from msdc.files import PACKAGE, regular_size

RECIPES = Path(__file__).resolve().parent / "recipes"
EMBEDDED = PACKAGE / "data"
NAMED = ("corpora", "stages")  # lists whose entries are addressed by name
PATHS = ("path", "files", "file", "graded", "report", "cache", "exclude")
MODELS = ("teacher", "assistant", "student", "body", "guide", "model")


class Variant(Strict):
    """Named changes to a recipe, and the row of the paper they reproduce."""

    row: str = ""
    tables: tuple[str, ...] = ()
    paper: dict[str, float] = Field(default_factory=dict)
    about: str = ""
    set: dict[str, Any] = Field(default_factory=dict)
    stages: tuple[str, ...] | None = None
    differs: tuple[str, ...] = ()

    def apply(self, tree: dict[str, Any], spare: list[dict[str, Any]], name: str) -> None:
        """Change the recipe's mapping in place; `spare` are the stages that it has for variants."""
        have = {stage["name"]: stage for stage in [*tree["stages"], *spare]}
        if self.stages is not None:
            if missing := [one for one in self.stages if one not in have]:
                raise InputError(f"variant {name}: no stage {missing[0]!r} (have {', '.join(have)})")
            tree["stages"] = [have[one] for one in self.stages]
        used, spares = ({stage["name"] for stage in stages} for stages in (tree["stages"], spare))
        for key, value in self.set.items():
            stage = key.split(".")[1] if key.startswith("stages.") else None
            if stage is None or stage in used:
                set_value(tree, key, value)
            # A setting of a stage that another variant left out is not an error.
            elif stage in spares:
                set_value({"stages": spare}, key, value)
        if self.row:
            tree["paper"] = {"row": self.row, "tables": list(self.tables), **self.paper}
        if self.differs:
            tree["differs"] = [*tree.get("differs", ()), *self.differs]


# --- changes by key ---------------------------------------------------------------------------------------------------


def set_value(tree: dict[str, Any], key: str, value: Any) -> None:
    """Change one value of a recipe's mapping; dots for depth, stages and corpora by name."""
    *way, last = key.split(".")
    node: Any = tree
    for part, inside in zip(way, ["", *way], strict=False):
        if isinstance(node, dict):
            if not isinstance(node.get(part), (dict, list)):
                node[part] = {}
            node = node[part]
        else:
            node = node[_entry(node, part, inside, key)]
    if isinstance(node, dict):
        node[last] = value
    else:
        node[_entry(node, last, way[-1] if way else "", key)] = value


def _entry(entries: Any, part: str, inside: str, key: str) -> int:
    """The position of the entry `part` of the list that the key `inside` holds."""
    if not isinstance(entries, list):
        raise InputError(f"--set {key}: {part!r} is inside a plain value")
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in entries]
    if inside == "corpora":
        names = [corpus_label(entry) if isinstance(entry, dict) else None for entry in entries]
    found = [number for number, name in enumerate(names) if name == part]
    if not found and part.isdigit() and int(part) < len(entries):
        if inside not in NAMED:
            return int(part)
        named = names[int(part)]
        raise InputError(f"--set {key}: {inside} are addressed by name, number {part} is {inside}.{named}")
    if len(found) != 1:
        known = ", ".join(str(name) for name in dict.fromkeys(names))
        several = "; ".join(str(Corpus.model_construct(**entries[n]).origin) for n in found)
        raise InputError(
            f"--set {key}: {part!r} means several, give them a `name`: {several}"
            if found
            else f"--set {key}: no entry {part!r} (have {known})"
        )
    return found[0]


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str]) -> None:
    """Change a recipe's mapping by texts `key=value`, with dots for depth, stages and corpora by name."""
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise InputError(f"--set {override!r}: expected key=value")
        parsed = _yaml(value, f"--set {override!r}: the value")
        # YAML 1.1 reads 2e-5 as text; a learning rate written like this is a number.
        if isinstance(parsed, str):
            with contextlib.suppress(ValueError):
                parsed = float(parsed)
        set_value(tree, key.strip(), parsed)


# --- files ------------------------------------------------------------------------------------------------------------


@functools.lru_cache(8)  # a sweep loads one recipe many times
def _yaml(text: str, origin: str) -> Any:
    try:
        return yaml.safe_load(text)
    # ValueError: a scalar like 2026-99-99, which looks like a date.
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{origin}: not valid YAML ({' '.join(str(error).split())[:200]})") from error


def read_tree(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file."""
    try:
        regular_size(path)
        tree = copy.deepcopy(_yaml(path.read_text(encoding="utf-8"), str(path)))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid YAML ({error.reason})") from error
    if not isinstance(tree, dict):
        raise InputError(f"{path}: a recipe is a mapping with keys like teacher, corpora, stages")
    return tree


def set_paths(value: Any, folder: Path, key: str = "") -> Any:
    """A part of a recipe's mapping with its relative paths, which are relative to `folder`, made absolute.

    Paths are corpora, graded files, vocabularies and caches, and names of models that begin with `./` or `../`.
    Placeholders and `~` stay.
    """
    if isinstance(value, dict):
        return {name: set_paths(inner, folder, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [set_paths(inner, folder, key) for inner in value]
    if isinstance(value, str) and value and (
        (key in PATHS and not value.startswith(("{", "~"))) or (key in MODELS and value.startswith(("./", "../")))
    ):  # fmt: skip
        return os.path.abspath(folder / value)
    return value


def _fill_in(value: Any, name: str, data: str | os.PathLike[str] | None) -> Any:
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


# --- recipes by name --------------------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """Names of the recipes inside this package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def _read(name: str) -> tuple[dict[str, Any], dict[str, Variant], list[dict[str, Any]], Path]:
    """Mapping, variants, spare stages and file of a recipe."""
    path = RECIPES / f"{name}.yaml" if name in shipped() else Path(name)
    if not path.is_file():
        hint = did_you_mean(name, shipped()) if "/" not in name else f"; shipped recipes: {', '.join(shipped())}"
        raise InputError(f"{name}: no such recipe file{hint}")
    tree = read_tree(path)
    entries, spare = tree.pop("variants", None) or {}, tree.pop("spare_stages", None) or []
    variants = {str(key): parse(Variant, entry, f"{path}: variants.{key}") for key, entry in entries.items()}
    return tree, variants, spare, path


def variants_of(name: str) -> dict[str, Variant]:
    """The variants of a recipe, by name."""
    return _read(_split_name(name)[0])[1]


def _split_name(name: str) -> tuple[str, str]:
    """RECIPE and VARIANT[+VARIANT]; a path may hold a colon of its own."""
    base, _, chosen = (name, "", "") if Path(name).is_file() else name.rpartition(":")
    return (base, chosen) if base else (chosen or name, "")


def load_recipe(
    name: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    data: str | os.PathLike[str] | None = None,
) -> Recipe:
    """A recipe by path or shipped name, `NAME:VARIANT` too.

    Args:
        name: the recipe; or its mapping, or itself.
        overrides: `key=value` as of `--set`, applied last.
        data: the folder that `{data}` in the recipe stands for.
    """
    if isinstance(name, Recipe):
        return parse_recipe(name.model_dump(mode="json"), name.name, overrides) if overrides else name
    if isinstance(name, Mapping):
        tree = copy.deepcopy(dict(name))
        apply_overrides(tree, overrides)
        return parse(Recipe, _fill_in(tree, "the recipe", data), str(tree.get("name", "recipe")))
    base, chosen = _split_name(os.fspath(name))
    tree, variants, spare, path = _read(base)
    tree.setdefault("name", path.stem)
    for part in filter(None, chosen.split("+")):
        if part not in variants:
            raise InputError(f"{base}: no variant {part!r}; it has {', '.join(variants) or 'none'}")
        variants[part].apply(tree, spare, part)
        tree["name"] += f"-{part}"
    # A shipped recipe names files of the user's, who need not know where the package lies.
    if base not in shipped():
        tree = set_paths(tree, path.parent)
    apply_overrides(tree, overrides)
    return parse(Recipe, _fill_in(tree, base, data), str(path))


def parse_recipe(tree: dict[str, Any], origin: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its mapping, which `overrides` change; `origin` names it in messages."""
    apply_overrides(tree, overrides)
    return parse(Recipe, tree, origin)


def listing(name: str | None = None) -> list[dict[str, Any]]:
    """What `--list` shows: every shipped recipe (or the one named) and its variants, with the paper's row."""
    rows: list[dict[str, Any]] = []
    for recipe in shipped() if name is None else [name]:
        tree, variants, _, _ = _read(_split_name(recipe)[0])
        common = tuple(map(str, tree.get("differs", ())))
        entry = Variant(about=str(tree.get("about", "")))
        for label, variant in {recipe: entry, **{f"{recipe}:{k}": v for k, v in variants.items()}}.items():
            facts = variant.model_dump(include={"about", "row", "tables", "paper"}, mode="json")
            # A variant that is no row of a paper departs from nothing.
            departs = [*common, *variant.differs] if variant.row or variant is entry else []
            rows.append({"name": label, **facts, "differs": departs})
    return rows


# --- facts ------------------------------------------------------------------------------------------------------------


def _model_facts(model: Any) -> dict[str, Any]:
    if isinstance(model, NamedModel):
        return {"": model.model, ".pooling": model.pooling or "mean", ".head": model.head or "none"}
    if isinstance(model, Assistant):
        return {"": f"{model.body} with {model.vocabulary.train} pieces ({model.rows})"}
    if not isinstance(model, StudentShape):
        return {"": model}
    if model.scratch is not None:
        plan = model.scratch.model_dump(include={"layers", "hidden", "heads", "intermediate"})
        facts = {"": "random weights", **plan, "vocabulary": model.scratch.vocabulary.train, "dropout": model.dropout}
    else:
        shape = model.model_dump(include={"bottleneck", "place", "unit", "layers", "repeats"})
        facts = {"": "cut from the assistant", **shape}
    return {f".{key}" if key else "": value for key, value in {**facts, "max_length": model.max_length}.items()}


def _stage_facts(recipe: Recipe, stage: Stage) -> dict[str, Any]:
    losses = []  # such as unified_generative + 2 sentence_alignment(reduction=mean)
    for use in stage.objective:
        options = ", ".join(f"{key}={value}" for key, value in use.options.items())
        weight = "" if use.weight == 1 else f"{use.weight:g} "
        losses.append(f"{weight}{use.name}{f'({options})' if options else ''}")
    corpora = recipe.corpora_of(stage)
    keys = ("train", "guide", "start", "batch", "balance", "max_length", "learning_rate", "weight_decay", "choose",
            "evaluate_every", "patience")  # fmt: skip
    return {
        **{key: getattr(stage, key) for key in keys},
        "objective": " + ".join(losses),
        "corpora": [corpus.origin for corpus in corpora],
        "languages": sorted({code for corpus in corpora for code in corpus.languages}),
        "epochs": stage.epochs if stage.steps is None else f"{stage.steps} steps",
        "warmup": f"{stage.warmup_ratio:g}" if stage.warmup_steps is None else f"{stage.warmup_steps} steps",
    }


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """What a resolved recipe trains, as numbers and short texts by dotted name: `student.unit`, `stages.teach.epochs`.

    For the table of the papers' rows, `--dry-run`, and tests.
    """
    facts: dict[str, Any] = {}
    for role in ("teacher", "assistant", "student"):
        facts |= {f"{role}{key}": value for key, value in _model_facts(getattr(recipe, role)).items()}
    facts["heldout.pairs"] = recipe.heldout.pairs
    facts["heldout.graded"] = [path.rsplit("/", 1)[-1] for path in recipe.heldout.graded]
    if recipe.exclude:
        facts["exclude"] = [path.rsplit("/", 1)[-1] for path in recipe.exclude]
    facts["stages"] = [stage.name for stage in recipe.stages]
    for stage in recipe.stages:
        facts |= {f"stages.{stage.name}.{key}": value for key, value in _stage_facts(recipe, stage).items()}
    return facts
