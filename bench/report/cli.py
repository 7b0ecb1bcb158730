"""`msdc report`: one report of many results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from msdc.command_options import quiet_option
from msdc.progress import say, warn


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where to write; .html, .md, .json, or .csv: one row per run and timed figure. Default: report.html; of a run "
    "alone, RUN/report.html.",
)
@click.option(
    "--run", "run_folder", type=click.Path(path_type=Path), help="Run folder of msdc distill: adds its training curves."
)
@click.option("--compare", "before", multiple=True, type=click.Path(path_type=Path),
              help="Earlier result, or a folder of them: compares with the spread of its comparable runs, of fewer "
              "than five with the latest; draws all; repeatable.")  # fmt: skip
@click.option("--title", help="Title of the page.")
@click.option("--target-latency", multiple=True, metavar="TIME@TOKENS",
              help="Longest median at a length, 20ms@32; repeatable.")  # fmt: skip
@click.option("--target-size", metavar="BYTES", help="Most bytes of program with tokenizer, 12MB.")
@click.option("--target-memory", metavar="BYTES", help="Highest peak of memory, 60MiB.")
@click.option("--target-accuracy", multiple=True, metavar="SCORE[@SET]",
              help="Least Spearman x 100, 70@sts17/en-en; without a set, of the mean; repeatable.")  # fmt: skip
@click.option(
    "--fail",
    "must_pass",
    is_flag=True,
    help="Exit code 1 when a target is missed or not measured, 3 where a phone's state decides.",
)
@click.option("--force", is_flag=True, help="Replace an existing report.")
@quiet_option
def command(
    results: tuple[Path, ...], output: Path | None, run_folder: Path | None, before: tuple[Path, ...],
    title: str | None, must_pass: bool, force: bool, **limits: Any,
) -> None:  # fmt: skip
    """Write one report of RESULT...: files of `msdc bench --json`, folders of them, results measured elsewhere,
    documents of `msdc evaluate -o FILE.json`, and folders of `msdc distill`, with or without --sweep.

    `msdc report RUN` plots the run so far and replaces RUN/report.html.

    Targets are shown as pass or fail at the top. Missed targets change the exit code only with --fail: 1, or 3 where
    only a hot, throttled or saving phone misses one.
    """
    from msdc.bench.compare import not_compared, shares_nothing
    from msdc.bench.report.model import is_run, read_inputs
    from msdc.bench.report.page import build_report, check_output, write_report
    from msdc.bench.report.targets import parse_targets
    from msdc.bench.spread import left_out, read_earlier
    from msdc.errors import GateError, InconclusiveError, InputError

    targets = parse_targets(**limits)
    if must_pass and not targets:
        raise click.UsageError("--fail needs a target")
    if output is None and len(results) == 1 and is_run(results[0]):
        output, force = results[0] / "report.html", True
    output = output or Path("report.html")
    check_output(output, force)
    inputs = read_inputs(results)
    earlier, comparisons = read_earlier(before, inputs.results)
    report = build_report(
        inputs.results, title=title, run_folder=run_folder or inputs.run, evaluations=inputs.evaluations,
        before=earlier, comparisons=comparisons, sweeps=inputs.sweeps, targets=targets,
    )  # fmt: skip
    if before and shares_nothing(report.comparisons):
        raise InputError(
            "the results and the earlier one share no device, runtime and thread count: nothing to compare"
        )
    click.echo(str(write_report(report, output, force)))
    for line in left_out(report.comparisons):
        say(line)
    for line in not_compared(report.comparisons):
        warn(f"not compared: {line}")
    if must_pass and report.missed:
        raise GateError("; ".join(report.missed))
    if must_pass and report.undecided:
        raise InconclusiveError("inconclusive: " + "; ".join(report.undecided))
