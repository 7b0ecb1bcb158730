"""`msdc bench` in Python: measure a bundle on devices, compare with an earlier result, write result and report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, cast

from msdc.bench.options import BenchOptions
from msdc.errors import GateError, InconclusiveError, InputError, MsdcError
from msdc.options import with_option_keywords
from msdc.progress import say, warn

if TYPE_CHECKING:
    from msdc.bench.compare import Comparison
    from msdc.bench.report.model import Report
    from msdc.bench.result import BenchFile, DeviceRun

P = ParamSpec("P")


@dataclass(frozen=True)
class BenchResult:
    """What `bench` measured, its report, one line per device that failed, per gate that is missed, per timing that
    cannot be distinguished from noise, and per figure of one result only.
    """

    results: BenchFile
    report: Report | None
    failures: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()
    not_compared: tuple[str, ...] = ()

    def raise_failures(self) -> None:
        """Raise `MsdcError` where a device failed or the results share nothing, `GateError` where a gate is missed,
        `InconclusiveError` where one may be missed."""
        for error, lines in ((MsdcError, self.failures), (GateError, self.missed)):
            if lines:
                raise error("; ".join(lines))
        if self.inconclusive:
            raise InconclusiveError("inconclusive: " + "; ".join(self.inconclusive))


class Bench(Protocol[P]):
    """The type of `bench`: the fields of `BenchOptions` are its keywords."""

    def __call__(self, bundle: str | Path | None = None, *args: P.args, **options: P.kwargs) -> BenchResult:
        """See `_bench`."""


def _verb(options: Callable[P, BenchOptions]) -> Bench[P]:
    return cast(Bench[P], with_option_keywords(BenchOptions, _bench))


def _bench(bundle: str | Path | None = None, *, options: BenchOptions) -> BenchResult:
    """Measure a bundle on devices; write the result and the report that are requested.

        from msdc.bench import bench

        done = bench("msdc-mini-android", device="host,adb", lengths=(8, 32), runs=20)
        for run in done.results.runs:
            print(run.title, run.load, [timing.p50 for timing in run.latency])

    Args:
        bundle: a folder of `msdc export` or a hub id; None: the shipped msdc-mini, exported once into the user's cache.

    Returns:
        A `BenchResult`; `report` is None without a run. `raise_failures` turns what failed into errors. A lone device
        that fails raises its own error.

    Raises:
        InputError: no such bundle or device, or an argument out of range; nothing was measured.
    """
    from msdc.bench.compare import compare_results, not_compared, place_key, regressions, shares_nothing, ungated
    from msdc.bench.devices import open_devices
    from msdc.bench.devices.base import run_devices
    from msdc.bench.measure import parity_failures
    from msdc.bench.report.page import build_report, check_output, write_report
    from msdc.bench.result import BenchFile, read_result
    from msdc.bench.spread import PastRuns, compare_spread, read_past
    from msdc.export.exporters import bundle_or_shipped
    from msdc.export.manifest import read_manifest
    from msdc.files import refuse_existing, write_json

    # Everything that can be checked is checked before minutes of measuring.
    folder = bundle_or_shipped(bundle)
    if options.output is not None:
        check_output(Path(options.output), options.force)
    if options.json_file is not None:
        refuse_existing(Path(options.json_file), options.force)
    opened, gate = open_devices(options.device), options.gate
    read_manifest(folder)
    before: BenchFile | PastRuns | None = None
    if options.compare is not None:
        earlier = Path(options.compare)
        before = read_past(earlier) if earlier.is_dir() else read_result(earlier)
        if not before.runs:
            raise InputError(f"{options.compare}: holds no run of a device: nothing to compare with")

    def compared(runs: Sequence[DeviceRun]) -> list[Comparison]:
        new = BenchFile(runs=tuple(runs))
        if isinstance(before, PastRuns):
            return compare_spread(before, new)
        return [] if before is None else compare_results(before, new)

    finished: list[DeviceRun] = []

    def keep(runs: Sequence[DeviceRun]) -> None:
        """Write what is measured: an interruption loses no finished device."""
        finished.extend(runs)
        if options.json_file is not None:
            write_json(options.json_file, BenchFile(runs=tuple(finished)).model_dump(mode="json"))

    try:
        measured, failures = run_devices(opened, folder, options, keep)
    except KeyboardInterrupt:
        if finished:
            kept_in = f"kept in {options.json_file}" if options.json_file is not None else "lost: name a result file"
            warn(f"interrupted: the results of {', '.join(run.title for run in finished)} are {kept_in}")
        raise
    slower: list[str] = []
    undecided: list[str] = []
    if before is not None and gate is not None and measured:
        slower, undecided = regressions(compared(measured), gate)
        # A link needs a person; what counts instructions is decided.
        repeated = [device for device in opened if device.kind != "link" and not device.runs_in_parallel]
        if undecided and not slower and repeated:
            say(f"inconclusive ({'; '.join(undecided)}): measuring a second time")
            try:
                again, more_notes = run_devices(repeated, folder, options)
            except MsdcError as error:
                again, more_notes = [], [f"second measurement: {error}"]
            every = [*measured, *again]
            latest = {place_key(run, every): run for run in every}
            measured = [latest[key] for key in dict.fromkeys(place_key(run, every) for run in measured)]
            failures = [*failures, *more_notes]
            slower, undecided = regressions(compared(measured), gate)
            undecided = [f"{line}, measured twice" for line in undecided]
    results = BenchFile(runs=tuple(measured))
    if not measured:
        nothing = ["no device measured anything: the gate compared nothing"] if gate is not None else []
        return BenchResult(results, None, tuple(failures), inconclusive=tuple(nothing))
    earlier_files = [BenchFile(runs=before.runs) if isinstance(before, PastRuns) else before] if before else []
    report = build_report(results, before=earlier_files, comparisons=compared(measured))
    if options.json_file is not None:
        write_json(options.json_file, results.model_dump(mode="json"))
    if options.output is not None:
        write_report(report, Path(options.output), options.force)
    if gate is not None:
        undecided += ungated(report.comparisons)
    elif before is not None and shares_nothing(report.comparisons):
        line = f"{options.compare}: shares no device, runtime and thread count with this measurement"
        if isinstance(before, PastRuns):
            line = "; ".join(not_compared(report.comparisons))
        failures = [*failures, line]
    return BenchResult(
        results, report, tuple(failures), (*parity_failures(measured), *slower), tuple(undecided),
        tuple(not_compared(report.comparisons)),
    )  # fmt: skip


bench = _verb(BenchOptions)
