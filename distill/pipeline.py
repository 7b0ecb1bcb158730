"""Run a recipe: make assistant and student, train the stages one after the other, write the finished student.

What the run folder holds is listed in msdc.distill.run.folder.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msdc.compress.student.io import add_stock_twin, save_student
from msdc.distill.data.batches import CHUNK_PAIRS, BatchFeed
from msdc.distill.data.download import record_downloads
from msdc.distill.data.stream import TextStream
from msdc.distill.model_card import model_card
from msdc.distill.preflight import check_recipe
from msdc.distill.recipe import Recipe, Stage
from msdc.distill.run.folder import RunFolder, StageFolder, leaves
from msdc.distill.run.models import RunModels, StageModels
from msdc.distill.run.text import RunText
from msdc.distill.tasks import Task, make_task
from msdc.distill.teacher_cache import CachedTeacher, default_cache
from msdc.distill.training import parallel
from msdc.distill.training.checkpoint import checkpoints, step_of
from msdc.distill.training.progress import StageProgress
from msdc.distill.training.trackers import Trackers, require_trackers
from msdc.distill.training.trainer import Trainer
from msdc.distill.training.validation import Validator, read_graded
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.files import staged_folder, write_json, write_text
from msdc.machine import read_machine
from msdc.progress import say
from msdc.scores import cosine_rows, spearman


def resolve_precision(precision: str, device: torch.device) -> str:
    """`float32` or `bfloat16`; `auto` takes bfloat16 where the processor or the GPU multiplies it in hardware."""
    if precision != "auto":
        return precision
    fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else read_machine().bf16
    return "bfloat16" if fast else "float32"


@dataclass(frozen=True)
class RunResult:
    """What a finished run leaves; `assistant` is None where the recipe has none."""

    folder: Path
    student: Path
    assistant: Path | None
    stages: dict[str, dict[str, float]]
    seconds: float


class Run:
    """One recipe in one folder.

    Args:
        recipe: what to run.
        folder: where; see msdc.distill.run.folder.
        resume: continue a run that was stopped.
        beside: run folders whose finished stages are taken over where this run would repeat them.
        trackers: experiment trackers to log to (msdc.distill.training.trackers).
        extendable: keep the last stage's state, so that a resumed run can go on to more steps.
    """

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool = False,
        beside: Sequence[Path] = (),
        trackers: Sequence[str] = (),
        extendable: bool = False,
    ) -> None:
        self.recipe = recipe
        self.beside = beside
        self.tracker_names = tuple(trackers)
        self.trackers: Trackers | None = None
        self.extendable = extendable
        self.folder = RunFolder(folder)
        self.resume = resume
        self.device = parallel.start()
        self.rank, self.world = parallel.rank_and_world()
        self.precision = resolve_precision(recipe.precision, self.device)
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        torch.manual_seed(recipe.seed)
        self.text = RunText(recipe)
        self.models = RunModels(recipe, self.folder, self.text)
        self.cache = Path(recipe.cache).expanduser() if recipe.cache else default_cache()

    def prepare(self) -> None:
        """Create or reopen the run folder.

        Raises:
            InputError: the folder is not this run's (see `RunFolder.check`), a compiler is missing, or something is
                wrong with the recipe (see msdc.distill.preflight); nothing is written then.
        """
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        if self.recipe.compile and self.device.type == "cpu" and not compiler:
            raise InputError("compile: true needs a C++ compiler on a CPU (g++), and none is installed")
        require_trackers(self.tracker_names)
        self.folder.check(self.recipe, self.resume)
        parallel.barrier()
        if self.rank == 0:
            check_recipe(self.recipe)
            self.folder.create(self.recipe)
            record_downloads(self.recipe, self.folder.path)
            for other in self.beside:
                if taken := self.folder.take_over(self.recipe, other):
                    say(f"taken over from {other}: {', '.join(taken)}")
            if self.tracker_names:
                settings = dict(leaves(self.recipe.model_dump(mode="json")))
                self.trackers = Trackers(self.tracker_names, self.folder.path, self.recipe.name, settings)
        parallel.barrier()

    def log(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        if self.rank == 0:
            self.folder.log(row)
            if self.trackers is not None:
                self.trackers.log(row)

    # --- one stage: models, task, training, end -----------------------------------------------------------------

    def run_stage(self, number: int, stage: Stage) -> dict[str, float]:
        """Train one stage; numbers of its chosen weights, of a finished stage as recorded.

        Raises:
            InputError: the stage does not fit the models or the corpora.
            MsdcError: training failed.
        """
        folder = self.folder.stage(number, stage)
        if (done := folder.done()) is not None:
            if self.rank == 0:
                folder.drop_checkpoints()
                if self.trackers is not None:
                    self.trackers.skip(self.folder.metrics.last_step(stage.name))
            return done
        reading = self._start_reading(stage, folder)
        models = self.models.prepare(number, stage)
        stream = self.text.stream(stage)
        reading.reported = stream.reported  # bad lines are reported once
        steps = self._count_steps(stage, stream)
        task = self._make_task(stage, models, stream)
        numbers = self._train(number, stage, models, task, stream, reading, steps)
        self._finish(stage, folder, models, task, numbers)
        return numbers

    def _start_reading(self, stage: Stage, folder: StageFolder) -> TextStream:
        """The stage's text, whose shuffle buffer a thread fills while the models are made."""
        stream = self.text.stream(stage)
        found = checkpoints(folder.checkpoints) if self.resume else []
        if not found:
            stream.start_reading(0, CHUNK_PAIRS)
        if self.rank == 0:
            self.folder.metrics.rewind(stage.name, step_of(found[0]) if found else -1)
        return stream

    def _count_steps(self, stage: Stage, stream: TextStream) -> int:
        """Steps of a stage: as given, or epochs over the training rows, counted by reading them once."""
        if stage.steps is not None:
            return stage.steps
        with StageProgress(f"{stage.name}: counting", enabled=self.rank == 0) as progress:
            stream.on_rows = progress.reading
            if stage.batch_tokens is None:
                rows = sum(len(chunk) for chunk in stream.chunks(0, CHUNK_PAIRS))
                return max(1, round(stage.epochs * rows / stage.batch))
            # Under a token budget the number of steps depends on the lengths: count the batches of one epoch.
            learner = load_encoder(self.folder.newest(self.recipe, stage.role))
            feed = BatchFeed(stage, stream, learner.tokenizer, self.recipe.seed, prompt=learner.defaults.prompt())
            chunks = enumerate(stream.chunks(0, CHUNK_PAIRS))
            return max(1, round(stage.epochs * sum(len(feed.chunk(rows, 0, n).cuts) for n, rows in chunks)))

    def _make_task(self, stage: Stage, models: StageModels, stream: TextStream) -> Task:
        """The task with its guide; the student is made ready for quantization-aware training and compilation."""
        guide = None
        if models.guide is not None:
            models.guide.module.to(self.device)
            guide = CachedTeacher(models.guide, self.cache, stage.max_length, self.precision, models.guide_layers)
        learner = models.learner
        learner.max_length = min(learner.max_length, stage.max_length)
        if stage.quantize is not None:
            from msdc.compress.quantization import rounding

            rounding.prepare(models.student, stage.quantize)
        if self.recipe.compile:
            # Layer by layer: one graph serves all of them, and lengths stay free.
            for layer in models.student.layers:
                layer.compile(dynamic=True)
        task = make_task(models.student, stage, guide, getattr(learner.tokenizer, "unk_id", None)).train()
        task.prepare(stream)
        return task

    def _train(
        self,
        number: int,
        stage: Stage,
        models: StageModels,
        task: Task,
        stream: TextStream,
        reading: TextStream,
        steps: int,
    ) -> dict[str, float]:
        """Train the task; `stream` gives the held-out rows, `reading` the batches."""
        heldout = self.recipe.heldout
        graded = [read_graded(path, limit=heldout.graded_pairs) for path in heldout.graded]
        feed = BatchFeed(
            stage,
            reading,
            models.learner.tokenizer,
            self.recipe.seed,
            task.guide if task.needs_guide_vectors else None,
            models.guide_targets,
            models.learner.defaults.prompt(),
        )
        trainer = Trainer(
            task=task,
            stage=stage,
            feed=feed,
            validate=Validator(stream.heldout_rows(), graded, task.guide, stage.choose, task.project_for_mse()),
            folder=self.folder.stage(number, stage).checkpoints,
            steps=steps,
            precision=self.precision,
            device=self.device,
            keep_end=self.extendable and number == len(self.recipe.stages) - 1,
        )
        place = f"stage {number + 1}/{len(self.recipe.stages)} {stage.name}"
        say(f"{place}: {steps} steps, {self.precision}, train {stage.train}")
        numbers = trainer.run(self.resume, self.log)
        numbers["seconds"] = round(trainer.seconds, 1)
        return numbers

    def _finish(
        self, stage: Stage, folder: StageFolder, models: StageModels, task: Task, numbers: dict[str, float]
    ) -> None:
        """Write the trained model and mark the stage as finished."""
        if self.rank == 0:
            student = task.student
            if stage.quantize is not None:
                from msdc.compress.quantization import rounding

                student = rounding.convert(student)
            # A model without done.json is from a run that was killed between the two; this one is equal to it.
            learner = models.learner
            save_student(student.cpu(), learner.tokenizer.files[0], folder.model, force=True, defaults=learner.defaults)
            # Before the mark, after which nothing of the stage is done again.
            self.log({"stage": stage.name, "done": numbers})
            folder.finish(numbers)
        parallel.barrier()

    # --- the whole run ------------------------------------------------------------------------------------------

    def run(self) -> RunResult:
        """All stages, then the student's folder with its card.

        Raises:
            MsdcError: whatever went wrong; a resumed run continues from the last checkpoint.
        """
        began = time.monotonic()
        self.prepare()
        try:
            return self._run(began)
        finally:
            if self.trackers is not None:
                self.trackers.close()

    def _run(self, began: float) -> RunResult:
        # The student is cut when its first stage begins: from the assistant as the stages before have trained it.
        results = {stage.name: self.run_stage(number, stage) for number, stage in enumerate(self.recipe.stages)}
        role = "student" if self.recipe.student is not None else "assistant"
        student = self.folder.student
        seconds = round(time.monotonic() - began, 1)
        model = self.models.newest(role)
        if self.rank == 0 and not (student.exists() and self.folder.result_file.is_file()):
            encoder = load_encoder(model)
            report = self._report(encoder)
            if not student.exists():
                with staged_folder(student) as stage_folder:
                    shutil.copytree(model, stage_folder, dirs_exist_ok=True)
                    if self.recipe.stock_twin:
                        add_stock_twin(stage_folder)
                    write_text(stage_folder / "README.md", model_card(self.recipe, encoder, results, seconds, report))
            write_json(self.folder.result_file, {"stages": results, "report": report, "seconds": seconds})
        if self.text.without is not None:
            say(f"exclude: left out {self.text.without.count()} rows")
        parallel.barrier()
        assistant = self.folder.newest(self.recipe, "assistant")
        return RunResult(self.folder.path, student, assistant if assistant.is_dir() else None, results, seconds)

    def _report(self, encoder: Encoder) -> dict[str, float]:
        """Spearman x 100 of the finished student on the files of `report`, which are not read before."""
        numbers = {}
        for graded in (read_graded(path, choosing=False) for path in self.recipe.report):
            cosines = cosine_rows(encoder.encode(graded.first), encoder.encode(graded.second))
            numbers[graded.name] = spearman(cosines, graded.gold_N)
        if numbers:
            self.folder.metrics.replace(lambda row: "report" in row, [{"report": numbers}])
        return numbers


def run(
    recipe: Recipe,
    run_folder: str | os.PathLike[str],
    resume: bool = False,
    *,
    trackers: Sequence[str] = (),
    extendable: bool = False,
) -> RunResult:
    """Run `recipe` in `run_folder`; the other arguments as of `Run`.

    Raises:
        InputError: the folder exists (without resume), or the recipe's inputs are wrong.
        MsdcError: training failed.
    """
    return Run(recipe, Path(run_folder), resume, trackers=trackers, extendable=extendable).run()
