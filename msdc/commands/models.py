"""`msdc models`: the models of this package, what each is for, and its size."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import yaml

from msdc.command_options import json_option, wide_option
from msdc.encoders.folder import DEFAULT_MODEL, SHIPPED, shipped_names
from msdc.errors import InputError
from msdc.files import read_json
from msdc.tables import Column, Table, megabytes, terminal_width, to_text

CARD, FENCE = "README.md", "---\n"


@dataclass(frozen=True)
class ShippedModel:
    """A model of this package, from its card and config.

    Attributes:
        about: what to choose it for, in one line.
        bytes: of its weights and its tokenizer.
        layers: applied transformer layers; 0 is a table and a mean.
        max_length: tokens of the longest text.
    """

    name: str
    about: str
    bytes: int
    layers: int
    width: int
    max_length: int
    languages: tuple[str, ...]
    license: str
    default: bool


def read_card(folder: Path) -> dict[str, object]:
    """The metadata at the head of a model card, as the Hugging Face hub reads it."""
    text = (folder / CARD).read_text(encoding="utf-8")
    parts = text.split(FENCE, 2)
    metadata = yaml.safe_load(parts[1]) if text.startswith(FENCE) and len(parts) == 3 else None
    if not isinstance(metadata, dict):
        raise InputError(f"{folder / CARD}: no metadata at its head (--- ... ---)")
    return metadata


def stored_bytes(folder: Path) -> int:
    """Bytes of the weights and of the tokenizer; a program has about the size of its weights."""
    tokenizer = next(path for name in ("tokenizer.model", "tokenizer.json") if (path := folder / name).is_file())
    return (folder / "model.safetensors").stat().st_size + tokenizer.stat().st_size


def shipped_models() -> list[ShippedModel]:
    """The models of this package, the smallest first."""
    models = []
    for name in shipped_names():
        folder = SHIPPED / name
        card, config = read_card(folder), read_json(folder / "config.json")
        models.append(
            ShippedModel(
                name=name,
                about=str(card.get("about", "")),
                bytes=stored_bytes(folder),
                layers=config["unit"] * config["repeats"],
                width=config["dense"] or config["hidden"],
                max_length=config["positions"],
                languages=tuple(card.get("language") or ()),  # type: ignore[arg-type]
                license=str(card.get("license", "")),
                default=name == DEFAULT_MODEL,
            )
        )
    return sorted(models, key=lambda model: model.bytes)


@click.command()
@json_option
@wide_option
def command(as_json: bool, wide: bool) -> None:
    """List the models of this package: what each is for, and its size.

    `msdc encode`, `search`, `export` and all others take these names. "MB" are the weights and the tokenizer.
    """
    models = shipped_models()
    if as_json:
        click.echo(json.dumps([asdict(model) for model in models], ensure_ascii=False, indent=2))
        return
    columns = [Column("model", align="left"), Column("size", "MB"), Column("layers"), Column("tokens"),
               Column("languages"), Column("for", align="left")]  # fmt: skip
    rows = [
        (model.name, megabytes(model.bytes), str(model.layers), str(model.max_length), str(len(model.languages)),
         model.about)
        for model in models
    ]  # fmt: skip
    click.echo(to_text(Table("Models of this package", columns, rows), None if wide else terminal_width()))
