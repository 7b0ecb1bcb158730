"""The quickstart: distill, export, bench, report on the embedded corpus and the offline teacher, in one run folder.

`FOLDER/` holds the run folder of distill (recipe.yaml, metrics.jsonl, stages/, student/), then `bundle/`,
`results.json`, `report.html`. The report is written last; where it exists, the run is complete.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from msdc.bench.devices.host import PythonDevice
from msdc.bench.measure import Tasks, collect, parity_failures
from msdc.bench.options import BenchSettings
from msdc.bench.report.page import build_report, write_report
from msdc.bench.result import BenchFile, ModelScores
from msdc.compress.student.stock import to_student
from msdc.distill import distill
from msdc.distill.assistant import load_named
from msdc.distill.catalog import load_recipe
from msdc.distill.recipe import Recipe
from msdc.distill.run_folder import RunFolder
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import STOCK_FOLDER
from msdc.errors import GateError, InputError
from msdc.export.exporters import write_bundle
from msdc.export.options import ExportSettings
from msdc.export.readme import CardFacts
from msdc.export.runtimes import EVERY
from msdc.files import remove_folder, write_json
from msdc.loading import load_encoder
from msdc.progress import say

RECIPE = "quickstart"
REPORT, RESULTS, BUNDLE = "report.html", "results.json", "bundle"


@dataclass(frozen=True)
class Quickstart:
    """The report's path, its results, and seconds per step."""

    report: Path
    results: BenchFile
    seconds: dict[str, float]


def prepare_folder(folder: Path, force: bool) -> bool:
    """Prepare the folder of a run; True when it holds an unfinished run to resume. What is no run is never deleted."""
    run = RunFolder(folder)
    with run.held():
        if run.unstarted():
            return False
        if force and not run.started():
            raise InputError(f"{folder} exists and is not a run folder: choose another `output`")
        if not force and (folder / REPORT).is_file():
            report = folder / REPORT
            raise InputError(f"{folder} holds a finished run, its report is {report}: pass `force` to run again")
    if force:
        remove_folder(folder)
    else:
        say(f"{folder}: resuming an unfinished run")
    return not force


def _export(recipe: Recipe, student: Path, bundle: Path) -> None:
    encoder = load_encoder(student)
    # A bundle is complete or absent, but it may be that of an earlier, interrupted attempt: write it again.
    write_bundle(
        to_student(encoder), encoder.tokenizer, bundle, name=recipe.name, force=True,
        options=ExportSettings(runtime=EVERY, precision="int8"), source_sha256=encoder.fingerprint(),
        card=CardFacts(("en", *recipe.corpora[0].languages), tuple(recipe.licenses), tuple(recipe.data_sources)),
    )  # fmt: skip


def program_numbers(student: Path, runs: int = 30) -> dict[str, float]:
    """`bytes` of a student's int8 program for ONNX Runtime, and median `ms` of a text of 32 tokens on this machine."""
    encoder = load_encoder(student)
    options = ExportSettings(target="linux", runtime="onnx", precision="int8", gates=False, module=False)
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(to_student(encoder), encoder.tokenizer, Path(folder) / BUNDLE, name="student", options=options)
        length = min(32, encoder.max_length)
        settings = BenchSettings(lengths=(length,), runs=runs, tasks=(), from_text=False)
        (run,) = PythonDevice().run(Path(folder) / BUNDLE, settings)
    return {"bytes": run.artifact.bytes, "ms": round(run.latency[0].p50, 3)}


def weight_bytes(folder: Path | None) -> int | None:
    """Bytes of a model folder's weight files; None without any. A student's twin of stock classes does not count."""
    if folder is None:
        return None
    files = [path for path in folder.rglob("*.safetensors") if STOCK_FOLDER not in path.relative_to(folder).parts]
    return sum(path.stat().st_size for path in files) or None


def score_model(
    encoder: Encoder, role: Literal["teacher", "assistant", "student", "other"], tasks: Tasks, name: str
) -> ModelScores:
    """Sizes and scores of a float model, shown next to its artifacts.

    Embedding parameters are the token table, its map and positions, encoder parameters the stored layers; both are None
    for an architecture that cannot be converted to `Student`.
    """
    try:
        counts = {key: value.numel() for key, value in to_student(encoder).state_dict().items()}
        total = sum(counts.values())
        embedding = sum(n for key, n in counts.items() if key.startswith("embedding.") and ".norm." not in key)
        layers = sum(n for key, n in counts.items() if key.startswith("layers."))
    except InputError:
        total, embedding, layers = sum(parameter.numel() for parameter in encoder.module.parameters()), None, None
    return ModelScores(
        role=role,
        name=name,
        parameters=total,
        embedding_parameters=embedding,
        encoder_parameters=layers,
        bytes=weight_bytes(encoder.folder),
        accuracy=tasks.score(encoder),
    )


def run_quickstart(folder: Path, *, force: bool = False, runs: int = 60, overrides: tuple[str, ...] = ()) -> Quickstart:
    """Distill, export, bench, report; `runs` are timed runs per length, `overrides` are `--set` of the recipe.

    Raises:
        InputError: the folder cannot be used (see `prepare_folder`).
        GateError: an artifact misses a gate.
        MsdcError: a step failed; run again to resume.
    """
    resume = prepare_folder(folder, force)
    with RunFolder(folder).held():
        recipe = load_recipe(RECIPE, overrides)
        seconds: dict[str, float] = {}
        began = time.monotonic()

        def finished(step: str) -> None:
            seconds[step] = round(time.monotonic() - began - sum(seconds.values()), 1)
            say(f"{step}: {seconds[step]:.0f} s")

        try:
            trained = distill(recipe, folder, resume)
        except InputError as error:
            # Started with another version of the recipe: the run cannot be resumed.
            raise InputError(f"{error}; `force` starts again") if resume else error from error
        finished("distill")

        _export(recipe, trained.student, folder / BUNDLE)
        finished("export")

        student = load_encoder(trained.student)
        settings = BenchSettings(runs=runs, progress=True)
        measured = PythonDevice().run(folder / BUNDLE, settings)
        finished("bench")

        tasks = collect(settings)
        teacher = load_named(recipe.teacher)
        models = [score_model(teacher, "teacher", tasks, f"{teacher.name}, English only")]
        if trained.assistant is not None:
            models.append(score_model(load_encoder(trained.assistant), "assistant", tasks, "transplanted vocabulary"))
        models.append(score_model(student, "student", tasks, recipe.name))
        results = BenchFile(runs=tuple(measured), models=tuple(models))
        write_json(folder / RESULTS, results.model_dump(mode="json"))
        if failures := parity_failures(measured):
            raise GateError("; ".join(failures))
        title = "Quickstart: from an English teacher to a phone"
        report = build_report(results, run_folder=folder, title=title)
        report = replace(report, subtitle=f"A demonstration of the workflow, not a good model. {report.subtitle}")
        path = write_report(report, folder / REPORT, force=True)
        finished("report")
        return Quickstart(path, results, seconds)
