"""`msdc distill`."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("recipe", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Run folder (default: runs/NAME).")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Change a value; dots for depth, stages by name."
)
@click.option("--resume", is_flag=True, help="Go on from the last checkpoint.")
@click.option("--list", "list_recipes", is_flag=True, help="List the shipped recipes.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(
    recipe: str | None, output: Path | None, overrides: tuple[str, ...], resume: bool, list_recipes: bool, as_json: bool
) -> None:
    """Teach a student from RECIPE: a file, or the name of a shipped recipe.

    Under torchrun every process takes its share of each batch.
    """
    from distill.catalog import load_recipe, shipped

    if list_recipes:
        for name in shipped():
            click.echo(f"{name:28} {load_recipe(name).about}")
        return
    if recipe is None:
        raise click.UsageError("name a RECIPE, or pass --list to see the shipped ones")
    resolved = load_recipe(recipe, overrides)
    from distill.road import run

    result = run(resolved, output or Path("runs") / resolved.name, resume)
    if as_json:
        click.echo(json.dumps({"student": str(result.student), "seconds": result.seconds, "stages": result.stages}))
    else:
        click.echo(str(result.student))
