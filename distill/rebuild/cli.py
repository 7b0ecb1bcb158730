"""`msdc build-data`: make the data of a recipe from its public sources."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from msdc.commands import quiet_option
from msdc.distill.rebuild.build import Made, build
from msdc.distill.rebuild.source_list import SourceSet, read_sources
from msdc.errors import MsdcError, printable
from msdc.tables import Column, Table, to_text

SHOWN = 110  # characters of a reason


def _by_set(made: Sequence[Made]) -> dict[tuple[str, str, str], list[Made]]:
    groups: dict[tuple[str, str, str], list[Made]] = {}
    for one in made:
        groups.setdefault((one.set or one.file, one.state, one.why), []).append(one)
    return groups


def to_table(made: Sequence[Made], sets: dict[str, SourceSet]) -> str:
    """One row per set and outcome: files, rows, the source or why it could not be had, and the license."""
    rows = []
    for (name, state, why), files in _by_set(made).items():
        count = sum(one.rows or 0 for one in files)
        said = why or ", ".join(dict.fromkeys(one.origin for one in files if one.origin))
        license = sets[name].license if name in sets else ""
        rows.append(
            (
                name,
                state,
                str(len(files)),
                f"{count:,}" if count else "",
                license,
                said if len(said) <= SHOWN else f"{said[: SHOWN - 1]}…",
            )
        )
    columns = (
        Column("set", align="left"),
        Column("state", align="left"),
        Column("files"),
        Column("rows"),
        Column("license", align="left"),
        Column("source, or why it is missing", align="left"),
    )
    missing = sum(one.state == "missing" for one in made)
    return to_text(
        Table(f"{len(made) - missing} files of {len(made)}, {missing} could not be had", columns, tuple(rows))
    )


@click.command()
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to make: what the recipe calls {data}.",
)
@click.option("--only", multiple=True, metavar="SET", help="Make this set only; may be repeated.")
@click.option(
    "--sources",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with copies of the sources (OWNER+NAME folders, git clones, archives, packages): no downloads.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made from what; make nothing.")
@click.option("--allow-missing", is_flag=True, help="Exit with 0 although something could not be had.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
@click.pass_context
def command(
    context: click.Context,
    recipe: str,
    output: Path,
    only: tuple[str, ...],
    sources: Path | None,
    dry_run: bool,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Make the files that RECIPE reads below {data} from their public sources.

    Files that are there are kept. Ends with a table of what was made and what could not be had; exit code 1 if anything
    could not be had.
    """
    from msdc.distill.catalog import load_recipe

    output = output.resolve()
    sets = read_sources()
    made = build(load_recipe(recipe, data=output), output, sets, only, sources, dry_run)
    text = json.dumps([asdict(one) for one in made], ensure_ascii=False) if as_json else to_table(made, sets)
    click.echo(printable(text))
    if any(one.state == "missing" for one in made) and not allow_missing:
        context.exit(MsdcError.exit_code)
