"""`msdc report`: one report of many results."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("report.html"), show_default=True,
              help="Where to write; .html, .md or .json.")  # fmt: skip
@click.option(
    "--run", "run_folder", type=click.Path(path_type=Path), help="Run folder of msdc distill: adds its training curves."
)
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
    """Write one report of RESULT...: files of `msdc bench --json`, folders of them, results measured elsewhere,
    documents of `msdc evaluate -o FILE.json`, and folders of `msdc distill --sweep`.
    """
    from msdc.bench.import_results import read_result
    from msdc.bench.report.build import build_report
    from msdc.bench.report.inputs import read_inputs
    from msdc.bench.report.write import check_output, write_report

    check_output(output, force)
    found = read_inputs(results)
    report = build_report(
        found.results,
        title=title,
        run_folder=run_folder,
        before=read_result(before) if before is not None else None,
        with_peers=peers,
        evaluations=found.evaluations,
        sweeps=found.sweeps,
    )
    click.echo(str(write_report(report, found.results, output, force)))
