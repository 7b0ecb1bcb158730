"""One model of options: what a verb and its command line have of it."""

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click
import pytest
from click.testing import CliRunner
from pydantic import AfterValidator, Field

from msdc.command_options import options_of
from msdc.errors import InputError
from msdc.options import AnyPath, Options, with_option_keywords


class Baking(Options):
    minutes: int = Field(default=30, ge=1, description="in the oven")
    sizes: Annotated[Sequence[int], AfterValidator(tuple)] | None = Field(
        default=None, description="of the loaves; None: all"
    )
    rest_s: float = Field(default=0.5, description="seconds that it rests before `minutes`")
    recipe: AnyPath | None = Field(default=None, description="file to read")
    loud: bool = Field(default=False, description="ring a bell")
    hidden: int = 3


def _bake(flour: str, water: str = "cold", *, options: Baking) -> tuple[str, str, Baking]:
    """Bake.

    Args:
        flour: the kind.
        water: its temperature.

    Returns:
        What it was given.
    """
    return flour, water, options


bake = with_option_keywords(Baking, _bake)


def test_the_function_has_the_fields_as_keywords():
    assert bake.__name__ == "bake"
    names = ["flour", "water", "minutes", "sizes", "rest_s", "recipe", "loud"]
    assert list(inspect.signature(bake).parameters) == names
    text = inspect.getdoc(bake)
    assert [text.index(f"    {name}: ") for name in names] == sorted(text.index(f"    {name}: ") for name in names)
    assert text.index("loud: ") < text.index("Returns:")
    _bake.__doc__ = _bake.__doc__.replace("Returns:", "Raises:")
    other = inspect.getdoc(with_option_keywords(Baking, _bake))
    assert other == text.replace("Returns:", "Raises:")
    assert bake("rye") == ("rye", "cold", Baking())
    flour, water, options = bake(water="warm", flour="rye", sizes=8, recipe="r.txt")
    assert (flour, water, options.sizes, options.recipe) == ("rye", "warm", (8,), Path("r.txt"))


def test_errors_name_the_argument():
    with pytest.raises(InputError, match="`minutes`: Input should be greater than or equal to 1"):
        bake("rye", minutes=0)
    with pytest.raises(InputError, match="`sizes`: Input should be a valid integer"):
        bake("rye", sizes=(8, "x"))
    for wrong in ("minute", "hidden"):
        with pytest.raises(TypeError, match=rf"bake\(\) got an unexpected keyword argument '{wrong}'"):
            bake("rye", **{wrong: 3})


def test_the_command_line_has_the_same_options():
    @click.command()
    @options_of(Baking, ["loud"], recipe={"names": ("-r", "--recipe")})
    def command(**options):
        click.echo(repr(bake("rye", **{name: value for name, value in options.items() if value is not None})[2]))

    shown = CliRunner().invoke(command, ["--help"]).output
    assert "-r, --recipe PATH" in shown
    assert "--minutes INTEGER" in shown
    assert "--sizes N,N" in shown
    assert "--loud" not in shown
    assert "--hidden" not in shown
    assert "Of the loaves.  [default: all]" in shown
    assert "before --minutes" in " ".join(shown.split())
    done = CliRunner().invoke(command, ["--sizes", "8,9", "--rest", "2", "-r", "x"])
    assert done.output.strip() == repr(Baking(sizes=(8, 9), rest_s=2.0, recipe="x")), done.output
