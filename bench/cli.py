"""`msdc bench`: measure a bundle on devices; `msdc quickstart`: the whole workflow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from msdc.bench.benchmark import bench
from msdc.bench.devices import usage
from msdc.commands import VerbCommand, encode_options, quiet_option, wide_option
from msdc.export.runtimes import runtime_choices
from msdc.progress import say


class Numbers(click.ParamType):
    """Comma-separated whole numbers, as a tuple of int."""

    name = "N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse the text of an option; a tuple (a default) passes through."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers; expected numbers such as 8,32,128", param, ctx)


GROUPS = {
    "Common options": "device runtime tasks data output json_file compare gate force",
    "Measurement": "lengths runs warmup threads affinity cooldown_s sustain_s timeout_s",
    "Devices": "runner build_runner address tls expect",
    "Text": "prompt_name prompt truncate_dim",
}


@click.command(cls=VerbCommand, verb="msdc.bench.benchmark:bench", groups=GROUPS)
@click.argument("bundle", required=False, type=click.Path(path_type=Path))
@click.option("--device", help=f"Comma-separated list of {usage()}; or all.")
@click.option("--runtime", type=click.Choice(runtime_choices()), help="Default: all the bundle holds.")
@click.option(
    "--lengths",
    type=Numbers(),
    help="Lengths in tokens, special ids included.  [default: 8,32,128, limited by the artifact]",
)
@click.option("--runs", type=int, help="Timed runs per length.")
@click.option("--warmup", type=int, help="Untimed runs before the timed ones, per length.")
@click.option("--threads", type=int)
@click.option("--tasks",
              help="Comma-separated list of graded-pairs, sts17, stsb, sts=FILE; none for no accuracy.  "
                   "[default: graded-pairs, with --data sts17 and stsb; none on emulators]")  # fmt: skip
@click.option("--data", type=click.Path(path_type=Path), help="Data folder of the named tasks.")
@encode_options
@click.option("--affinity", type=Numbers(), help="CPU numbers to run on.")
@click.option("--cooldown", "cooldown_s", type=float, help="Seconds to pause before each length.")
@click.option("--sustain", "sustain_s", type=float, metavar="SECONDS",
              help="Also run the middle length without a pause: median per second, heat and battery.")  # fmt: skip
@click.option("--timeout", "timeout_s", type=float, help="Seconds per artifact.")
@click.option("--runner", type=click.Path(path_type=Path), help="A native runner that you built.")
@click.option("--address", metavar="IP[:PORT]",
              help="Where the server of a link listens (127.0.0.1 with adb reverse).  "
                   "[default: the default route's address]")  # fmt: skip
@click.option("--tls", is_flag=True, help="Serve the link with a self-signed certificate (needs cryptography).")
@click.option("--expect", type=int, help="Phones that answer the link.")
@click.option("--build-runner", is_flag=True,
              help="Build the native runner for this machine and arm64 devices (kept in the cache).")  # fmt: skip
@click.option("--compare", type=click.Path(path_type=Path), help="Earlier result to compare with.")
@click.option("--gate", type=click.FloatRange(0, 1e6), metavar="PERCENT",
              help="Fail when a time is more than PERCENT above --compare's, beyond noise.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Report to write: .html, .md or .json.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, allow_dash=True),
              help="Result file to write; - prints it.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace existing files.")
@wide_option
@quiet_option
def command(
    bundle: Path | None,
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
    the gate is inconclusive: the same program, a noisy or a busier machine, also in an automatic second measurement.
    Results are written first.
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

    if done.report and options["output"] is not None:
        say(f"report: {options['output']}")
    if done.report is not None:
        click.echo(done.results.model_dump_json() if to_stdout else to_text(done.report, wide))
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
    from msdc.commands.doctor import require_packages

    require_packages()
    from msdc.bench.quickstart import run_quickstart
    from msdc.bench.report.page import build_report, to_text

    done = run_quickstart(output, force=force, runs=runs, overrides=overrides)
    click.echo(to_text(build_report(done.results), wide))
    steps = ", ".join(f"{name} {value:.0f} s" for name, value in done.seconds.items())
    click.echo(f"\n{sum(done.seconds.values()) / 60:.1f} minutes: {steps}")
    click.echo(str(done.report))
