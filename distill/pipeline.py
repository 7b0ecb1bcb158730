"""Run a recipe: assistant, student, stages, and a run folder that tells the whole story.

Run folder: recipe.yaml (as resolved), environment.json, metrics.jsonl, assistant/, stages/N-name/{checkpoints/, model/,
done.json}, student/, result.json.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml

from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.io import save_student
from msdc.distill import parallel
from msdc.distill.assistant import make_assistant, make_student, sample_rows
from msdc.distill.data.batches import CHUNK_PAIRS, make_chunk
from msdc.distill.data.sources import open_corpora
from msdc.distill.data.stream import Stream
from msdc.distill.data.word_translation import Dictionary, learn_dictionary, put_into_words
from msdc.distill.guide import Guide, default_cache
from msdc.distill.model_card import model_card
from msdc.distill.recipe import Recipe, Stage, StudentShape
from msdc.distill.run_folder import adopt, read_recipe
from msdc.distill.tasks import make_task
from msdc.distill.tasks.hidden_states import StatesTask, prepare_states, prototypes, state_use
from msdc.distill.trainer import Trainer
from msdc.distill.validation import Judge, read_graded
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.files import disk_errors, read_json, staged_folder, write_json, write_text
from msdc.machine import environment, read_machine
from msdc.progress import say
from msdc.scores import cosine_rows, spearman

DICTIONARY_PAIRS = 60_000  # of each language; more pairs add rare words only


def resolve_precision(precision: str, device: torch.device) -> str:
    """`float32` or `bfloat16`; `auto` takes bfloat16 where the processor or the GPU multiplies it in hardware."""
    if precision != "auto":
        return precision
    fast = torch.cuda.is_bf16_supported() if device.type == "cuda" else read_machine().bf16
    return "bfloat16" if fast else "float32"


@dataclass(frozen=True)
class RunResult:
    """What a finished run left behind; `assistant` is None where the recipe has none."""

    folder: Path
    student: Path
    assistant: Path | None
    stages: dict[str, dict[str, float]]
    seconds: float


class Run:
    """One recipe in one folder; finished stages of the run folders `beside` it that would come out equal are taken."""

    def __init__(self, recipe: Recipe, folder: Path, resume: bool = False, beside: Sequence[Path] = ()) -> None:
        self.recipe = recipe
        self.beside = beside
        self.folder = folder
        self.resume = resume
        self.device = parallel.start()
        self.rank, self.world = parallel.rank_and_world()
        self.precision = resolve_precision(recipe.precision, self.device)
        if recipe.threads is not None:
            torch.set_num_threads(recipe.threads)
        torch.manual_seed(recipe.seed)
        self._words: Dictionary | None = None
        self.cache = Path(recipe.cache).expanduser() if recipe.cache else default_cache()

    def prepare(self) -> None:
        """Create or reopen the run folder.

        Raises:
            InputError: it exists and `resume` is false, it belongs to another recipe, or a compiler is missing.
        """
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
        if self.recipe.compile and self.device.type == "cpu" and not compiler:
            raise InputError("compile: true needs a C++ compiler on a CPU (g++), and none is installed")
        recipe_file = self.folder / "recipe.yaml"
        text = yaml.safe_dump(json.loads(self.recipe.model_dump_json()), allow_unicode=True, sort_keys=False)
        if recipe_file.is_file():
            if not self.resume:
                raise InputError(f"{self.folder} exists already: pass --resume to go on, or -o another folder")
            if read_recipe(self.folder) != self.recipe:
                raise InputError(
                    f"{self.folder}/recipe.yaml differs from this recipe: resume with the one it was begun with"
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise InputError(f"{self.folder} exists and is no run folder: choose another with -o")
        parallel.barrier()
        if self.rank == 0 and self.resume:
            # What a killed process was writing when it died.
            for left in self.folder.rglob("*.partial"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        if self.rank == 0 and not recipe_file.is_file():
            write_json(self.folder / "environment.json", environment())
            write_text(recipe_file, text)
        for other in self.beside if self.rank == 0 else ():
            if taken := adopt(self.recipe, self.folder, other):
                say(f"taken over from {other}: {', '.join(taken)}")
        parallel.barrier()

    def log(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        if self.rank:
            return
        with disk_errors(self.folder), open(self.folder / "metrics.jsonl", "a", encoding="utf-8") as handle:
            handle.write(json.dumps(row, ensure_ascii=False) + "\n")

    def stream(self, stage: Stage | None = None) -> Stream:
        """The text of a stage."""
        corpora = stage.corpora if stage is not None and stage.corpora is not None else self.recipe.corpora
        stream = Stream(
            open_corpora(corpora),
            self.recipe.seed,
            self.recipe.heldout,
            stage.balance if stage is not None else "proportional",
            self.recipe.buffer,
            stage.sample if stage is not None and stage.sample is not None else self.recipe.sample,
        )
        if any(source.corpus.word_by_word for source in stream.sources):
            stream.sources = put_into_words(stream.sources, self._dictionary())
        return stream

    def _dictionary(self) -> Dictionary:
        """What the recipe's own parallel text says of words; made once a run."""
        if self._words is None:
            say("dictionary: aligning the words of the recipe's parallel text")
            stream = Stream(open_corpora(self.recipe.corpora), self.recipe.seed, self.recipe.heldout)
            self._words = learn_dictionary(sample_rows(stream, DICTIONARY_PAIRS, self.recipe.seed))
        return self._words

    def _model(self, role: str) -> Path:
        """Folder of the newest form of `assistant` or `student`: after the last finished stage that taught it."""
        newest = self.folder / f"{role}-start"
        for number, stage in enumerate(self.recipe.stages):
            done = self.folder / "stages" / f"{number}-{stage.name}"
            if stage.train.split(".")[0] == role and (done / "done.json").is_file():
                newest = done / "model"
        return newest

    def _make(self, role: str) -> None:
        """Write the untaught form of a role, once."""
        if role == "assistant":
            teacher = load_encoder(self.recipe.teacher)
            make_assistant(self.recipe, teacher, self.stream(), self.folder / "assistant-start")
        elif not (self.folder / "student-start" / "config.json").is_file():
            shape = self.recipe.student
            cut = isinstance(shape, StudentShape) and shape.scratch is None
            if self.recipe.assistant is not None and cut:
                self._make("assistant")
            make_student(self.recipe, self._model("assistant"), self.stream(), self.folder / "student-start")

    def _start(self, role: str) -> Path:
        if self.rank == 0:
            self._make(role)
        parallel.barrier()
        return self._model(role)

    def _guide(self, stage: Stage) -> tuple[Encoder | None, bool]:
        """The guide's encoder and whether it can read the target side."""
        if stage.guide is None:
            return None, False
        if stage.guide.split(".")[0] == "assistant":
            if self.recipe.assistant is None:
                raise InputError(f"stage {stage.name}: the guide is the assistant, but the recipe has none")
            return load_encoder(self._start("assistant")), True
        name = self.recipe.teacher if stage.guide == "teacher" else stage.guide
        return load_encoder(name), False

    def steps(self, stage: Stage, stream: Stream) -> int:
        """Steps of a stage: given, or epochs over the training rows, counted by reading them once."""
        if stage.steps is not None:
            return stage.steps
        if stage.batch_tokens is None:
            rows = sum(len(chunk) for chunk in stream.chunks(0, CHUNK_PAIRS))
            return max(1, round(stage.epochs * rows / stage.batch))
        # Under a token budget the number of steps depends on the lengths: count the cuts of one epoch.
        encoder = load_encoder(self._model(stage.train.split(".")[0]))
        cuts = 0
        for number, chunk in enumerate(stream.chunks(0, CHUNK_PAIRS)):
            rng = np.random.default_rng([self.recipe.seed, 0, number, 2])
            cuts += len(
                make_chunk(chunk, encoder.tokenizer, stage.max_length, stage.batch, stage.batch_tokens, rng).cuts
            )
        return max(1, round(stage.epochs * cuts))

    def run_stage(self, number: int, stage: Stage) -> dict[str, float]:
        """Teach one stage, or read what a finished one left."""
        folder = self.folder / "stages" / f"{number}-{stage.name}"
        if (folder / "done.json").is_file():
            done: dict[str, float] = read_json(folder / "done.json")
            return done
        role = stage.train.split(".")[0]
        start = self._start(role)
        learner = load_encoder(start)
        # A student with stock classes (place: embedding) is taught in the canonical one.
        learner.module = to_student(learner)
        torch.manual_seed(self.recipe.seed * 1000 + number)
        if stage.start == "random":
            learner.module.embedding.apply(learner.module._initialise)
        guide_encoder, guide_targets = self._guide(stage)
        if guide_encoder is not None and state_use(stage) is not None:
            guide_encoder = prepare_states(stage, guide_encoder, learner)
        stream = self.stream(stage)
        steps = self.steps(stage, stream)
        guide = None
        if guide_encoder is not None:
            guide_encoder.module.to(self.device)
            guide = Guide(guide_encoder, self.cache, stage.max_length, self.precision)
        learner.max_length = min(learner.max_length, stage.max_length)
        if stage.quantize is not None:
            from msdc.compress.quantization import qat

            qat.prepare(learner.module, stage.quantize)
        if self.recipe.compile:
            # Layer by layer: one graph serves all of them, and lengths stay free.
            for layer in learner.module.layers:
                layer.compile(dynamic=True)
        mask_id = getattr(learner.tokenizer, "unk_id", None)
        frozen = None if guide_encoder is None else guide_encoder.module
        width = None if guide_encoder is None else guide_encoder.width
        task = make_task(learner.module, stage, frozen, width, mask_id).train()
        if guide is not None and isinstance(task, StatesTask):
            task.prototypes_PD = prototypes(stream, guide)
        heldout = self.recipe.heldout
        graded = [read_graded(path, limit=heldout.graded_pairs) for path in heldout.graded]
        judge = Judge(stream.heldout_rows(), graded, guide, stage.choose)
        trainer = Trainer(
            task=task,
            stage=stage,
            stream=stream,
            tokenizer=learner.tokenizer,
            guide=guide,
            guide_targets=guide_targets,
            judge=judge,
            folder=folder / "checkpoints",
            seed=self.recipe.seed,
            steps=steps,
            precision=self.precision,
            device=self.device,
        )
        place = f"stage {number + 1}/{len(self.recipe.stages)} {stage.name}"
        say(f"{place}: {steps} steps, {self.precision}, train {stage.train}")
        began = time.monotonic()
        numbers = trainer.run(self.resume, self.log)
        numbers["seconds"] = round(time.monotonic() - began, 1)
        if self.rank == 0:
            student = task.student
            if stage.quantize is not None:
                from msdc.compress.quantization import qat

                student = qat.convert(student)
            # A model without done.json is from a run that was killed between the two; this one is equal to it.
            save_student(student.cpu(), learner.tokenizer.files[0], folder / "model", force=True)
            write_json(folder / "done.json", numbers)
            for path in (folder / "checkpoints").glob("step-*"):
                path.unlink()
        parallel.barrier()
        self.log({"stage": stage.name, "done": numbers})
        return numbers

    def run(self) -> RunResult:
        """All stages, then the student's folder with its card.

        Raises:
            MsdcError: whatever went wrong; a resumed run goes on from the last checkpoint.
        """
        began = time.monotonic()
        self.prepare()
        # The student is cut when its first stage begins: out of the assistant that the stages before have taught.
        results = {stage.name: self.run_stage(number, stage) for number, stage in enumerate(self.recipe.stages)}
        role = "student" if self.recipe.student is not None else "assistant"
        student = self.folder / "student"
        seconds = round(time.monotonic() - began, 1)
        self._start(role)
        if self.rank == 0 and not student.exists():
            encoder = load_encoder(self._model(role))
            report = self._report(encoder)
            with staged_folder(student) as stage_folder:
                shutil.copytree(self._model(role), stage_folder, dirs_exist_ok=True)
                write_text(stage_folder / "README.md", model_card(self.recipe, encoder, results, seconds))
            write_json(self.folder / "result.json", {"stages": results, "report": report, "seconds": seconds})
        parallel.barrier()
        assistant = self._model("assistant")
        return RunResult(self.folder, student, assistant if assistant.is_dir() else None, results, seconds)

    def _report(self, encoder: Encoder) -> dict[str, float]:
        """Spearman x 100 of the finished student on the files of `report`, seen here for the first time."""
        numbers = {}
        for graded in (read_graded(path, choosing=False) for path in self.recipe.report):
            cosines = cosine_rows(encoder.encode(graded.first), encoder.encode(graded.second))
            numbers[graded.name] = spearman(cosines, graded.gold_N)
        if numbers:
            self.log({"report": numbers})
        return numbers


def run(recipe: Recipe, run_folder: str | os.PathLike[str], resume: bool = False) -> RunResult:
    """Run `recipe` in `run_folder`.

    Raises:
        InputError: the folder exists (without resume), or the recipe's inputs are wrong.
        MsdcError: training failed.
    """
    return Run(recipe, Path(run_folder), resume).run()
