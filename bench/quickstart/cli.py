"""`msdc quickstart`."""

from __future__ import annotations

from pathlib import Path

import click

from msdc.commands import quiet_option
from msdc.commands.doctor import require_packages


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("runs/quickstart"), show_default=True,
              help="Run folder.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 100_000), default=60, show_default=True, help="Timed runs per length.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a value of the recipe; repeatable."
)
@click.option("--force", is_flag=True, help="Replace an earlier run in the folder.")
@quiet_option
def command(output: Path, runs: int, overrides: tuple[str, ...], force: bool) -> None:
    """Run the whole workflow on the embedded corpus: distill, export int8 for both runtimes, measure, report.

    An unfinished run is resumed. The last line printed is the path of the report.
    """
    require_packages()
    from msdc.bench.quickstart.pipeline import QuickstartConfig, run_quickstart
    from msdc.bench.report.page import build_report, to_text

    done = run_quickstart(QuickstartConfig(output, force, runs, overrides))
    click.echo(to_text(build_report(done.results)))
    minutes = sum(done.seconds.values()) / 60
    steps = ", ".join(f"{name} {value:.0f} s" for name, value in done.seconds.items())
    click.echo(f"\n{minutes:.1f} minutes: {steps}")
    click.echo(str(done.report))
