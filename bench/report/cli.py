"""`msdc report`: one page for many results."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              help="Where to write; .html, .md or .json.")  # fmt: skip
@click.option("--run", "run_folder", type=click.Path(path_type=Path), help="Run folder of distill: adds its losses.")
@click.option("--compare", "before", type=click.Path(path_type=Path), help="Earlier result to compare with.")
@click.option("--peers", is_flag=True, help="Show published figures of other systems, with their source.")
@click.option("--title", help="Title of the page.")
@click.option("--force", is_flag=True, help="Replace an existing report.")
def command(
    results: tuple[Path, ...],
    output: Path,
    run_folder: Path | None,
    before: Path | None,
    peers: bool,
    title: str | None,
    force: bool,
) -> None:
    """Make one report of RESULT...: files of `msdc bench --json`, folders of them, results from elsewhere, and
    documents of `msdc evaluate -o FILE.json`.
    """
    from msdc.bench.import_results import read_result, read_results, split_evaluations
    from msdc.bench.report.build import build_report, check_output, write_report
    from msdc.bench.result import BenchFile

    check_output(output, force)
    files, evaluations = split_evaluations(results)
    found = read_results(files) if files else BenchFile()
    earlier = read_result(before) if before is not None else None
    report = build_report(
        found, title=title, run_folder=run_folder, before=earlier, with_peers=peers, evaluations=evaluations
    )
    click.echo(str(write_report(report, found, output, force)))
