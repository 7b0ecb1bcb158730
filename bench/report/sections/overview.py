"""The key figures at the top, the table of artifacts, and parameters and bytes."""

from __future__ import annotations

from msdc.bench.report.charts import bars
from msdc.bench.report.data import ReportData, mean_spearman
from msdc.bench.report.model import Section, Tile
from msdc.bench.result import DeviceRun
from msdc.tables import Column, Table, aligned, fixed, joined, megabytes, millions, number


def latency_at(run: DeviceRun, length: int) -> float | None:
    """Median at one length in tokens, in the unit of the run's clock; None where it was not measured."""
    return next((timing.p50 for timing in run.latency if timing.length == length), None)


def middle_length(data: ReportData) -> int | None:
    """The length in tokens of headline latencies: 32, or the middle one of those that all runs measured."""
    sets = [{t.length for t in run.latency if t.length} for run in data.results.runs if run.latency]
    shared = sorted(set.intersection(*sets)) if sets else []
    if not shared:
        return None
    return 32 if 32 in shared else shared[len(shared) // 2]


def tiles(data: ReportData) -> tuple[Tile, ...]:
    """Smallest program, fastest median, best accuracy of an artifact, lowest parity."""
    found = []
    runs = data.everything()
    if runs:
        run, style = min(runs, key=lambda pair: pair[0].artifact.bytes)
        found.append(Tile("smallest program", f"{megabytes(run.artifact.bytes)} MB", style.name))
    length = middle_length(data)
    timed = [(t, s) for r, s in data.wall() if length and (t := latency_at(r, length)) is not None]
    if timed:
        value, style = min(timed, key=lambda pair: pair[0])
        found.append(Tile(f"fastest median, {length} tokens", f"{number(value)} ms", style.name))
    tasks = data.tasks()
    scored = [(m, s) for r, s in runs if (m := mean_spearman(r.accuracy, tasks)) is not None]
    if scored:
        best, style = max(scored, key=lambda pair: pair[0])
        what = tasks[0][1] if len(tasks) == 1 else f"mean of {len(tasks)} sets"
        found.append(Tile("best Spearman × 100 of an artifact", fixed(best, 1), f"{style.name}; {what}"))
    parities = [(r.parity.mean_cosine, s) for r, s in runs if r.parity is not None]
    if parities:
        worst, style = min(parities, key=lambda pair: pair[0])
        found.append(Tile("lowest parity of a device (mean cosine)", fixed(worst, 4), style.name))
    return tuple(found)


def _ms(run: DeviceRun, figure: float | None) -> float | None:
    return figure if run.clock == "wall" else None


def _parity_cells(run: DeviceRun) -> tuple[str, ...]:
    """Mean and lowest cosine on the golden texts, to the export's own vectors and the float model's; token ids."""
    if run.parity is None:
        return ("–",) * 5
    golden = run.parity
    ids = "equal" if golden.ids_equal else f"{len(golden.ids_differ)} of {golden.texts} differ"
    cosines = (golden.mean_cosine, golden.min_cosine, golden.float_mean_cosine, golden.float_min_cosine)
    return (*(fixed(cosine, 4) for cosine in cosines), ids)


def artifacts(data: ReportData) -> Section | None:
    """One row per run: bytes, load and first run, parity; None without runs."""
    if not data.results.runs:
        return None
    runs = data.results.runs
    loads, firsts = aligned([_ms(run, run.load) for run in runs]), aligned([_ms(run, run.first) for run in runs])
    rows = []
    for (run, style), load, first in zip(data.everything(), loads, firsts, strict=True):
        known = "emulated" in run.device.name
        device = run.device.name + (" (emulated)" if run.device.emulated and not known else "")
        sizes = (megabytes(run.artifact.bytes), megabytes(run.artifact.bundle_bytes))
        # The device has a column of its own here.
        artifact = style.name.replace(f" on {run.device.name}", "", 1)
        rows.append((artifact, device, *sizes, load, first, str(run.threads), *_parity_cells(run)))
    columns = (
        Column("Artifact", align="left"), Column("Device", align="left"), Column("Program", "MB"),
        Column("With tokenizer", "MB"), Column("Load", "ms"), Column("First run", "ms"), Column("Threads"),
        Column("Cosine to export", "mean"), Column("Cosine to export", "lowest"),
        Column("Cosine to float model", "mean"), Column("Cosine to float model", "lowest"),
        Column("Token ids", align="left"),
    )  # fmt: skip
    note = (
        "Program: the file with its external data, in millions of bytes. Load: from file to runnable program, with the "
        "files already in the page cache. Cosines and token ids: golden texts on the device against the export's own "
        "vectors, which only rounding and wrong kernels change, and against the float model's, which quantization "
        "changes too."
    )
    bundles = list(dict.fromkeys(run.artifact.bundle for run in data.results.runs))
    devices = list(dict.fromkeys(run.device.name for run in data.results.runs))
    lead = f"{len(runs)} run{'s' if len(runs) != 1 else ''} of {joined(bundles)} on {joined(devices)}."
    return Section("artifacts", "Artifacts", lead, tables=(Table("Artifacts and devices", columns, tuple(rows), note),))


def parameters(data: ReportData) -> Section | None:
    """Parameters and bytes of every model and artifact; None without any."""
    models = data.models()
    if not models and not data.results.runs:
        return None
    rows, sizes = [], []
    for model, style in models:
        rows.append((style.name, "float32", millions(model.parameters), millions(model.embedding_parameters),
                     millions(model.encoder_parameters), megabytes(model.bytes)))  # fmt: skip
        sizes.append((style, model.bytes))
    seen = set()
    for run, style in data.everything():
        if run.artifact.sha256 in seen:
            continue
        seen.add(run.artifact.sha256)
        rows.append(
            (
                style.name,
                run.artifact.precision,
                millions(run.artifact.parameters),
                "–",
                "–",
                megabytes(run.artifact.bytes),
            )
        )
        sizes.append((style, run.artifact.bytes))
    columns = (
        Column("Model or artifact", align="left"), Column("Precision", align="left"), Column("Parameters", "million"),
        Column("Embedding", "million"), Column("Encoder", "million"), Column("Bytes", "MB"),
    )  # fmt: skip
    known = [(style, size, f"{megabytes(size)} MB") for style, size in sizes if size]
    lead = ""
    teacher = next((m for m, _ in models if m.role == "teacher" and m.bytes), None)
    if teacher is not None and teacher.bytes and data.results.runs:
        least = min(run.artifact.bytes for run in data.results.runs)
        lead = f"The smallest artifact is {least / teacher.bytes:.0%} of the teacher's {megabytes(teacher.bytes)} MB."
    figure = bars("Bytes on disk", known) if known else None
    return Section(
        "parameters", "Parameters and bytes", lead, (figure,) if figure else (),
        (Table("Parameters and bytes", columns, tuple(rows),
               "Embedding counts the token table, its bottleneck map and positions; encoder the stored layers."),),
    )  # fmt: skip
