"""The quickstart: one run folder, from the recipe to the report.

`FOLDER/` holds the run folder of distill (recipe.yaml, metrics.jsonl, stages/, student/), then `bundle/`,
`results.json`, `report.html`; `FOLDER/recurring/` the run folder, and where it passes the gate the bundle, of the twin
whose unit is applied twice. The report is written last; where it exists, the run is complete.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from msdc.bench.devices.python import PythonDevice
from msdc.bench.quickstart.float_models import score_model
from msdc.bench.report.inputs import Twin
from msdc.bench.report.page import build_report, write_report
from msdc.bench.result import BenchFile, ModelScores
from msdc.bench.run import parity_failures
from msdc.bench.settings import BenchSettings, usual_lengths
from msdc.bench.workload import collect
from msdc.compress.student.from_transformers import to_student
from msdc.distill.catalog import load_recipe
from msdc.distill.models import load_named
from msdc.distill.pipeline import Run, RunResult, run
from msdc.distill.recipe import Recipe
from msdc.distill.run.folder import RunFolder
from msdc.encoders.encoder import load_encoder
from msdc.errors import GateError, InputError
from msdc.export.runtimes import RUNTIMES
from msdc.export.writer import BundleOptions, write_bundle
from msdc.files import write_json
from msdc.progress import say

RECIPE = "quickstart"
TASKS = ("graded-pairs",)
REPORT, RESULTS, BUNDLE, TWIN = "report.html", "results.json", "bundle", "recurring"


@dataclass(frozen=True)
class QuickstartConfig:
    """`runs` are timed runs per length; `overrides` are `--set` of the recipe."""

    folder: Path
    force: bool = False
    runs: int = 60
    overrides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Quickstart:
    """The report's path, its results, and seconds per step."""

    report: Path
    results: BenchFile
    seconds: dict[str, float]


def prepare(folder: Path, force: bool) -> bool:
    """Prepare the folder of a run; True when it holds an unfinished run to resume.

    Raises:
        InputError: a finished run without force, or a folder that is not a run folder (never deleted).
    """
    if RunFolder(folder).unstarted():
        return False
    if not (folder / "recipe.yaml").is_file():
        raise InputError(f"{folder} exists and is no run folder: choose another with -o")
    if force:
        # By one rename: what is killed while it deletes leaves no half of a run under this name.
        aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
        os.rename(folder, aside / "old")
        shutil.rmtree(aside)
        return False
    if (folder / REPORT).is_file():
        raise InputError(f"{folder} holds a finished run, its report is {folder / REPORT}: pass --force to run again")
    say(f"{folder}: resuming an unfinished run")
    return True


def _float_models(
    recipe: Recipe, taught: RunResult, twin: tuple[str, RunResult], settings: BenchSettings
) -> tuple[ModelScores, ...]:
    tasks = collect(settings)
    models = [score_model(load_named(recipe.teacher), "teacher", tasks)]
    if taught.assistant is not None:
        models.append(score_model(load_encoder(taught.assistant), "assistant", tasks, "transplanted vocabulary"))
    models.append(score_model(load_encoder(taught.student), "student", tasks, recipe.name))
    models.append(score_model(load_encoder(twin[1].student), "other", tasks, twin[0]))
    return tuple(models)


def _export(
    recipe: Recipe, student: Path, bundle: Path, runtimes: tuple[str, ...], told: Callable[[str], None]
) -> None:
    encoder = load_encoder(student)
    options = BundleOptions(
        target="linux",
        runtimes=runtimes,
        precision="int8",
        languages=("en", *(recipe.corpora[0].languages)),
        licenses=recipe.licenses,
        data_sources=recipe.data_sources,
        source_sha256=encoder.fingerprint(),
    )
    # A bundle is complete or absent, but it may be that of an earlier, interrupted attempt: write it again.
    write_bundle(
        to_student(encoder), encoder.tokenizer, bundle, name=recipe.name, options=options, force=True, say=told
    )


def run_quickstart(config: QuickstartConfig, told: Callable[[str], None] = say) -> Quickstart:
    """Distill, export, bench, report.

    Raises:
        InputError: the folder cannot be used (see `prepare`).
        GateError: an artifact misses a gate.
        MsdcError: a step failed; run again to resume.
    """
    folder = config.folder
    resume = prepare(folder, config.force)
    recipe = load_recipe(RECIPE, config.overrides)
    recurring = load_recipe(f"{RECIPE}:{TWIN}", config.overrides)
    seconds: dict[str, float] = {}

    def step(name: str, began: float) -> None:
        seconds[name] = round(time.monotonic() - began, 1)
        told(f"{name}: {seconds[name]:.0f} s")

    began = time.monotonic()
    try:
        taught = run(recipe, folder, resume)
        # The twin shares the assistant: its stage is taken over, not trained again.
        twin = Run(recurring, folder / TWIN, (folder / TWIN / "recipe.yaml").is_file(), [folder]).run()
    except InputError as error:
        # Started with another version of the recipe: the run cannot be resumed.
        raise InputError(f"{error}; --force starts again") if resume else error from error
    step("distill", began)

    began = time.monotonic()
    bundle, twin_bundle = folder / BUNDLE, folder / TWIN / BUNDLE
    _export(recipe, taught.student, bundle, RUNTIMES.names(), told)
    missed = ""
    try:
        # One runtime is enough to compare the two, and the quicker one to write.
        _export(recurring, twin.student, twin_bundle, ("onnx",), told)
    except GateError as error:
        missed = str(error)
        told(f"{recurring.name}: no bundle: {missed}")
    step("export", began)

    began = time.monotonic()
    lengths = usual_lengths(load_encoder(taught.student).max_length)
    settings = BenchSettings(tasks=TASKS, runs=config.runs, progress=True, lengths=lengths)
    runs = [*PythonDevice().run(bundle, settings), *([] if missed else PythonDevice().run(twin_bundle, settings))]
    step("bench", began)

    began = time.monotonic()
    results = BenchFile(runs=tuple(runs), models=_float_models(recipe, taught, (recurring.name, twin), settings))
    write_json(folder / RESULTS, results.model_dump(mode="json"))
    short = parity_failures(runs)
    if short:
        raise GateError("; ".join(short))
    report = build_report(
        results,
        run_folder=folder,
        title="Quickstart: from an English teacher to a phone",
        twin=Twin(recurring.name, folder / TWIN, missed),
    )
    path = write_report(report, folder / REPORT, force=True)
    step("report", began)
    return Quickstart(path, results, seconds)
