"""`msdc evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from msdc.bench.accuracy.verbs import EvaluateOptions, evaluate_all
from msdc.command_options import VerbCommand, options_of, prompt_options, quiet_option, wide_option
from msdc.export.runtimes import RUNTIMES


def _listing(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked:
        return
    from msdc.bench.accuracy.sets import SETS, SUITES, TASKS

    lines = ["Tasks (score a file or folder of your own with TASK=PATH):"]
    lines += [f"  {task.name:15} {task.summary}" for task in TASKS.values()]
    lines += ["Sets (found under --data; SET/PART names one part):"]
    lines += [f"  {data_set.name:15} {data_set.summary}" for data_set in SETS.values()]
    lines += ["Tasks of mteb by name: mteb:STS17, mteb:STS17/en-en (`mteb available-tasks` lists them)"]
    lines += ["Suites:"] + [f"  {name:15} {', '.join(members)}" for name, members in SUITES.items()]
    click.echo("\n".join(lines))
    context.exit()


FOLDER = click.Path(file_okay=False, path_type=Path)


GROUPS = {
    "Common options": "tasks data languages against artifacts runtime output as_json force",
    "Vectors": "prompt_name prompt truncate_dims cache threads",
}


@click.command("evaluate", cls=VerbCommand, verb="msdc.bench.accuracy.verbs:evaluate_all", groups=GROUPS)
@click.argument("model", default="msdc-mini")
@click.option(
    "--tasks",
    "-t",
    required=True,
    help="Comma-separated sets, suites, TASK=PATH or mteb:TASK; see --list.",
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_listing,
              help="List tasks, sets and suites, then exit.")  # fmt: skip
@options_of(
    EvaluateOptions,
    ("seed", "neighbours", "margin", "candidates", "queries", "folds", "progress", "near", "prompt_name", "prompt"),
    against={"metavar": "MODEL", "type": str},
    documents={"metavar": "MODEL", "type": str},
    artifacts={"names": ("--artifact",), "metavar": "BUNDLE", "multiple": True, "type": str},
    truncate_dims={"names": ("--truncate-dim",)},
    reference={"metavar": "MODEL", "type": str},
    runtime={"type": click.Choice(RUNTIMES.names())},
    data={"type": click.Path(exists=True, file_okay=False, path_type=Path)},
    corpora={"names": ("--corpus",), "metavar": "TEXT", "multiple": True, "type": str},
    resamples={"type": click.IntRange(0)},
    threads={"type": click.IntRange(1)},
    cache={"type": FOLDER},
    mteb_output={"type": FOLDER},
)
@prompt_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Also write this file: .json, .md or .html."
)
@click.option("--force", is_flag=True, help="Overwrite the output file.")
@wide_option
@quiet_option
def command(
    model: str, tasks: str, as_json: bool, output: Path | None, force: bool, wide: bool, **options: Any
) -> None:
    """Measure the accuracy of MODEL: a shipped name, a folder, a hub id, or an exported bundle, run as it is.

    msdc evaluate msdc-mini --tasks sts17,stsb --data DATA

    msdc evaluate BUNDLE --runtime onnx --tasks sts=pairs.tsv

    msdc evaluate msdc-mini --tasks card --data DATA -o card.md

    `card` exports MODEL for both runtimes and searches its recipe's corpora for test sentences.
    """
    from msdc.bench.report.page import check_output, evaluation_report, to_text, write_report
    from msdc.progress import warn

    if output is not None:
        check_output(output, force, of_runs=False)
    document = evaluate_all(model, tasks, progress=True, **options)
    if document.contamination is not None and not document.contamination.checked:
        warn(f"contamination not checked: {document.contamination.reason}")
    if output is not None:
        write_report(evaluation_report(document), output, force)
    if as_json:
        click.echo(json.dumps(document.as_json(), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        click.echo(to_text(evaluation_report(document), wide))
