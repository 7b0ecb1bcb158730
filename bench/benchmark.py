"""`msdc bench` in Python: measure a bundle on devices, compare with an earlier result, write result and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msdc.arguments import checked
from msdc.errors import GateError, InconclusiveError, MsdcError
from msdc.progress import say

if TYPE_CHECKING:
    from msdc.bench.report.model import Report
    from msdc.bench.result import BenchFile


@dataclass(frozen=True)
class BenchResult:
    """What `bench` measured, its report, one line per device that failed, per gate that is missed, and per timing that
    cannot be distinguished from noise.
    """

    results: BenchFile
    report: Report | None
    failures: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    inconclusive: tuple[str, ...] = ()

    def raise_failures(self) -> None:
        """Raise `MsdcError` where a device failed, `GateError` where parity or a timing misses its gate,
        `InconclusiveError` where a timing may miss it."""
        for error, lines in ((MsdcError, self.failures), (GateError, self.missed)):
            if lines:
                raise error("; ".join(lines))
        if self.inconclusive:
            raise InconclusiveError("inconclusive, measured twice: " + "; ".join(self.inconclusive))


@checked
def bench(
    bundle: str | Path | None = None,
    *,
    device: str = "host",
    runtime: str | None = None,
    lengths: Sequence[int] | None = None,
    runs: int = 100,
    warmup: int = 10,
    threads: int = 1,
    tasks: str | None = None,
    data: str | Path | None = None,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    from_text: bool = True,
    affinity: Sequence[int] = (),
    cooldown_s: float = 0.0,
    sustain_s: float = 0.0,
    timeout_s: float = 900.0,
    runner: str | Path | None = None,
    address: str | None = None,
    tls: bool = False,
    expect: int = 1,
    compare: str | Path | None = None,
    gate: float | None = None,
    output: str | Path | None = None,
    json_file: str | Path | None = None,
    force: bool = False,
    progress: bool = False,
) -> BenchResult:
    """Measure a bundle on devices; write the result and the report that are asked for.

        from msdc.bench import bench

        done = bench("msdc-mini-android", device="host,adb", lengths=(8, 32), runs=20)
        for run in done.results.runs:
            print(run.title, run.load, [timing.p50 for timing in run.latency])

    Args:
        bundle: a folder of `msdc export`; None: the shipped msdc-mini, exported once into the user's cache.
        device: comma-separated host, python, adb[:SERIAL], emulator[:CPU], browser[:NAME], link[:NAME]; or all.
        runtime: executorch, onnx or both; None: all that the bundle holds.
        lengths: tokens, special ids included; None: 8, 32 and 128, limited by the artifact.
        runs: timed runs per length.
        warmup: untimed runs before them, per length.
        threads: of the runtime.
        tasks: comma-separated names of `msdc evaluate`; `none` for no accuracy; None: sts17 and stsb where `data` is
            given, else graded-pairs (112 home-made pairs); none on emulators.
        data: data folder of the named tasks.
        prompt_name: prompt before the tasks' texts, by name.
        prompt: the same, as text.
        truncate_dim: dimensions of the tasks' vectors; None: the bundle's own.
        from_text: also time tokenization and the whole path from text to vector.
        affinity: processor numbers to run on; empty: any.
        cooldown_s: seconds to pause before each length.
        sustain_s: seconds to run the middle length without a pause.
        timeout_s: seconds per artifact.
        runner: a native runner that you built.
        address: IP[:PORT] at which the server of a link listens; None: the default route's.
        tls: serve the link with a self-signed certificate.
        expect: phones that answer the link.
        compare: an earlier result to compare with.
        gate: percent that a time may be above the earlier one, beyond noise. What the same program, a noisy or a busier
            machine leaves undecided is measured a second time.
        output: report to write: .html, .md or .json.
        json_file: result file to write.
        force: replace existing files.
        progress: show progress.

    Returns:
        The result file, its report (None without a run), one line for each device that failed, for each gate that is
        missed and for what is inconclusive; `raise_failures` turns these into errors. A lone device that fails raises
        its own error.

    Raises:
        InputError: no such bundle or device, or an argument out of range; nothing was measured.
    """
    from msdc.bench.compare import compare_results, place_key, regressions
    from msdc.bench.devices import open_devices
    from msdc.bench.devices.base import run_devices
    from msdc.bench.measure import USUAL_LENGTHS, parity_failures, settings_of, usual_lengths
    from msdc.bench.report.page import build_report, check_output, write_report
    from msdc.bench.result import BenchFile, read_result
    from msdc.export.exporters import bundle_or_shipped
    from msdc.export.manifest import read_manifest
    from msdc.export.runtimes import expand
    from msdc.files import refuse_existing, write_json

    folder = bundle_or_shipped(None if bundle is None else Path(bundle))
    # Everything that can be checked is checked before minutes of measuring.
    if output is not None:
        check_output(Path(output), force)
    if json_file is not None:
        refuse_existing(Path(json_file), force)
    opened = open_devices(device)
    usual = "graded-pairs" if data is None else "bench"
    names = [part.strip() for part in (usual if tasks is None else tasks).split(",")]
    chosen = settings_of(
        runtimes=expand(runtime) if runtime else (),
        lengths=USUAL_LENGTHS if lengths is None else tuple(lengths),
        tasks=tuple(name for name in names if name not in ("", "none")), tasks_asked=tasks is not None,
        runs=runs, warmup=warmup, threads=threads, from_text=from_text, prompt_name=prompt_name, prompt=prompt,
        truncate_dim=truncate_dim, data=data, timeout_s=timeout_s, cooldown_s=cooldown_s, sustain_s=sustain_s,
        affinity=tuple(affinity), runner=runner, address=address, tls=tls, expect=expect, progress=progress,
    )  # fmt: skip
    longest = read_manifest(folder).max_length
    if lengths is None:
        chosen = chosen.model_copy(update={"lengths": usual_lengths(longest)})
    before = None if compare is None else read_result(Path(compare))
    measured, failures = run_devices(opened, folder, chosen)
    slower: list[str] = []
    undecided: list[str] = []
    if before is not None and gate is not None and measured:
        slower, undecided = regressions(compare_results(before, BenchFile(runs=tuple(measured))), gate)
        # A link needs a person; what counts instructions is decided.
        repeated = [one for one in opened if one.kind != "link" and not one.undisturbed]
        if undecided and not slower and repeated:
            say(f"inconclusive ({'; '.join(undecided)}): measuring a second time")
            try:
                again, more = run_devices(repeated, folder, chosen)
            except MsdcError as error:
                again, more = [], [f"second measurement: {error}"]
            latest = {place_key(run): run for run in [*measured, *again]}
            measured, failures = [latest[key] for key in dict.fromkeys(map(place_key, measured))], [*failures, *more]
            slower, undecided = regressions(compare_results(before, BenchFile(runs=tuple(measured))), gate)
    results = BenchFile(runs=tuple(measured))
    if not measured:
        return BenchResult(results, None, tuple(failures))
    report = build_report(results, before=[before] if before is not None else [])
    if json_file is not None:
        write_json(json_file, results.model_dump(mode="json"))
    if output is not None:
        write_report(report, Path(output), force)
    return BenchResult(results, report, tuple(failures), (*parity_failures(measured), *slower), tuple(undecided))
