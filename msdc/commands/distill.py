"""`msdc distill`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import click

from msdc.command_options import quiet_option
from msdc.distill import distill
from msdc.distill.training.progress import TRACKERS
from msdc.files import read_json
from msdc.progress import say
from msdc.tables import Field, draw, filled, terminal_width, text_field, to_text


@click.command()
@click.argument("recipe", required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Run folder (default: runs/NAME).")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
              help="Change a value; stages and corpora by name.")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path), envvar="MSDC_DATA",
              help="Folder that replaces {data} in the recipe [env MSDC_DATA].")  # fmt: skip
@click.option("--resume", is_flag=True, help="Continue from the last checkpoint.")
@click.option("--log", "trackers", multiple=True, type=click.Choice(TRACKERS),
              help="Also log to this tracker; repeatable.")  # fmt: skip
@click.option("--extendable", is_flag=True, help="Keep the final state, for --resume with more steps.")
@click.option("--list", "list_recipes", is_flag=True, help="List the shipped recipes.")
@click.option("--dry-run", "dry", is_flag=True,
              help="Check the recipe, count rows and steps; train and download nothing.")  # fmt: skip
@click.option("--hours", type=click.FloatRange(min=0, min_open=True),
              help="End in good order after about this time, with the best weights.")  # fmt: skip
@click.option("--max-steps", type=click.IntRange(min=1), help="Train every stage for this many steps, to try a recipe.")
@click.option("--sweep", "over", multiple=True, metavar="KEY=A,B,C",
              help="One run per value (table=N or variant=A,B: rows of a paper); repeat it for every "
              "combination.")  # fmt: skip
@click.option(
    "--programs", is_flag=True, help="In a sweep, export every student and measure its bytes and latency here."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@quiet_option
def command(
    recipe: str | None,
    output: Path | None,
    overrides: tuple[str, ...],
    data: Path | None,
    resume: bool,
    trackers: tuple[str, ...],
    extendable: bool,
    list_recipes: bool,
    dry: bool,
    hours: float | None,
    max_steps: int | None,
    over: tuple[str, ...],
    programs: bool,
    as_json: bool,
) -> None:
    """Train a student with RECIPE: a file or the name of a shipped recipe; RECIPE:VARIANT for a row of its paper.

    --resume continues a stopped run, or a finished one to more steps or epochs of the last stage. While it runs, `msdc
    report RUN` plots the run so far, and other commands open RUN as a model: its best weights so far.

    --max-steps tries a recipe: the results of its stages (--json, done.json) include the shares of the loss, minutes
    per 10,000 steps and memory.

    A sweep writes one table (table.md, .csv, .json, .tex) and one page (report.html) next to its runs. A point that
    fails is a row with its reason; the same command continues a stopped sweep and tries failed points again. Seeds
    (--sweep seed=1,2,3) become mean and interval. Under torchrun every process computes its share of each batch.
    """
    if list_recipes:
        _list(recipe, as_json)
        return
    if recipe is None:
        raise click.UsageError("name a RECIPE, or pass --list to see the shipped ones")
    if programs and not over:
        raise click.UsageError("--programs needs --sweep; msdc export and msdc bench measure one student")
    if hours is not None and over:
        raise click.UsageError("--hours is for one run, not for a --sweep")
    if max_steps is not None:
        overrides = (*overrides, f"stages.*.steps={max_steps}")
    if dry:
        from msdc.distill.catalog import load_recipe
        from msdc.distill.dry_run import dry_run, plan_text
        from msdc.distill.sweep import dry_sweep, points

        failed = None
        if over:
            plans, failed = dry_sweep(points(recipe, over, overrides, data))
        else:
            plans = {"": dry_run(load_recipe(recipe, overrides, data))}
        if as_json:
            click.echo(json.dumps(plans if over else plans[""], ensure_ascii=False))
        else:
            shown = (f"{f'point {label}, ' if label else ''}{plan_text(plan)}" for label, plan in plans.items())
            click.echo("\n\n".join(shown))
        if failed is not None:
            raise failed
    elif over:
        from msdc.bench.quickstart import program_numbers
        from msdc.bench.report.page import sweep_page
        from msdc.distill.sweep import FailedPointsError, run_sweep

        measure = program_numbers if programs else None
        try:
            _print_sweep(
                run_sweep(recipe, over, output, overrides=overrides, data=data, draw=sweep_page, measure=measure),
                as_json,
            )
        except FailedPointsError as error:
            _print_sweep(error.folder, as_json)
            raise
    else:
        result = distill(
            recipe,
            output,
            resume,
            overrides=overrides,
            data=data,
            trackers=trackers,
            extendable=extendable,
            hours=hours,
        )
        final_stage = next(reversed(result.stages.values()), {})
        scores = []
        for key, text in SCORES.items():
            if key in final_stage:
                teacher = final_stage.get(f"teacher_{key}")
                scores.append(text.format(final_stage[key]) + (f" (the teacher {teacher:.1f})" if teacher else ""))
        if scores:
            say(f"the last stage: {', '.join(scores)}")
        say(f"next: msdc evaluate {result.student} --against TEACHER; msdc compress quantize; msdc export")
        numbers = {"student": str(result.student), "seconds": result.seconds, "stages": result.stages}
        _print(json.dumps(numbers) if as_json else str(result.student))


# What a run ends with, by the key of its last stage's numbers.
SCORES = {
    "heldout_accuracy": "held-out pairs found {:.1f} %",
    "explained_variance": "explained variance of the teacher {:.2f}",
    "graded": "development Spearman x 100 {:.1f}",
}


def _print(result: str) -> None:
    """Print the result of a run once: in the first of several processes."""
    from msdc.distill.parallel import rank_and_world

    if rank_and_world()[0] == 0:
        click.echo(result)


def _print_sweep(folder: Path, as_json: bool) -> None:
    """Print the table of a sweep."""
    from msdc.distill.sweep_table import TABLE_FILE, differences_of, failures, read_sweep, table_of

    if as_json:
        _print((folder / TABLE_FILE).read_text(encoding="utf-8"))
        return
    sweep, width = read_sweep(read_json(folder / TABLE_FILE), str(folder)), terminal_width()
    table, differences = table_of(sweep), differences_of(sweep)
    failed = [filled(line, width) for line in failures(sweep)]
    _print(
        "\n".join(
            [
                to_text(table, width, "more columns in table.md"),
                filled(table.note, width),
                *([] if differences is None else ["", to_text(differences, width), filled(differences.note, width)]),
                *failed,
                str(folder / "table.md"),
            ]
        )
    )


def _list(recipe: str | None, as_json: bool) -> None:
    from msdc.distill.catalog import listing

    rows = listing(recipe)
    if as_json:
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    width = terminal_width()
    if recipe is None:
        names = Counter(row["name"].partition(":")[0] for row in rows)
        abouts = {row["name"]: row["about"] for row in rows}
        fields: list[Field[str]] = [
            text_field("Recipe", str),
            Field("Rows", lambda name: names[name] - 1),
            text_field("What it is", abouts.get),
        ]
        click.echo(to_text(draw("Shipped recipes", fields, list(names)), width))
        click.echo("rows and figures of one: msdc distill --list RECIPE")
        return
    recipe_row, *others = rows
    lines: list[tuple[str, str]] = []
    differs = {text: ["all rows"] for text in recipe_row["differs"]}
    for row in others:
        figures = dict(row["paper"])
        figures.pop("row", None)
        tables = [f"table {number}" if number[0].isdigit() else number for number in figures.pop("tables", ())]
        numbers = ", ".join(f"{key} {value:g}" for key, value in figures.items())
        texts = (row["about"], f"[{', '.join(tables)}]" if tables else "", numbers)
        lines.append((row["name"].partition(":")[2], "  ".join(filter(None, texts))))
        for text in row["differs"]:
            if text not in recipe_row["differs"]:  # those of all rows are printed once
                differs.setdefault(text, []).append(lines[-1][0])
    caption = f"{recipe_row['name']}: {recipe_row['about']} Its rows, as {recipe_row['name']}:ROW"
    columns: list[Field[tuple[str, str]]] = [
        text_field("Row", lambda line: line[0]),
        text_field("What it is, tables and figures of the paper", lambda line: line[1]),
    ]
    click.echo(to_text(draw(caption, columns, lines), width))
    for text, named in differs.items():
        click.echo("\n" + filled(f"Differs from the paper ({', '.join(named)}): {text}", width))
