"""The shipped recipes, their variants, and a recipe from its file: YAML, `--set`, relative paths, placeholders.

A recipe file may end in `variants`, named changes to it, and in `tables`: the paper tables that they reproduce.

    variants:
      bool: {about: hard labels, set: {KEY: VALUE}, stages: [NAME, ..], without: [NAME, ..], differs: [WHAT: why]}
    tables:
      "5": {about: STS2017 across languages, columns: [cross], rows: {ours: 79.4, bool: 79.0}}

`RECIPE:ONE+TWO` applies two variants in that order. The rows of a table are named like this.

Paths in a recipe are relative to its file, those of `--set` to the working directory. `{embedded}` in a value is the
folder of the shipped data, `{data}` a folder that the caller names.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, field_validator, model_validator

from msdc.distill.recipe import (
    Assistant,
    Corpus,
    NamedModel,
    Recipe,
    StagePlan,
    Strict,
    StudentShape,
    corpus_label,
    is_table,
    parse,
)
from msdc.errors import InputError, did_you_mean
from msdc.files import PACKAGE, regular_size

RECIPES = Path(__file__).resolve().parent / "recipes"
EMBEDDED = PACKAGE / "data"
NAMED = ("corpora", "stages")  # lists whose entries are addressed by name
PATHS = ("path", "files", "file", "graded", "report", "cache", "exclude", "vectors")
MODELS = ("teacher", "assistant", "student", "body", "model")
FUNCTIONS = ("objective", "name", "teacher")  # keys of what may be a function in a file: FILE.py:FUNCTION
NamedEntries = dict[str, list[Any]]  # entries of the lists in NAMED


class Variant(Strict):
    """Named changes to a recipe."""

    about: str = ""  # for `msdc distill --list`
    set: dict[str, Any] = Field(default_factory=dict)  # changes with the keys of `--set`
    stages: tuple[str, ...] | None = None  # the ones to keep, also of `spare_stages`, which are for variants only
    corpora: tuple[str, ...] | None = None  # the ones to keep, also of `spare_corpora`
    without: tuple[str, ...] = ()  # stages and corpora to remove
    skips: tuple[str, ...] = ()  # variants that do not combine with this one; a sweep of a table skips their rows
    differs: tuple[str, ...] = ()  # differences from the paper's row, besides those of the whole recipe

    def apply(self, tree: dict[str, Any], entries_by_key: NamedEntries, name: str, names: Names) -> None:
        """Change the recipe's mapping in place; `entries_by_key` are all entries to choose from, including its own.

        `names` are those of all entries. So that variants combine in any order, a setting also changes entries that are
        removed, or chosen later.
        """
        for key, value in self.set.items():
            if key in NAMED:
                tree[key], before = copy.deepcopy(value), tree.get(key) or []
                present = set(names.of(tree[key], key))
                spare = [
                    label
                    for label, name in zip(entries_by_key[key], names.of(entries_by_key[key], key), strict=True)
                    if name not in present and not any(label is old for old in before)
                ]
                entries_by_key[key] = [*tree[key], *spare]
            else:
                set_value(entries_by_key if key.split(".")[0] in NAMED else tree, key, value, names)
        for key, chosen_names in (("corpora", self.corpora), ("stages", self.stages)):
            if not isinstance(tree.get(key), list):
                continue  # the schema will refuse it
            have = dict(zip(names.of(entries_by_key[key], key), entries_by_key[key], strict=True))
            if missing := [label for label in chosen_names or () if label not in have]:
                raise InputError(f"variant {name}: {key} has no {missing[0]!r} (have {', '.join(have)})")
            entries = tree[key] if chosen_names is None else [have[label] for label in chosen_names]
            tree[key] = [
                e for e, label in zip(entries, names.of(entries, key), strict=True) if label not in self.without
            ]
        if self.differs:
            tree["differs"] = [*tree.get("differs", ()), *self.differs]


class PaperTable(Strict):
    """A table or figure of a paper: published figures by the variants that reproduce the row."""

    about: str  # what it shows, or why it has no rows
    columns: tuple[str, ...] = ()  # of the published figures
    # the figures by variants, ONE+TWO; null: not published
    rows: dict[str, tuple[float | None, ...]] = Field(default_factory=dict)

    @field_validator("rows", mode="before")
    @classmethod
    def _figures(cls, rows: Any) -> Any:
        """A single figure needs no list; null is a figure that the paper does not print."""
        return {key: v if isinstance(v, (list, tuple)) else [v] if v is not None else [] for key, v in rows.items()}

    @model_validator(mode="after")
    def _fits(self) -> PaperTable:
        if wrong := [key for key, figures in self.rows.items() if len(figures) > len(self.columns)]:
            raise ValueError(f"row {wrong[0]}: more figures than columns")
        return self


@dataclass(frozen=True)
class RecipeFile:
    """A recipe file: the recipe's mapping, its variants and tables, and entries for variants only."""

    path: Path
    tree: dict[str, Any]
    variants: dict[str, Variant]
    tables: dict[str, PaperTable]
    spare: NamedEntries

    def paper_row(self, chosen: str) -> dict[str, Any]:
        """The paper's row of a combination of variants: `row`, `tables`, figures by column; empty without one.

        Variants that no table names, such as `small`, are ignored.
        """
        named = {part for table in self.tables.values() for row in table.rows for part in row.split("+")}
        parts = [part for part in chosen.split("+") if part in named]
        figures_by_name: dict[str, Any] = {}
        for number, table in self.tables.items():
            for row, figures in table.rows.items():
                if sorted(row.split("+")) == sorted(parts):
                    figures_by_name.setdefault("tables", []).append(number)
                    figures_by_name |= {k: v for k, v in zip(table.columns, figures, strict=False) if v is not None}
        abouts = [self.variants[part].about or part for part in parts]
        return {"row": ", ".join(abouts), **figures_by_name} if figures_by_name else {}


# --- changes by key ---------------------------------------------------------------------------------------------------


def _name_of(entry: Any, inside: str) -> Any:
    """The name of an entry of the list at the key `inside`."""
    label = corpus_label if inside == "corpora" else operator.methodcaller("get", "name")
    return label(entry) if isinstance(entry, dict) else None


class Names:
    """The names of stages and corpora while changes are applied: each keeps the name that it had before.

    A corpus without a `name` is called after its path, which a change may replace.
    """

    def __init__(self) -> None:
        self._first: dict[int, tuple[Any, Any]] = {}  # entry and name by the entry's id; it is kept, so its id is too

    def of(self, entries: Sequence[Any], inside: str) -> list[Any]:
        """The first names of the entries of the list at the key `inside`."""
        return [self._first.setdefault(id(entry), (entry, _name_of(entry, inside)))[1] for entry in entries]


def set_value(
    node: Any, key: str, value: Any, names: Names | None = None, inside: str = "", full_key: str = ""
) -> None:
    """Change a value of a recipe's mapping; dots for depth, stages and corpora by name, `*` for all entries of a list.

    `inside` is the parent's key and `full_key` the whole key, of a value inside another.
    """
    part, _, rest = key.partition(".")
    full_key, names = full_key or key, names or Names()
    places: list[Any] = [part] if isinstance(node, dict) else list(_entries(node, part, names, inside, full_key))
    for position in places:
        if rest:
            if isinstance(node, dict) and not isinstance(node.get(position), (dict, list)):
                node[position] = {}
            set_value(node[position], rest, value, names, part, full_key)
        elif isinstance(node, list) and isinstance(node[position], dict) and isinstance(value, dict):
            node[position].clear()  # in place: a variant's entry is also the recipe's
            node[position].update(copy.deepcopy(value))
        else:
            node[position] = copy.deepcopy(value)


def _entries(entries: Any, part: str, names: Names, inside: str, key: str) -> list[int]:
    """The positions of the entry `part`, or of all, in the list at the key `inside`."""
    if not isinstance(entries, list):
        raise InputError(f"`overrides` {key}: {part!r}: its parent is a scalar")
    first = names.of(entries, inside)  # before any change
    if part == "*":
        return list(range(len(entries)))
    now = [_name_of(entry, inside) for entry in entries]
    positions = next(
        filter(None, ([n for n, name in enumerate(choices) if name == part] for choices in (first, now))), []
    )
    if len(positions) == 1:
        return positions
    if positions:
        several = "; ".join(str(Corpus.model_construct(**entries[n]).origin) for n in positions)
        raise InputError(f"`overrides` {key}: {part!r} means several, give them a `name`: {several}")
    if not part.isdigit() or int(part) >= len(entries):
        choices = ", ".join(str(name) for name in dict.fromkeys(first))
        raise InputError(f"`overrides` {key}: no entry {part!r} (have {choices})")
    if inside in NAMED:
        raise InputError(f"`overrides` {key}: use the name of an entry: {part} is {inside}.{first[int(part)]}")
    return [int(part)]


def apply_overrides(tree: dict[str, Any], overrides: Sequence[str], names: Names | None = None) -> None:
    """Change a recipe's mapping by texts `key=value`, with dots for depth, stages and corpora by name."""
    names = names or Names()
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key:
            raise InputError(f"`overrides` {override!r}: expected key=value")
        parsed = _yaml(value, f"`overrides` {override!r}: the value")
        # YAML 1.1 reads 2e-5 as text; a learning rate written like this is a number.
        if isinstance(parsed, str):
            with contextlib.suppress(ValueError):
                parsed = float(parsed)
        set_value(tree, key.strip(), parsed, names)


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


def _change_texts(value: Any, change: Callable[[str, str], str], key: str = "") -> Any:
    """A part of a recipe's mapping with `change(text, key)` for each text in it, in place: entries keep their names."""
    if isinstance(value, dict):
        changed = {name: _change_texts(inner, change, name) for name, inner in value.items()}
        value.clear()
        # The names of several teachers are names of models too.
        value.update({change(name, key) if key == "teacher" else name: inner for name, inner in changed.items()})
        return value
    if isinstance(value, list):
        value[:] = [_change_texts(inner, change, key) for inner in value]
        return value
    return change(value, key) if isinstance(value, str) else value


def is_function(text: object, key: str) -> bool:
    """Whether the value of a key names a function in a file, FILE.py:FUNCTION."""
    return key in FUNCTIONS and isinstance(text, str) and ".py:" in text and not text.startswith(("{", "~"))


def set_paths(value: Any, folder: Path) -> Any:
    """A part of a recipe's mapping with its paths, which are relative to `folder`, made absolute.

    Paths are corpora, graded files, vocabularies and caches, names of models that begin with `./` or `../`, and files
    of objectives.
    Placeholders and `~` stay.
    """

    def absolute(text: str, key: str) -> str:
        is_file = key in PATHS or (key == "teacher" and is_table(text))
        relative = is_file and not text.startswith(("{", "~"))
        relative = relative or (key in MODELS and text.startswith(("./", "../"))) or is_function(text, key)
        return os.path.abspath(folder / text) if text and relative else text

    return _change_texts(value, absolute)


def _fill_in(tree: Any, name: str, data: str | os.PathLike[str] | None) -> Any:
    """A recipe's mapping with its placeholders replaced."""

    def filled(text: str, key: str) -> str:
        text = text.replace("{embedded}", str(EMBEDDED))
        if "{data}" in text and data is None:
            raise InputError(
                f"{name} needs corpora that are not shipped ({text}): pass `data` or set MSDC_DATA; "
                f"`msdc build-data` downloads those of msdc-mini (docs/guides/data.md)"
            )
        return text.replace("{data}", os.path.abspath(Path(data).expanduser())) if data is not None else text

    return _change_texts(tree, filled)


# --- recipes by name --------------------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """Names of the recipes inside this package."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def read_file(name: str) -> RecipeFile:
    """The file of a recipe, by path or shipped name; the variant after the colon is ignored."""
    name = split_name(name)[0]
    path = RECIPES / f"{name}.yaml" if name in shipped() else Path(name)
    if not path.is_file():
        hint = did_you_mean(name, shipped()) if "/" not in name else f"; shipped recipes: {', '.join(shipped())}"
        raise InputError(f"{name}: no such recipe file{hint}")
    tree = read_tree(path)
    variants, tables = (
        {str(key): parse(model, entry, f"{path}: {kind}.{key}") for key, entry in (tree.pop(kind, None) or {}).items()}
        for kind, model in (("variants", Variant), ("tables", PaperTable))
    )
    spare = {key: tree.pop(f"spare_{key}", None) or [] for key in NAMED}
    return RecipeFile(path, tree, variants, tables, spare)  # type: ignore[arg-type]


def split_name(name: str) -> tuple[str, str]:
    """RECIPE and VARIANT[+VARIANT]; a path may contain a colon."""
    base, _, chosen = (name, "", "") if Path(name).is_file() else name.rpartition(":")
    return (base, chosen) if base else (chosen or name, "")


def load_recipe(
    name: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    overrides: Sequence[str] = (),
    data: str | os.PathLike[str] | None = None,
) -> Recipe:
    """A recipe by path or shipped name, `NAME:VARIANT` too.

    Args:
        name: the recipe, or its mapping, or a `Recipe`.
        overrides: `key=value`, applied last.
        data: the folder that replaces `{data}` in the recipe.
    """
    if isinstance(name, Recipe):
        return parse_recipe(name.model_dump(mode="json"), name.name, overrides) if overrides else name
    if isinstance(name, Mapping):
        tree = copy.deepcopy(dict(name))
        apply_overrides(tree, overrides)
        return parse(Recipe, _fill_in(tree, "the recipe", data), str(tree.get("name", "recipe")))
    base, chosen = split_name(os.fspath(name))
    file = read_file(base)
    tree = file.tree
    tree.setdefault("name", file.path.stem)
    names = Names()
    entries = {k: [*(tree[k] if isinstance(tree.get(k), list) else ()), *spare] for k, spare in file.spare.items()}
    for part in filter(None, chosen.split("+")):
        if part not in file.variants:
            raise InputError(f"{base}: no variant {part!r}; it has {', '.join(file.variants) or 'none'}")
        file.variants[part].apply(tree, entries, part, names)
        tree["name"] += f"-{part}"
    if row := file.paper_row(chosen):
        tree["paper"] = row
    # The paths of a shipped recipe are the user's, relative to the working directory.
    if base not in shipped():
        tree = set_paths(tree, file.path.parent)
    apply_overrides(tree, overrides, names)
    return parse(Recipe, _fill_in(tree, base, data), str(file.path))


def parse_recipe(tree: dict[str, Any], origin: str, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from its mapping, changed by `overrides`; errors begin with `origin`."""
    apply_overrides(tree, overrides)
    return parse(Recipe, tree, origin)


def listing(name: str | None = None) -> list[dict[str, Any]]:
    """All shipped recipes (or the one named), their variants, and the rows of their tables, as `--list` prints them."""
    rows: list[dict[str, Any]] = []
    for recipe in shipped() if name is None else [split_name(name)[0]]:
        file = read_file(recipe)
        common = list(map(str, file.tree.get("differs", ())))
        rows.append({"name": recipe, "about": str(file.tree.get("about", "")), "paper": {}, "differs": common})
        for chosen in dict.fromkeys([*file.variants, *(row for table in file.tables.values() for row in table.rows)]):
            parts = [file.variants[part] for part in chosen.split("+")]
            # Only a row of a paper differs from one.
            differs = [*common, *(text for part in parts for text in part.differs)] if file.paper_row(chosen) else []
            about, row = ", ".join(part.about for part in parts if part.about), file.paper_row(chosen)
            rows.append({"name": f"{recipe}:{chosen}", "about": about, "paper": row, "differs": differs})
    return rows


# --- facts ------------------------------------------------------------------------------------------------------------


def _model_facts(model: Any) -> dict[str, Any]:
    if isinstance(model, NamedModel):
        return {"": model.model, ".pooling": model.pooling or "mean", ".head": model.head or "none"}
    if isinstance(model, Assistant):
        return {"": f"{model.body} with {model.vocabulary.train} tokens ({model.rows})"}
    if not isinstance(model, StudentShape):
        return {"": model}
    if model.scratch is not None:
        what, facts = "random weights", model.scratch.model_dump(include={"layers", "hidden", "heads", "intermediate"})
        facts |= {"vocabulary": model.scratch.vocabulary.train, "dropout": model.dropout}
    else:
        what = "cut from the assistant"
        facts = model.model_dump(include={"bottleneck", "place", "unit", "layers", "repeats"})
    facts["max_length"] = model.max_length
    return {"": what} | {f".{key}": value for key, value in facts.items()}


def _stage_facts(plan: StagePlan) -> dict[str, Any]:
    stage, losses = plan.stage, []  # such as unified_generative + 2 sentence_alignment(reduction=mean)
    for use in stage.objective:
        options = ", ".join(f"{key}={value}" for key, value in use.options.items())
        weight = "" if use.weight == 1 else f"{use.weight:g} "
        losses.append(f"{weight}{use.label}{f'({options})' if options else ''}")
    keys = ("train", "teacher", "start", "batch", "balance", "max_length", "learning_rate", "weight_decay", "choose",
            "evaluate_every", "patience")  # fmt: skip
    return {
        **{key: getattr(stage, key) for key in keys},
        "objective": " + ".join(losses),
        "corpora": [corpus.origin for corpus in plan.corpora],
        "languages": sorted({code for corpus in plan.corpora for code in corpus.languages}),
        "limit": [corpus.limit for corpus in plan.corpora],
        "epochs": stage.epochs if stage.steps is None else f"{stage.steps} steps",
        "warmup": f"{stage.warmup_ratio:g}" if stage.warmup_steps is None else f"{stage.warmup_steps} steps",
    }


def recipe_facts(recipe: Recipe) -> dict[str, Any]:
    """The settings of a resolved recipe by dotted name: `student.unit`, `stages.train.epochs`."""
    facts: dict[str, Any] = {}
    for role in ("teacher", "assistant", "student"):
        facts |= {f"{role}{key}": value for key, value in _model_facts(getattr(recipe, role)).items()}
    facts["heldout.pairs"] = recipe.heldout.pairs
    facts["heldout.graded"] = [path.rsplit("/", 1)[-1] for path in recipe.heldout.graded]
    if recipe.exclude:
        facts["exclude"] = [path.rsplit("/", 1)[-1] for path in recipe.exclude]
    facts["sample"] = recipe.sample
    facts["stages"] = [stage.name for stage in recipe.stages]
    for plan in recipe.plans:
        facts |= {f"stages.{plan.stage.name}.{key}": value for key, value in _stage_facts(plan).items()}
    return facts
