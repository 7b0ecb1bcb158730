"""docs/reference/recipe.md is made of the recipe's schema, the comments of its fields and the objectives."""

import ast
import inspect
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Mapping
from typing import Any

from generated import check_generated
from places import ROOT
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from msdc.distill.catalog import PaperTable, Variant
from msdc.distill.objectives import OBJECTIVES
from msdc.distill.objectives.registry import TENSORS
from msdc.distill.recipe import (
    AddedVocabulary,
    Assistant,
    Corpus,
    HeldOut,
    NamedModel,
    ObjectiveUse,
    Recipe,
    Scratch,
    Stage,
    StudentShape,
    VocabularyTraining,
)

PAGE = ROOT / "docs" / "reference" / "recipe.md"
INTRODUCTION = """# Keys of a recipe

<!-- Generated from the schema and the objectives by tests/docs/test_recipe_page.py; do not edit. -->

[Train a student](../guides/train.md) shows recipes, [training data](../guides/data.md) the formats of corpora. Unknown
keys are errors. A key without a default is required, one whose default is null may be null. `[text]` is a list."""
# Section -> its model, in the order of the page.
SECTIONS: dict[str, type[BaseModel]] = {
    "Recipe": Recipe, "corpora": Corpus, "assistant": Assistant, "vocabulary": VocabularyTraining,
    "student": StudentShape, "scratch": Scratch, "model": NamedModel, "new-tokens": AddedVocabulary,
    "stages": Stage, "objective": ObjectiveUse, "heldout": HeldOut, "variants": Variant, "tables": PaperTable,
}  # fmt: skip
TYPES = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}
BOUNDS = {"minimum": "≥{}", "exclusiveMinimum": ">{}", "maximum": "≤{}", "exclusiveMaximum": "<{}",
          "minItems": "≥{}"}  # fmt: skip


def meanings(model: type[BaseModel]) -> dict[str, str]:
    """The comments of a model's fields: those of whole lines right above one, and the one at its end."""
    source = textwrap.dedent(inspect.getsource(model))
    lines = source.splitlines()
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and "fmt:" not in token.string
    }
    by_field = {}
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above, line = [], node.lineno - 1
            while line in comments and lines[line - 1].lstrip().startswith("#"):
                above.insert(0, comments[line])
                line -= 1
            parts = [" ".join(above), *(comments[n] for n in range(node.lineno, node.end_lineno + 1) if n in comments)]
            meaning = ". ".join(part.rstrip(".") for part in parts if part)
            by_field[node.target.id] = meaning.replace("None", "null").replace("False", "false")
    return by_field


def yaml_text(value: object) -> str:
    """A value as a recipe has it."""
    return json.dumps(value) if isinstance(value, bool | None | tuple | dict) or value == "" else str(value)


def kind(schema: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The type of a value in words; models are links to their sections."""
    if "$ref" in schema:
        name = names[schema["$ref"].rpartition("/")[2]]
        return f"[{name}](#{name.lower().replace(' ', '-')})"
    if members := schema.get("anyOf") or schema.get("oneOf"):
        return ", ".join(dict.fromkeys(kind(member, names) for member in members if member.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        return "/".join(f"`{yaml_text(value)}`" for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        if parts := schema.get("prefixItems"):
            return f"[{', '.join(kind(part, names) for part in parts)}]"
        inner = kind(schema["items"], names)
        return inner if "](#" in inner else f"[{inner.replace(', ', ' or ')}]"
    if schema.get("type") == "object":
        additional = schema.get("additionalProperties")
        return "{text: " + kind(additional, names) + "}" if isinstance(additional, dict) and additional else "mapping"
    return TYPES[schema["type"]]


def plain(bound: float) -> str:
    """A bound: 16384, 10^12."""
    zeros = len(str(bound)) - 1
    return (
        f"10^{zeros}" if bound == 10**zeros and zeros > 3 else f"{bound:g}" if isinstance(bound, float) else str(bound)
    )


def bounds(schema: Mapping[str, Any]) -> str:
    """The bounds of a value, of whatever member of a union has them."""
    parts = [form.format(plain(schema[key])) for key, form in BOUNDS.items()
             if key in schema and not (key == "minItems" and "prefixItems" in schema)]  # fmt: skip
    parts += [f"`{schema['pattern']}`"] if "pattern" in schema else []
    additional = schema.get("additionalProperties")
    for member in (*schema.get("anyOf", ()), schema.get("items"), additional, *schema.get("prefixItems", ())):
        parts += [part for part in [bounds(member)] if part and part not in parts] if isinstance(member, dict) else []
    return ",".join(parts)


def default(model: type[BaseModel], key: str) -> str:
    """The default of a key; empty for a required one."""
    field = model.model_fields[key]
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel):
        fields = value.model_dump(exclude_unset=True)
        return (
            "`{" + ", ".join(f"{name}: {field}" for name, field in fields.items()) + "}`" if fields else "its defaults"
        )
    return f"`{yaml_text(value)}`"


def section(title: str, model: type[BaseModel], names: Mapping[str, str]) -> list[str]:
    schema, meaning_of = model.model_json_schema(), meanings(model)
    about = (inspect.getdoc(model) or "").partition("\n")[0]
    lines = [f"## {title}", "", about, "", "|key|type|default|bounds|meaning|", "|---|---|---|---|---|"]
    for key, value in schema["properties"].items():
        cells = [f"`{key}`", kind(value, names), default(model, key), bounds(value), meaning_of.get(key, "")]
        lines.append("|" + "|".join(cell.replace("|", "\\|") for cell in cells) + "|")
    return [*lines, ""]


def render() -> str:
    names = {model.__name__: title for title, model in SECTIONS.items()}
    lines = [INTRODUCTION, ""]
    for title, model in SECTIONS.items():
        lines += section(title, model, names)
    lines += ["## Objectives", "", "Names and options of the shipped ones.", "", "|objective|options|", "|---|---|"]
    for name, objective in sorted(OBJECTIVES.items()):
        parameters = inspect.signature(objective.function).parameters
        options = ", ".join(f"`{option}: {yaml_text(parameters[option].default)}`" for option in objective.options)
        lines.append(f"|`{name}`|{options}|")
    lines += ["", "Tensors of a stage that its parameters name: "
              + ", ".join(f"`{name}`" for name in sorted(TENSORS)) + "."]  # fmt: skip
    return "\n".join(lines) + "\n"


def test_the_page_is_that_of_the_schema():
    check_generated(PAGE, render())


def test_every_key_has_a_meaning_and_every_model_a_section():
    for title, model in SECTIONS.items():
        missing = [key for key in model.model_fields if not meanings(model).get(key)]
        assert not missing, f"{title}: a comment is missing for {missing}"
    schema = Recipe.model_json_schema()
    assert {model.__name__ for model in SECTIONS.values()} >= set(schema["$defs"])
    targets = set(re.findall(r"\(#([a-z-]+)\)", render()))
    assert targets <= {title.lower().replace(" ", "-") for title in SECTIONS}
