"""A run, from the recipe to the finished student: prepare, train stage after stage, finish.

msdc.distill.run_folder lists the files of a run folder.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from msdc.compress.loading import load_torch_encoder
from msdc.compress.quantization import rounding
from msdc.compress.student.io import add_stock_twin, save_student
from msdc.compress.student.stock import to_student
from msdc.distill import parallel
from msdc.distill.added_language import compare_run, comparison_section
from msdc.distill.assistant import cut_from_assistant, load_named, make_assistant, make_student
from msdc.distill.catalog import MODELS, PATHS
from msdc.distill.data.checks import (
    copies_warnings,
    language_warnings,
    overlap_warnings,
    repeated,
    sampled,
    texts_by_language,
    untrained_parts,
    vocabulary_warnings,
)
from msdc.distill.data.corpora import open_corpora, unread
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.graded import read_graded
from msdc.distill.data.tables import (
    HeldOutTexts,
    SourceTable,
    heldout_texts,
    open_source_table,
    reading_lines,
    tables_folder,
)
from msdc.distill.data.text import StageText
from msdc.distill.inputs import is_folder, read_inputs, record_downloads
from msdc.distill.model_card import model_card
from msdc.distill.objectives import find_objective
from msdc.distill.preflight import check_recipe, require_languages
from msdc.distill.recipe import (
    Corpus,
    HeldOut,
    NamedModel,
    Recipe,
    Stage,
    StagePlan,
    StudentShape,
    is_external,
    is_table,
    model_name,
)
from msdc.distill.run_folder import RunFolder, damaged_file, has_hashes, leaves, note_hashes
from msdc.distill.tasks import EmbeddingTask, make_task
from msdc.distill.tasks.hidden_states import layer_pairs
from msdc.distill.tasks.sentence import compares_targets, reads_targets
from msdc.distill.teacher import (
    CachedTeacher,
    JoinedTeacher,
    TableTeacher,
    Teacher,
    default_cache,
    open_external,
    require_vectors,
)
from msdc.distill.training.checkpoint import newest, step_of
from msdc.distill.training.feed import BatchFeed
from msdc.distill.training.progress import Trackers, require_trackers
from msdc.distill.training.ridge_head import fit_head, pooled_states
from msdc.distill.training.trainer import Trainer, check_warmup
from msdc.distill.training.validation import Validator
from msdc.distill.word_translation import Dictionary, PendingDictionary, learn_dictionary, translate_sources
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import MsdcError
from msdc.files import HOLDER_FILE, staged_folder, write_json, write_text
from msdc.machine import quota_threads
from msdc.progress import say, warn, warnings_to
from msdc.scores import cosine_rows, spearman
from msdc.text.tokenizer import Tokenizer

TOKENS_OF_PAIR = 32  # of its longer side, to estimate the pairs of a batch that is cut by tokens
MANY_CUT = 0.05  # of the texts: so many that are cut to max_length are a warning
HEAD_TEXTS = 4_000  # rows that a head is fitted on, of all languages together
DICTIONARY_PAIRS = 60_000  # per language; more pairs add rare words only


def _step_size(stage: Stage) -> str:
    """What a step trains on, in all processes together: `256 pairs (2 processes)`."""
    size = f"{stage.batch} pairs" if stage.batch_tokens is None else f"up to {stage.batch_tokens} tokens a side"
    world = parallel.rank_and_world()[1]
    return f"{size} ({world} processes)" if world > 1 else size


def _without_paths(settings: Any, key: str = "") -> Any:
    """The settings of a recipe without its paths, which may differ from machine to machine."""
    if isinstance(settings, dict):
        return {name: _without_paths(value, name) for name, value in settings.items() if name not in PATHS}
    if isinstance(settings, list):
        return [_without_paths(value, key) for value in settings]
    return "" if key in MODELS and is_folder(settings) else settings


@dataclass(frozen=True)
class RunResult:
    """Folders and numbers of a finished run; `assistant` is None if the recipe has none, `stages` are numbers by stage.

    `seconds` is the training time of all stages, including sessions before a resume.
    """

    folder: Path
    student: Path
    assistant: Path | None
    stages: dict[str, dict[str, float]]
    seconds: float


class Run:
    """One recipe in one folder; arguments as of `msdc.distill.distill`."""

    trackers: Trackers  # of the first process, from `prepare` on

    def __init__(
        self,
        recipe: Recipe,
        folder: Path,
        resume: bool = False,
        reuse: Sequence[Path] = (),
        trackers: Sequence[str] = (),
        extendable: bool = False,
        hours: float | None = None,
    ) -> None:
        self.recipe, self.folder, self.resume, self.reuse = recipe, RunFolder(folder), resume, reuse
        self.tracker_names, self.extendable = tuple(trackers), extendable
        self._deadline = None if hours is None else time.monotonic() + 3600 * hours
        self.open = ExitStack()  # the folder's lock and the trackers, until the run ends
        self.device = parallel.start()
        self.rank, _ = parallel.rank_and_world()
        self.precision = parallel.resolve_precision(recipe.precision, self.device)
        self.cache: Path | None = None
        if recipe.cache is not False:
            self.cache = Path(recipe.cache).expanduser() if recipe.cache else default_cache()
        if threads := recipe.threads or quota_threads():
            self.open.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(threads)
        self._tables: dict[tuple[Corpus, ...], list[SourceTable]] = {}
        self._external: dict[str, CachedTeacher] = {}
        self._warnings: list[str] = []
        self._warned_lines: set[str] = set()
        self._created = False

    def run(self) -> RunResult:
        """Train all stages, then write the student's folder with its card."""
        # The caller's random numbers go on as if nothing had been drawn.
        with self.open, torch.random.fork_rng(), warnings_to(self._note_warning):
            torch.manual_seed(self.recipe.seed)
            self.prepare()
            self._require_vectors()
            # The student is cut when its first stage begins: from the assistant that the earlier stages trained.
            results = {plan.stage.name: self.run_stage(plan) for plan in self.recipe.plans}
            return self.finish(results)

    def log(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl and send it to the trackers."""
        if self.rank == 0:
            self.folder.metrics.append(row)
            self.trackers.log(row)

    def _note_warning(self, text: str) -> None:
        """Keep a warning for the model card, without the run folder's path; until the folder is created, here."""
        self._warnings.append(text.replace(f"{self.folder.path}: ", "").replace(f"{self.folder.path}/", ""))
        if self.rank == 0 and self._created:
            for warning in self._warnings:
                self.folder.note_warning(warning)
            self._warnings = []

    # --- prepare --------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Create or reopen the run folder, and lock it."""
        require_trackers(self.tracker_names)
        self.resume = parallel.on_rank_zero(self._open_folder)
        settings = self.recipe.model_dump(mode="json", exclude={"threads", "cache"})
        parallel.demand_same(
            json.dumps(_without_paths(settings), sort_keys=True),
            "the processes have different recipes: start all of them with the same file and options",
        )
        holder = self.folder.path / HOLDER_FILE
        parallel.demand_same(
            holder.read_text(encoding="utf-8") if holder.is_file() else "",
            f"{self.folder.path}: a process does not see the run folder of the first one: `output` must be on a disk "
            "that all machines share",
        )

    def _open_folder(self) -> bool:
        self.open.enter_context(self.folder.held())
        self.folder.check(self.recipe, self.resume)
        check_recipe(self.recipe, text=False)
        inputs = read_inputs(self.recipe)
        self.folder.check_inputs(inputs)
        for corpora in self.recipe.texts:
            self.tables(corpora)
        require_languages(self.recipe, [table.source for tables in self._tables.values() for table in tables])
        self.folder.create(self.recipe, inputs)
        self._created = True
        self._check_text()
        record_downloads(self.recipe, self.folder.path)
        for other in self.reuse:
            if reused := self.folder.reuse(self.recipe, other):
                say(f"reused from {other}: {', '.join(reused)}")
        settings = dict(leaves(self.recipe.model_dump(mode="json")))
        self.trackers = Trackers(self.tracker_names, self.folder.path, self.recipe.name, settings)
        self.open.callback(self.trackers.close)
        return self.resume

    def _check_text(self) -> None:
        """Warn of what is probably wrong with the text."""
        tables = self._parallel_tables
        for table in tables:
            texts = texts_by_language(sampled(table), table.source.corpus.source)
            for line in language_warnings(str(table.about["name"]), texts):
                warn(line)
        graded = [("heldout.graded", read_graded(path)) for path in self.recipe.heldout.graded]
        graded += [("report", read_graded(path, choosing=False)) for path in self.recipe.report]
        if both := set(self.recipe.heldout.graded) & set(self.recipe.report):
            warn(f"report: {', '.join(sorted(both))} also chooses the weights (heldout.graded): report another file")
        for line in [
            *copies_warnings(tables),
            *(warning for use, p in graded for warning in overlap_warnings(p, use, tables)),
        ]:
            warn(line)
        for corpus in dict.fromkeys(self.recipe.all_corpora):
            for line in unread(corpus, [table.source for table in tables if table.source.corpus == corpus]):
                warn(line)

    def _check_vocabulary(self, stage: Stage, text: StageText, model: str, tokenizer: Tokenizer, targets: bool) -> None:
        """Warn of text that a model's vocabulary does not know; refuse it where it is trained and mostly unknown."""
        for table in text.tables if self.rank == 0 else ():
            texts = texts_by_language(sampled(table), table.source.corpus.source)
            if not targets:
                texts = {
                    code: language_texts for code, language_texts in texts.items() if code == table.source.corpus.source
                }
            name = str(table.about["name"])
            for line in vocabulary_warnings(name, texts, tokenizer, model, refuse=model == stage.role):
                if line not in self._warned_lines:  # the next stage trains the same model
                    self._warned_lines.add(line)
                    warn(line)

    # --- text -----------------------------------------------------------------------------------------------------

    @cached_property
    def _excluded(self) -> Exclusion | None:
        """The sentences that the recipe excludes, if any."""
        exclusion = read_exclusion(self.recipe.exclude)
        if exclusion is not None:
            say(f"exclude: {len(exclusion.sentences)} sentences, and rows that are equal or nearly equal to one")
        return exclusion

    def tables(self, corpora: tuple[Corpus, ...]) -> list[SourceTable]:
        """The tables of corpora; files that were not read before are read now."""
        if corpora not in self._tables:
            sources = open_corpora(corpora, self._excluded, self.recipe.languages)
            if any(source.corpus.word_by_word for source in sources):
                sources = translate_sources(sources, self._dictionary)
            self._tables[corpora] = [open_source_table(source, tables_folder(self.recipe)) for source in sources]
            for table in self._tables[corpora]:
                if table.about["dropped"] and self.rank == 0:
                    say("\n".join(reading_lines(table.about)))
        return self._tables[corpora]

    @cached_property
    def heldout(self) -> HeldOut:
        """What is held out of all corpora, in every stage: more of little text."""
        rows: Counter[str] = Counter()
        for table in self._parallel_tables:
            rows[table.source.language] += table.rows
        heldout = self.recipe.heldout.enough(rows)
        if heldout.share > self.recipe.heldout.share:
            say(f"held out: {heldout.share:.1%} of the sentences, for validation in every language")
        return heldout

    @cached_property
    def _parallel_tables(self) -> list[SourceTable]:
        """The tables of all stages. Text that is translated word by word is not held out: the dictionary needs this."""
        plain = (tuple(corpus for corpus in text if not corpus.word_by_word) for text in self.recipe.texts)
        return [table for corpora in plain if corpora for table in self.tables(corpora)]

    @cached_property
    def _untrained(self) -> HeldOutTexts:
        """The texts of the held-out pairs of all stages."""
        return heldout_texts(self._parallel_tables, self.heldout.share)

    @cached_property
    def _dictionary(self) -> PendingDictionary:
        pairs = tuple(corpus for corpus in self.recipe.corpora if not corpus.word_by_word)
        text = StageText(self.tables(pairs) if pairs else [], self.recipe.seed, self.heldout, untrained=self._untrained)

        def learn() -> Dictionary:
            say("dictionary: aligning the words of the recipe's parallel text")
            return learn_dictionary(text.sample_rows(DICTIONARY_PAIRS))

        tables = tuple((table.folder.name, table.source.language) for table in text.tables)
        return PendingDictionary(
            learn, (tables, text.seed, text.heldout.share, self._untrained.digest, DICTIONARY_PAIRS)
        )

    def text(self, plan: StagePlan | None = None) -> StageText:
        """The text of a stage, or of the recipe."""
        source = plan or self.recipe
        balance = "proportional" if plan is None else plan.stage.balance
        tables = self.tables(source.corpora)
        return StageText(tables, self.recipe.seed, self.heldout, balance, source.sample, self._untrained)

    # --- models ---------------------------------------------------------------------------------------------------

    def _create(self, role: str) -> None:
        """Write the model folder that a role starts from, once."""
        folder = self.folder.untrained(role)
        if (folder / "config.json").is_file():
            if (damaged := damaged_file(folder)) is None:
                if not has_hashes(folder):
                    note_hashes(folder)  # the process that wrote it was killed before
                return
            warn(f"{damaged}: damaged; {folder.name} is written again")
            shutil.rmtree(folder)
        if role == "assistant":
            make_assistant(self.recipe, self.text(), folder)
        else:
            if self.recipe.assistant is not None and self.recipe.cut_shape is not None:
                self._create("assistant")
            make_student(self.recipe, self.folder.trained(self.recipe, "assistant"), self.text(), folder)
        note_hashes(folder)

    def _model(self, role: str) -> Path:
        """The model folder of a role after the stages so far."""
        parallel.on_rank_zero(lambda: self._create(role))
        model = self.folder.trained(self.recipe, role)
        if (damaged := parallel.on_rank_zero(lambda: damaged_file(model))) is not None:
            raise MsdcError(f"{damaged}: damaged; remove {model.parent} to train its stage again with `resume`")
        return model

    def load_learner(self, plan: StagePlan) -> Encoder:
        """The model that a stage trains, its module a `Student`, its embedding reset as the stage's `start` asks."""
        stage = plan.stage
        folder = self._model(stage.role)
        learner = load_torch_encoder(folder)
        # A student with stock classes (place: embedding) is trained in the canonical class.
        learner.module = student = to_student(learner)
        torch.manual_seed(self.recipe.seed * 1000 + plan.number)
        if stage.start == "random":
            student.embedding.apply(student._initialise)
        elif stage.start == "svd":
            if self.recipe.cut_shape is None or self.recipe.assistant is None or stage.role != "student":
                warn(f"stage {stage.name}: start: svd has no effect, the learner is not cut from an assistant")
            elif folder != self.folder.untrained("student"):  # the untrained student has just been cut
                assistant = self.folder.trained(self.recipe, "assistant")
                fresh, _ = cut_from_assistant(self.recipe, assistant, self.text())
                embedding = {name: v for name, v in fresh.state_dict().items() if name.startswith("embedding.")}
                student.load_state_dict(student.state_dict() | embedding)
        return learner

    def _open_external(self, name: str) -> CachedTeacher:
        """A teacher without a model folder, which is read once for all stages."""
        if name not in self._external:
            self._external[name] = open_external(name, self.cache)
        return self._external[name]

    def _require_vectors(self) -> None:
        """Demand, before the first stage, that tables of vectors have all texts of their stages."""
        for plan in self.recipe.plans:
            for name in filter(is_table, map(model_name, plan.teachers.values())):
                table = self._open_external(name)
                assert isinstance(table, TableTeacher)
                require_vectors(table, self.text(plan), reads_targets(plan))

    def _load_teacher(self, plan: StagePlan, student: Any) -> Teacher | None:
        """The stage's teacher, or several as one; its outputs include the layers that the stage compares."""
        stage, loaded = plan.stage, dict[CachedTeacher, float]()
        for name, weight in stage.teachers.items():
            if name == "assistant":
                teacher = load_torch_encoder(self._model("assistant"))
            elif is_external(model_name(plan.teachers[name])):
                loaded[self._open_external(model_name(plan.teachers[name]))] = weight
                continue
            else:
                teacher = load_named(plan.teachers[name])
                self._check_vocabulary(
                    stage, self.text(plan), f"the teacher {teacher.name}", teacher.tokenizer, compares_targets(plan)
                )
            layers = tuple(teacher_layer for teacher_layer, _ in layer_pairs(stage, teacher, student))
            teacher.module.to(self.device)
            prompted = stage.teacher_prompts is not None
            loaded[CachedTeacher(teacher, self.cache, stage.max_length, self.precision, layers, prompted)] = weight
        return JoinedTeacher(loaded) if len(loaded) > 1 else next(iter(loaded), None)

    def _fits_head(self, number: int) -> bool:
        """Whether a stage is the first that trains the head of a student whose shape asks for `ridge`."""
        shape, stages = self.recipe.student, self.recipe.stages
        first = next((i for i, stage in enumerate(stages) if stage.train == "student"), None)
        return isinstance(shape, StudentShape) and shape.head == "ridge" and number == first

    def _fit_head(self, learner: Encoder, teacher: Teacher, plan: StagePlan, text: StageText) -> None:
        """Fit the student's head to the teacher's vectors of both sides of some rows."""
        rows = text.sample_rows(max(1, HEAD_TEXTS // max(1, len({table.source.language for table in text.tables}))))
        stage, prompt = plan.stage, learner.defaults.prompt()
        prompts, teacher_prompts = stage.prompts or (prompt, prompt), stage.teacher_prompts or ("", "")
        pairs = [row for row in rows if row.target]
        sources, targets = [row.source for row in rows], [row.target for row in pairs]
        read = with_prompt(prompts[0], sources) + with_prompt(prompts[1], targets)
        # The teacher's vectors of the targets, or of their sources.
        others = (
            with_prompt(teacher_prompts[1], targets)
            if reads_targets(plan)
            else with_prompt(teacher_prompts[0], [row.source for row in pairs])
        )
        teacher_texts = with_prompt(teacher_prompts[0], sources) + others

        def fit() -> tuple[float, dict[str, Any]]:
            share = fit_head(learner, pooled_states(learner, read, self.precision), teacher.vectors(teacher_texts))
            return share, dict(learner.module.state_dict())

        share, state = parallel.on_rank_zero(fit)
        learner.module.load_state_dict(state)
        say(f"head: explains {share:.1%} of the teacher's variance before the first step")

    # --- one stage ------------------------------------------------------------------------------------------------

    def run_stage(self, plan: StagePlan) -> dict[str, float]:
        """Train one stage and return the numbers of its best weights; those of a finished stage are read."""
        recipe, stage, number = self.recipe, plan.stage, plan.number
        folder = self.folder.stage(number, stage)

        def reopen() -> dict[str, float] | None:
            """Numbers of the finished stage; an unfinished one forgets what it logged after its newest checkpoint."""
            if (done := folder.done()) is not None:
                folder.drop_checkpoints()
                self.trackers.skip(self.folder.metrics.last_step(stage.name))
                return done
            checkpoint_file = newest(folder.checkpoints) if self.resume else None
            self.folder.metrics.rewind(stage.name, -1 if checkpoint_file is None else step_of(checkpoint_file))
            return None

        done = parallel.on_rank_zero(reopen)
        if done is not None:
            return done
        text = self.text(plan)
        if self.rank == 0 and (others := text.untrained_rows()):
            say(f"stage {stage.name}: {others:,} rows are not trained: they have a text of a held-out pair")
        parallel.demand_same(
            [table.key for table in text.tables] + [find_objective(use.name).content for use in stage.objective],
            f"stage {stage.name}: the processes read different corpora or objectives; copy equal files to all",
        )
        # Models and task.
        learner = self.load_learner(plan)
        # An error of the first process is one of all.
        parallel.on_rank_zero(lambda: self._check_vocabulary(stage, text, stage.role, learner.tokenizer, True))
        student: Any = learner.module
        teacher = self._load_teacher(plan, student)
        if teacher is not None and self._fits_head(number):
            self._fit_head(learner, teacher, plan, text)
        if stage.quantize is not None:
            rounding.prepare_qat(student, stage.quantize)
        task = make_task(student, stage, teacher, getattr(learner.tokenizer, "unk_id", None)).train()
        task.prepare(text)
        cached = None if isinstance(task, EmbeddingTask) else teacher  # it reads the teacher's embedding layer
        prompts = stage.prompts or (learner.defaults.prompt(), learner.defaults.prompt())
        feed = BatchFeed(
            stage, text, learner.tokenizer, recipe.seed, cached, reads_targets(plan), prompts,
            *parallel.rank_and_world(),
        )  # fmt: skip
        # Another machine may still read its text: a step waits for minutes only.
        parallel.barrier()
        steps = stage.steps
        if steps is None:
            epoch = parallel.on_rank_zero(feed.epoch_batches)
            steps = max(1, round(stage.epochs * epoch))
        if stage.steps is None and self.rank == 0:
            check_warmup(stage, steps)
        # Training.
        validator = Validator(task, text, plan)
        trainer = Trainer(task, feed, validator, folder.checkpoints, steps, self.precision, self.device, self.log)
        # A model that was trained before may be better than what it becomes.
        trainer.start_counts = isinstance(recipe.student, (str, NamedModel)) and stage.start == "keep"
        trainer.limit_seconds = self._stage_seconds(number)
        label = f"stage {number + 1}/{len(recipe.stages)} {stage.name}"
        say(f"{label}: {steps} steps of {_step_size(stage)}, {self.precision}, train {stage.train}")
        truncated, texts = feed.truncated()
        if truncated:
            share = f"{truncated:,} of {texts:,} texts ({100 * truncated / texts:.1f} %)"
            line = f"{share} are cut to the stage's max_length of {stage.max_length} tokens"
            if truncated < MANY_CUT * texts:
                say(f"{label}: {line}")
            elif self.rank == 0:
                warn(f"stage {stage.name}: {line}")
        often = repeated(stage, text.order, [table.about["name"] for table in text.tables], text.languages(), steps)
        for line in [*untrained_parts(stage, text), *often] if self.rank == 0 else ():
            warn(line)
        last = number == len(recipe.stages) - 1
        numbers = trainer.run(self.resume, keep_end=self.extendable and last)
        if last:
            numbers |= parallel.on_rank_zero(validator.teacher_scores)

        def end() -> dict[str, float]:
            """Write the model, then the mark that the stage is finished."""
            trained = student if stage.quantize is None else rounding.convert(student)
            # A model without done.json is from a run that was killed between the two; this one is equal to it.
            defaults = learner.defaults
            if stage.prompts is not None:  # those of the model that it started from are not what it was trained with
                query, passage = stage.prompts
                named = {name: text for name, text in (("query", query), ("passage", passage)) if text}
                defaults = replace(
                    defaults, prompts=named, default_prompt="query" if query and query == passage else None
                )
            save_student(trained.cpu(), learner.tokenizer, folder.model, force=True, defaults=defaults)
            self.log({"stage": stage.name, "done": numbers})
            folder.finish(numbers)
            return numbers

        return parallel.on_rank_zero(end)

    def _stage_seconds(self, number: int) -> float | None:
        """The time that a stage has: of what is left its share by the pairs of all stages from here on."""
        if self._deadline is None:
            return None
        pairs = []
        for plan in self.recipe.plans[number:]:
            stage = plan.stage
            batch = stage.batch if stage.batch_tokens is None else max(1, stage.batch_tokens // TOKENS_OF_PAIR)
            trained = sum(map(len, self.text(plan).training_rows))
            pairs.append(stage.epochs * trained if stage.steps is None else stage.steps * batch)
        return max(0.0, self._deadline - time.monotonic()) * pairs[0] / sum(pairs)

    # --- finish ---------------------------------------------------------------------------------------------------

    def finish(self, results: dict[str, dict[str, float]]) -> RunResult:
        """Write the student's folder with its card, and the numbers of the run."""
        seconds = round(sum(numbers["seconds"] for numbers in results.values()), 1)
        model = self._model("student" if self.recipe.student is not None else "assistant")
        student = self.folder.student

        def write() -> None:
            if student.exists() and self.folder.result_file.is_file():
                return
            encoder = load_torch_encoder(model)
            report = self._report(encoder)
            languages = compare_run(self.recipe, encoder, self.text)
            if not student.exists():
                with staged_folder(student) as stage_folder:
                    shutil.copytree(model, stage_folder, dirs_exist_ok=True)
                    if self.recipe.stock_twin:
                        add_stock_twin(stage_folder)
                    about = [table.about for table in chain.from_iterable(self._tables.values())]
                    card = model_card(self.recipe, encoder, results, seconds, report, about, self.folder.warnings())
                    write_text(stage_folder / "README.md", card + comparison_section(languages))
            result = {"stages": results, "report": report, "seconds": seconds}
            write_json(self.folder.result_file, result | ({"languages": languages} if languages else {}))

        parallel.on_rank_zero(write)
        if self.rank == 0:
            tables = {table.key: table for corpus_tables in self._tables.values() for table in corpus_tables}
            say(
                "\n".join(
                    ["text of this run:", *chain.from_iterable(reading_lines(table.about) for table in tables.values())]
                )
            )
        assistant = self.folder.trained(self.recipe, "assistant")
        return RunResult(self.folder.path, student, assistant if assistant.is_dir() else None, results, seconds)

    def _report(self, encoder: Encoder) -> dict[str, float]:
        """Spearman x 100 of the finished student on the files of `report`, which are first read here."""
        numbers = {}
        for graded in (read_graded(path, choosing=False) for path in self.recipe.report):
            cosines = cosine_rows(encoder.encode(graded.first), encoder.encode(graded.second))
            numbers[graded.name] = spearman(cosines, graded.gold_N)
        if numbers:
            self.folder.metrics.replace(lambda row: "report" in row, [{"report": numbers}])
        return numbers
