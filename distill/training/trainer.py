"""The training loop of a stage: steps, validation, choice of the best weights, checkpoints. Resumed runs are exact.

Shapes: B pairs, T tokens.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from msdc.distill import parallel
from msdc.distill.data import Batch
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import TrainingTask
from msdc.distill.training import checkpoint
from msdc.distill.training.checkpoint import TrainState
from msdc.distill.training.feed import BatchFeed, Position
from msdc.distill.training.progress import StageProgress
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path, disk_errors
from msdc.machine import peak_mib
from msdc.progress import say, warn

CHECKPOINT_SECONDS = 120.0
UNREAD = 16  # steps on a GPU whose numbers are read together


def loss_shares(sums: dict[str, float]) -> dict[str, float]:
    """Each number divided by their total, rounded to six digits; empty if the total is 0."""
    total = sum(sums.values())
    return {name: round(value / total, 6) for name, value in sums.items()} if total else {}


def rate_factor(stage: Stage, steps: int, step: float) -> float:
    """Multiplier of the learning rate at `step` (0-based) of `steps`: linear warm-up, then the stage's schedule.

    A stage with a limit of time is at the step that its share of the time gives, if that is further.
    """
    warmup = max(1, round(steps * stage.warmup_ratio) if stage.warmup_steps is None else stage.warmup_steps)
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    if stage.schedule == "constant":
        return 1.0
    if stage.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
    return max(0.0, 1.0 - progress)


def check_warmup(stage: Stage, steps: int) -> None:
    """Warn of a warm-up that does not end within the `steps` of the stage."""
    if (stage.warmup_steps or 0) >= steps:
        most = rate_factor(stage, steps, steps - 1) * stage.learning_rate
        warn(
            f"stage {stage.name}: the warm-up never ends: warmup_steps is {stage.warmup_steps}, the stage has {steps} "
            f"steps; the learning rate reaches {most:.3g} of {stage.learning_rate:g}"
        )


def check_frozen(stage: Stage, names: Sequence[str]) -> None:
    """Refuse entries of `freeze` that no parameter's name begins with."""
    groups = dict.fromkeys(".".join(name.split(".")[: 2 if name.startswith("layers.") else 1]) for name in names)
    for prefix in stage.freeze:
        if not any(name.startswith(prefix) for name in names):
            raise InputError(
                f"stage {stage.name}: freeze: no parameter's name begins with {prefix!r}; they begin with "
                f"{', '.join(groups)}"
            )


def freeze(task: TrainingTask) -> None:
    """Freeze the parameters of the student that the stage does not train."""
    stage = task.stage
    only_embedding = stage.train == "student.embedding"
    check_frozen(stage, [name for name, _ in task.student.named_parameters()])
    for name, parameter in task.student.named_parameters():
        frozen = any(name.startswith(prefix) for prefix in stage.freeze)
        inside = not only_embedding or name.startswith(("embedding.", "body.embeddings."))
        parameter.requires_grad_(not frozen and inside)
    if not any(p.requires_grad for p in task.parameters()):
        raise MsdcError(f"stage {stage.name}: everything is frozen, there is nothing to train")


def make_optimizer(task: TrainingTask) -> torch.optim.Optimizer:
    """Fused AdamW without decay of biases, norms, the table and its code; table and code have their own learning rates.

    Gradients are dense, for tables of any size. SparseAdam would update only the rows of the batch, which is another
    optimizer (moments of the other rows do not decay), and its gradients cannot be part of the clipped norm.
    """
    student, stage = task.student, task.stage
    embedding = getattr(student, "embedding", None)
    table = (student.body.get_input_embeddings() if embedding is None else embedding.table).weight
    # Under quantization-aware training the attribute `weight` of a coded table's code is a rounded copy.
    code = getattr(embedding, "code", None)
    if code is None and stage.code_learning_rate is not None and parallel.rank_and_world()[0] == 0:
        warn(f"stage {stage.name}: code_learning_rate has no effect: the table is not coded")
    weight = None if code is None else code._parameters["weight"]
    decay: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in task.named_parameters():
        if parameter.requires_grad and parameter is not table and parameter is not weight:
            (plain if parameter.dim() < 2 or "norm" in name.lower() else decay).append(parameter)
    rate = stage.learning_rate
    groups = [
        (decay, rate, stage.weight_decay),
        (plain, rate, 0.0),
        ([p for p in (table,) if p.requires_grad], stage.table_learning_rate or rate, 0.0),
        ([p for p in (weight,) if p is not None and p.requires_grad], stage.code_learning_rate or rate, 0.0),
    ]
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": lr, "base": lr, "weight_decay": wd}
            for parameters, lr, wd in groups
            if parameters
        ],
        fused=True,
    )


@dataclass
class _Step:
    """A step that was taken: its number from 1, batch, learning rate, names and values of the loss and its parts.

    `parts` are the values once they were read.
    """

    number: int
    batch: Batch
    rate: float
    names: list[str]
    values: Tensor
    parts: dict[str, float] = field(default_factory=dict)


class Trainer:
    """Trains one stage, `task.stage`, for `steps` in all. `run` returns the numbers of the best weights.

    The student then has them: those whose score by `validate` has the largest `choice`. `folder` is that of the
    checkpoints, `precision` (float32 or bfloat16) that of the forward pass; `log` receives each row of metrics.

    With `start_counts` the weights at the start are validated too, and kept unless later ones are as good. With
    `limit_seconds` the stage ends in good order after this time, its schedule with it.
    """

    start_counts = False
    limit_seconds: float | None = None

    def __init__(
        self,
        task: TrainingTask,
        feed: BatchFeed,
        validate: Callable[[Encoder], dict[str, float]],
        folder: Path,
        steps: int,
        precision: str,
        device: torch.device,
        log: Callable[[dict[str, Any]], None],
    ) -> None:
        self.task, self.stage, self.feed, self.validate = task, task.stage, feed, validate
        self.folder, self.steps, self.precision, self.device, self.log = folder, steps, precision, device, log
        self._best_path = folder / checkpoint.BEST
        self.rank, _ = parallel.rank_and_world()
        task.to(self.device)
        freeze(task)
        self.model = parallel.wrap(task, task.partial)
        self.state = TrainState(task, make_optimizer(task), feed)
        self._waiting: list[_Step] = []
        self._began = (0.0, 0.0)  # time, and share of the steps, of this session
        # The weights that the stage starts from; a resumed stage loads the same model before its checkpoint.
        self.start = {name: p.detach().clone() for name, p in self._trained()} if self.stage.start_share else None
        # Four times per stage by default; always at the end.
        self.evaluate_every = self.stage.evaluate_every or max(1, math.ceil(steps / 4))

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.task.named_parameters() if p.requires_grad]

    @property
    def position(self) -> Position:
        """Where in the text the stage is."""
        return self.feed.position

    def run(self, resume: bool = False, keep_end: bool = False) -> dict[str, float]:
        """Train to the end of the stage; `keep_end` saves the state of the last step, so that it can be extended."""
        state = self.state
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if resume and (saved := parallel.on_rank_zero(lambda: checkpoint.load_newest(self.folder))) is not None:
            state.restore(saved)
            say(f"{self.stage.name}: resumed at step {self.position.step} of {self.steps}")
        self._began = time.monotonic(), min(1.0, self.position.step / self.steps)
        if self.rank > 0:
            # Dropout of its own; what tasks draw for the whole batch has the batch's seed.
            torch.manual_seed(self._seed(self.rank))
        if self.start_counts and not state.history:
            self._validate()
        if self.position.step > self.steps:
            say(
                f"{self.stage.name}: it has taken {self.position.step} steps, more than its {self.steps}, and ends here"
            )
            if state.best is None:
                self._validate()
        # A run that was killed after its decision to stop early stays stopped.
        if self.position.step < self.steps and not self._stopped():
            with StageProgress(self.stage.name, self.steps, enabled=self.rank == 0) as progress:
                self._loop(progress)
        if self._is_over():
            say(f"{self.stage.name}: ends after {self.position.step} of {self.steps} steps: its time (`hours`) is over")
        elif self.position.step < self.steps:
            assert state.best is not None
            best, patience = state.best[1], self.stage.patience
            say(f"{self.stage.name}: stopped early, no gain since step {best} (patience {patience})")
        assert state.best is not None
        if state.best[1] == 0 and self.rank == 0:
            warn(f"{self.stage.name}: no validation is as good as at the start, whose weights are kept")
        choices = {entry["choice"] for entry in state.history}
        if len(choices) == 1 < len(state.history) and self.rank == 0:
            warn(f"{self.stage.name}: all {len(state.history)} validations score the same: the last weights are kept")
        if keep_end:
            self._save("end")
        # As Mao et al. 2021 report: minutes per 10,000 steps (validation included) and peak memory: of the process with
        # teacher and text, or on a GPU of its tensors.
        peak = torch.cuda.max_memory_allocated(self.device) / 2**20 if self.device.type == "cuda" else peak_mib()
        cost = {"peak_mib": round(peak, 1)}
        if self.position.step:
            cost["minutes_per_10000_steps"] = round(10_000 * state.seconds / self.position.step / 60, 2)
        assert state.best is not None
        self.task.student.load_state_dict(parallel.on_rank_zero(self._best_weights))
        parts = {f"share_{name}": value for name, value in loss_shares(state.parts).items()}
        taken = {"steps_taken": float(self.position.step)} if self._is_over() else {}
        numbers = {"step": float(state.best[1]), **taken, **state.best[2], **parts, **cost}
        return {**numbers, "seconds": round(state.seconds, 1)}

    def _best_weights(self) -> dict[str, Tensor]:
        try:
            return load_file(self._best_path)
        except (OSError, SafetensorError) as error:
            raise MsdcError(
                f"{self._best_path}: damaged ({error}); `resume` continues from the newest checkpoint that is whole"
            ) from error

    # --- steps ----------------------------------------------------------------------------------------------------

    def _loop(self, progress: StageProgress) -> None:
        state, stage = self.state, self.stage
        saved = time.monotonic()
        started = saved - state.seconds
        batches = self.feed.batches()
        log_every = max(1, self.steps // 100)
        stop = at_end = False
        while not stop and not at_end and self.position.step < self.steps:
            self._waiting.append(self._step(next(batches)))
            step = self.position.step
            at_end = step >= self.steps or self._is_over()
            logs, validates = step % log_every == 0 or at_end, step % self.evaluate_every == 0 or at_end
            state.seconds = time.monotonic() - started
            # A step's numbers are on the device until they are read, which waits for it.
            if self.device.type != "cpu" and len(self._waiting) < UNREAD and not logs and not validates:
                continue
            last = self._read(progress)
            if logs:
                self.log({
                    "stage": stage.name, "step": step, "epoch": self.position.epoch, "seconds": round(state.seconds, 6),
                    "steps_per_second": round(step / max(state.seconds, 1e-9), 3), "learning_rate": last.rate,
                    **last.parts, "loss": float(np.mean(state.losses)), "shares": loss_shares(state.recent),
                })  # fmt: skip
                state.losses, state.recent = [], {}
            if validates:
                stop = self._validate()
            state.seconds = time.monotonic() - started
            if not at_end and (validates or time.monotonic() - saved > CHECKPOINT_SECONDS):
                self._save()
                saved = time.monotonic()
        batches.close()
        state.seconds = time.monotonic() - started

    def _progress(self) -> float:
        """The share of the stage that is done by its limit of time, equal in all processes; 0 without a limit."""
        if self.limit_seconds is None:
            return 0.0
        began, before = self._began
        passed = parallel.on_rank_zero(lambda: (time.monotonic() - began) / max(self.limit_seconds or 0.0, 1e-9))
        return before + (1.0 - before) * min(1.0, passed)

    def _is_over(self) -> bool:
        """Whether the limit of time ends the stage before its last step."""
        return self.limit_seconds is not None and self.position.step < self.steps and self._progress() >= 1.0

    def _set_rate(self) -> float:
        step = max(float(self.position.step), self._progress() * self.steps)
        factor = rate_factor(self.stage, self.steps, step)
        for group in self.state.optimizer.param_groups:
            group["lr"] = group["base"] * factor
        return factor * self.stage.learning_rate

    def _step(self, batch: Batch) -> _Step:
        """One update by the gradient of a batch."""
        rate = self._set_rate()
        # Which steps train the source side follows from the step's number: a resumed run agrees.
        step, stage = self.position.step, self.stage
        train_source = math.floor((step + 1) * stage.source_share) > math.floor(step * stage.source_share)
        self.state.optimizer.zero_grad(set_to_none=True)
        local = self._local(batch, self._seed(0))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            result = self.model(local, train_source)
        result["loss"].backward()
        self.task.after_backward()
        torch.nn.utils.clip_grad_norm_([p for _, p in self._trained() if p.grad is not None], stage.clip)
        self.state.optimizer.step()
        self.position.step += 1
        values = torch.stack([value.detach() for value in result.values()])
        return _Step(self.position.step, batch, rate, list(result), values)

    def _seed(self, *numbers: int) -> int:
        """A seed of the next step, by `numbers`, with any number of processes."""
        return int(np.random.SeedSequence([self.feed.seed, self.position.step, *numbers]).generate_state(1)[0])

    def _local(self, batch: Batch, seed: int) -> Batch:
        """The batch on the device of this process."""
        cuda = self.device.type == "cuda"

        def to_device(value: Any) -> Any:
            """A tensor, a pair of ids and mask, or another value."""
            if isinstance(value, tuple):
                return tuple(map(to_device, value))
            if isinstance(value, Tensor):
                # From pinned memory the copy need not be waited for.
                return (value.pin_memory() if cuda else value).to(self.device, non_blocking=True)
            return value

        fields = {name: to_device(value) for name, value in vars(batch).items() if name not in ("global_size", "seed")}
        return Batch(**fields, global_size=batch.global_size, seed=seed)

    def _read(self, progress: StageProgress) -> _Step:
        """Read the numbers of the steps since the last time, and add them to the sums for metrics."""
        state, weights = self.state, self.task.weights
        # A mean over the rows of one process is not that of the batch.
        values = iter(parallel.average(torch.cat([step.values for step in self._waiting])).tolist())
        for step in self._waiting:
            step.parts = dict(zip(step.names, values, strict=False))
            loss, batch = step.parts["loss"], step.batch
            if not math.isfinite(loss):
                texts = [row.source[:60] for row in batch.read()] or [""]
                raise self._diverged(step.number, f"the loss is {loss}; first sentence of the batch: {texts[0]!r}")
            weighted = {name: weights.get(name, 1.0) * value for name, value in step.parts.items() if name != "loss"}
            state.losses.append(loss)
            for name, value in weighted.items():
                for sums in (state.recent, state.parts):
                    sums[name] = sums.get(name, 0.0) + abs(value)
            for code, rows in Counter(batch.languages).items():
                total, count = state.by_language.get(code, (0.0, 0.0))
                state.by_language[code] = [total + loss * rows, count + rows]
            sides = 1 + (batch.target is not None) + (0 if batch.negatives is None else batch.negatives[0].shape[1])
            progress.step(step.number, loss, step.rate, sides * len(batch), weighted)
        last = self._waiting[-1]
        self._waiting = []
        return last

    def _diverged(self, step: int, why: str) -> MsdcError:
        """The error of weights that are no numbers, or whose loss is none, at `step`; their checkpoints are removed."""
        if self.rank == 0:
            for path in checkpoint.checkpoints(self.folder):
                if checkpoint.step_of(path) >= step - 1:
                    checkpoint.remove(path)
        remaining = checkpoint.checkpoints(self.folder)
        start = f"from step {checkpoint.step_of(remaining[0])}" if remaining else "from the start of the stage"
        return MsdcError(
            f"stage {self.stage.name}, step {step - 1}, epoch {self.position.epoch}: {why}. Lower learning_rate (now "
            f"{self.stage.learning_rate}) or check the corpus; `resume` continues {start}"
        )

    # --- validation and checkpoints -------------------------------------------------------------------------------

    def _to_keep(self) -> dict[str, Tensor]:
        """Trained weights of the student as they are kept: interpolated toward the start.

        Source of the interpolation by `start_share`: Wortsman et al. 2022 (WiSE-FT).
        """
        end = {name: p.detach() for name, p in self._trained()}
        if self.start is not None:
            end = {name: value.lerp(self.start[name], self.stage.start_share) for name, value in end.items()}
        return {name.removeprefix("student."): v for name, v in end.items() if name.startswith("student.")}

    def _validate(self) -> bool:
        """Score the student as it would be kept, and keep the best weights; returns whether to stop early."""
        state = self.state
        # Otherwise the encoder would say that the model is damaged.
        if not all(bool(value.isfinite().all()) for _, value in self._trained()):
            raise self._diverged(self.position.step + 1, "weights are not finite")
        # One process decides: numbers of several differ in their last bits.
        numbers = parallel.on_rank_zero(self._score)
        by_language = {f"loss_{code}": s / n for code, (s, n) in sorted(state.by_language.items()) if n}
        state.by_language = {}
        progress = {"step": self.position.step, "epoch": self.position.epoch}
        self.log({"stage": self.stage.name, **progress, "evaluation": numbers, **by_language})
        state.history.append({**progress, **numbers})
        if self._is_best(numbers):
            state.best = (numbers["choice"], self.position.step, numbers)
        return self._stopped()

    def _is_best(self, numbers: dict[str, float]) -> bool:
        # Of equal scores the last: one that cannot decide, as without held-out pairs, keeps the trained weights. A
        # score that is no number is never better than one that is.
        best = self.state.best
        return best is None or math.isnan(best[0]) or numbers["choice"] >= best[0]

    def _score(self) -> dict[str, float]:
        """Numbers of the student as it would be kept; its weights are written if they are the best so far."""
        stage, student = self.stage, self.task.student
        trained = None
        if self.start is not None:
            trained = {name: value.detach().clone() for name, value in student.state_dict().items()}
            student.load_state_dict({**trained, **self._to_keep()})
        defaults = EncodeDefaults({"": self.feed.prompts[0]}, "")
        drawn = checkpoint.random_states()
        numbers = self.validate(Encoder(student, self.feed.tokenizer, stage.max_length, stage.name, defaults=defaults))
        checkpoint.restore_random_states(drawn)
        self.task.train()
        if self._is_best(numbers):
            weights = {name: value.detach().clone().cpu() for name, value in student.state_dict().items()}
            with atomic_path(self._best_path) as temporary:
                save_file({name: value.contiguous() for name, value in weights.items()}, str(temporary))
        if trained is not None:
            student.load_state_dict(trained)
        return numbers

    def _stopped(self) -> bool:
        """Whether the validations so far end the stage early; a resumed stage finds the same in its state."""
        best, history = self.state.best, self.state.history
        if self.stage.patience is None or best is None or not history:
            return False
        first = next(number for number, entry in enumerate(history) if entry["choice"] >= best[0])
        if self.stage.steps is not None:
            return len(history) - 1 - first >= self.stage.patience
        return bool(history[-1]["epoch"] - history[first]["epoch"] >= self.stage.patience)

    def _save(self, kind: str = "step") -> None:
        # Weights that are not numbers have no loss: the next step says so.
        if self.rank == 0 and checkpoint.is_finite(saved := self.state.as_saved()):
            checkpoint.save_checkpoint(self.folder, self.position.step, saved, kind)
