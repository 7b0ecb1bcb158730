"""`msdc bench`: measure a bundle on devices; `msdc quickstart`: the whole workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from msdc.bench.benchmark import bench
from msdc.bench.devices import usage
from msdc.bench.options import BenchOptions
from msdc.command_options import VerbCommand, encode_options, options_of, quiet_option, wide_option
from msdc.export.runtimes import runtime_choices
from msdc.extras import QUICKSTART_PACKAGES, require
from msdc.progress import say, warn

GROUPS = {
    "Common options": "device runtime tasks data output json_file compare gate force",
    "Measurement": "lengths runs warmup threads affinity cooldown_s cool_below sustain_s timeout_s",
    "Devices": "runner build_runner address",
    "Text": "prompt_name prompt truncate_dim",
}


@click.command(cls=VerbCommand, verb="msdc.bench.benchmark:bench", groups=GROUPS)
@click.argument("bundle", required=False, type=click.Path())
@options_of(
    BenchOptions,
    ("prompt_name", "prompt", "truncate_dim", "from_text", "progress"),
    device={"help": f"Comma-separated list of {usage()}; or all."},
    runtime={"type": click.Choice(runtime_choices())},
    sustain_s={"metavar": "SECONDS"},
    cool_below={"type": click.FloatRange(20, 60), "metavar": "CELSIUS"},
    address={"metavar": "IP[:PORT]"},
    gate={"type": click.FloatRange(0, 1e6), "metavar": "PERCENT"},
    output={"names": ("-o", "--output")},
    json_file={"names": ("--json",), "type": click.Path(path_type=Path, allow_dash=True),
               "help": "Result file to write; - prints it."},
)  # fmt: skip
@encode_options
@click.option("--build-runner", is_flag=True,
              help="Build the native runner for this machine and arm64 devices (kept in the cache).")  # fmt: skip
@wide_option
@quiet_option
def command(
    bundle: str | None,
    build_runner: bool,
    compare: Path | None,
    gate: float | None,
    json_file: Path | None,
    wide: bool,
    **options: Any,
) -> None:
    """Measure BUNDLE on a device: latency, load, memory, parity, accuracy. Prints a table; writes results and a report.

    Without BUNDLE the shipped msdc-mini is exported once, into the user's cache, and measured.

    `host` is this machine through the native runner, as an app would run the artifact; `python` is this machine
    through Python's bindings and needs no compiler. The emulator's disk is made at its first use.

    Exit code 1 when a device fails, its golden vectors differ from those of the export, or --gate is exceeded; 3 when
    the gate is inconclusive: the same program, a noisy or a busier machine, also in an automatic second measurement, or
    a figure, artifact or device that only one of the two results holds. Results are written first.
    """
    if gate is not None and compare is None:
        raise click.UsageError("--gate needs an earlier result: --compare FILE")
    if build_runner:
        from msdc.bench.toolchain.build import build_runners

        for line in build_runners():
            click.echo(line, err=bundle is not None)
        if bundle is None:
            return
    to_stdout = str(json_file) == "-"
    done = bench(
        bundle, compare=compare, gate=gate, json_file=None if to_stdout else json_file, progress=True, **options
    )
    from msdc.bench.report.page import to_text
    from msdc.bench.spread import left_out

    if done.report and options["output"] is not None:
        say(f"report: {options['output']}")
    if done.report is not None:
        click.echo(done.results.model_dump_json() if to_stdout else to_text(done.report, wide))
    for line in left_out(done.report.comparisons if done.report else ()):
        say(line)
    # Where they decide the exit code, the error names them.
    if gate is None or done.failures or done.missed:
        for line in done.not_compared:
            warn(f"not compared: {line}")
    done.raise_failures()


@click.command()
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("runs/quickstart"), show_default=True,
              help="Run folder.")  # fmt: skip
@click.option("--runs", type=click.IntRange(1, 100_000), default=60, show_default=True, help="Timed runs per length.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a value of the recipe; repeatable."
)
@click.option("--force", is_flag=True, help="Replace an earlier run in the folder.")
@wide_option
@quiet_option
def quickstart(output: Path, runs: int, overrides: tuple[str, ...], force: bool, wide: bool) -> None:
    """Run the whole workflow on the embedded corpus: distill, export int8 for both runtimes, measure, report.

    An unfinished run is resumed. The last line printed is the path of the report.
    """
    say("quickstart: trains two small students, exports, measures and reports them: about 4 minutes on two cores")
    for package in QUICKSTART_PACKAGES:  # before any work
        require(package, "msdc quickstart")
    from msdc.bench.quickstart import run_quickstart
    from msdc.bench.report.page import build_report, to_text

    done = run_quickstart(output, force=force, runs=runs, overrides=overrides)
    click.echo(to_text(build_report(done.results), wide))
    steps = ", ".join(f"{name} {value:.0f} s" for name, value in done.seconds.items())
    click.echo(f"\n{sum(done.seconds.values()) / 60:.1f} minutes: {steps}")
    click.echo(str(done.report))
