"""The training loop of a stage: steps, validation, choice of the best weights, checkpoints. Resumed runs are exact.

Shapes: B pairs, T tokens.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from msdc.distill.data.batches import Batch, BatchFeed, Position
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import Task
from msdc.distill.training import parallel
from msdc.distill.training.checkpoint import (
    checkpoints,
    load_checkpoint,
    random_states,
    restore_random_states,
    save_checkpoint,
)
from msdc.distill.training.optimization import Schedule, make_optimizers
from msdc.distill.training.progress import StageProgress
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import MsdcError
from msdc.files import atomic_path, disk_errors
from msdc.machine import peak_mib
from msdc.progress import say

CHECKPOINT_SECONDS = 120.0


def shares(sums: dict[str, float]) -> dict[str, float]:
    """Each number over their total, rounded to six digits; empty where the total is 0."""
    total = sum(sums.values())
    return {name: round(value / total, 6) for name, value in sums.items()} if total else {}


@dataclass
class Trainer:
    """Trains one stage. `run` returns the numbers of the chosen weights; the student then holds them.

    Attributes:
        task: student and objectives.
        stage: the settings.
        feed: the batches.
        validate: numbers of an encoder by name; weights are chosen by the largest `choice`.
        folder: of the checkpoints.
        steps: optimizer steps of the stage.
        keep_end: write the state at the last step too (end.pt), so that the stage can be extended.
    """

    task: Task
    stage: Stage
    feed: BatchFeed
    validate: Callable[[Encoder], dict[str, float]]
    folder: Path
    steps: int
    precision: str = "float32"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoint_seconds: float = field(default_factory=lambda: CHECKPOINT_SECONDS)
    history: list[dict[str, Any]] = field(default_factory=list)
    keep_end: bool = False

    def __post_init__(self) -> None:
        warmup = max(1, round(self.steps * self.stage.warmup_ratio))
        if self.stage.warmup_steps is not None:
            warmup = max(1, self.stage.warmup_steps)
        self.schedule = Schedule(self.steps, warmup, self.stage.schedule)
        self.best: tuple[float, int, dict[str, float]] | None = None
        self.rank, self.world = parallel.rank_and_world()
        self.task.to(self.device)
        self.model = parallel.wrap(self.task)
        self._freeze()
        self.optimizers = make_optimizers(self.task, self.stage)
        self.average: dict[str, Tensor] | None = None
        if self.stage.average is not None:
            self.average = {name: p.detach().clone() for name, p in self._trained()}
        # What the stage starts from; a resumed one is given the same model before its checkpoint is read.
        self.start = {name: p.detach().clone() for name, p in self._trained()} if self.stage.start_share else None
        self._sums: dict[str, list[float]] = {}
        # Weighted size of each part of the loss, summed over the steps of the stage, and since the last row of metrics.
        self._parts: dict[str, float] = {}
        self._recent: dict[str, float] = {}
        self._losses: list[float] = []
        self.seconds = 0.0
        # Four times per stage by default; always at the end.
        self.evaluate_every = self.stage.evaluate_every or max(1, math.ceil(self.steps / 4))

    def _freeze(self) -> None:
        only_embedding = self.stage.train == "student.embedding"
        for name, parameter in self.task.student.named_parameters():
            frozen = any(name.startswith(prefix) for prefix in self.stage.freeze)
            parameter.requires_grad_(
                not frozen and (not only_embedding or name.startswith(("embedding.", "body.embeddings.")))
            )
        if not any(p.requires_grad for p in self.task.parameters()):
            raise MsdcError(f"stage {self.stage.name}: everything is frozen, there is nothing to train")

    def _trained(self) -> list[tuple[str, nn.Parameter]]:
        return [(name, p) for name, p in self.task.named_parameters() if p.requires_grad]

    @property
    def position(self) -> Position:
        """Where in the text the stage is."""
        return self.feed.position

    def _local(self, batch: Batch) -> Batch:
        """This process' rows, on its device."""
        rows = parallel.share(len(batch))

        def side(pair: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor] | None:
            return None if pair is None else (pair[0][rows].to(self.device), pair[1][rows].to(self.device))

        def vectors(value: Tensor | None) -> Tensor | None:
            return None if value is None else value[rows].to(self.device)

        source = side(batch.source)
        assert source is not None
        return Batch(
            batch.rows[rows], source, side(batch.target), side(batch.third),
            vectors(batch.guide_source_BD), vectors(batch.guide_target_BD), vectors(batch.guide_states_BLH),
        )  # fmt: skip

    def _rate(self) -> float:
        factor = self.schedule.factor(self.position.step)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * factor
        return factor * self.stage.learning_rate

    def _step(self, batch: Batch) -> dict[str, float]:
        # Which steps train the source side follows from the step's number, so a resumed run agrees.
        share = self.stage.source_share
        teach_source = math.floor((self.position.step + 1) * share) > math.floor(self.position.step * share)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            result = self.model(self._local(batch), teach_source)
        loss = result["loss"]
        if not torch.isfinite(loss):
            raise MsdcError(
                f"stage {self.stage.name}, step {self.position.step}, epoch {self.position.epoch}: the loss is "
                f"{loss.item()}; first sentence of the batch: {batch.rows[0].source[:60]!r}. "
                f"Lower learning_rate (now {self.stage.learning_rate}) or look at the corpus; "
                f"--resume continues from the last checkpoint"
            )
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for _, p in self._trained() if p.grad is not None], self.stage.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        self.task.after_step()
        if self.average is not None and self.stage.average is not None:
            # The usual warm-up of an average: at first it follows quickly.
            decay = min(self.stage.average, (1 + self.position.step) / (10 + self.position.step))
            for name, parameter in self._trained():
                self.average[name].lerp_(parameter.detach(), 1.0 - decay)
        self.position.step += 1
        return {name: float(value.detach()) for name, value in result.items()}

    def run(self, resume: bool = False, log: Callable[[dict[str, Any]], None] = lambda row: None) -> dict[str, float]:
        """Train to the end of the stage; each row of numbers goes to `log`.

        Raises:
            MsdcError: the loss is not finite, a checkpoint is damaged, or the disk is full.
        """
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        if resume and (found := checkpoints(self.folder)):
            self._restore(load_checkpoint(found[0]))
            say(f"{self.stage.name}: resumed at step {self.position.step} of {self.steps}")
        # A run killed between its last checkpoint and the end of the stage had decided to stop: it stays stopped.
        if self.position.step < self.steps and not self._stopped():
            with StageProgress(self.stage.name, self.steps, enabled=self.rank == 0) as progress:
                self.feed.stream.on_rows = progress.reading
                self._loop(log, progress)
        if self.keep_end:
            self._save("end")
        cost = self._cost(self.seconds, self.position.step)
        assert self.best is not None
        self._take(load_file(self._best_path()))
        return {"step": float(self.best[1]), **self.best[2], **self.loss_shares(), **cost}

    def _cost(self, seconds: float, steps: int) -> dict[str, float]:
        """What Mao et al. 2021 state of their models: minutes per 10,000 steps (validation included), and peak memory.

        Memory is that of the process so far, with guide and text, or on a GPU what its tensors have held.
        """
        peak = torch.cuda.max_memory_allocated(self.device) / 2**20 if self.device.type == "cuda" else peak_mib()
        minutes = {"minutes_per_10000_steps": round(10_000 * seconds / steps / 60, 2)} if steps else {}
        return minutes | {"peak_mib": round(peak, 1)}

    def loss_shares(self) -> dict[str, float]:
        """Share of each objective in the loss of the steps so far, `share_NAME`."""
        return {f"share_{name}": value for name, value in shares(self._parts).items()}

    def _loop(self, log: Callable[[dict[str, Any]], None], progress: StageProgress) -> None:
        saved = time.monotonic()
        started = saved - self.seconds
        stop = False
        for batch in self.feed.batches():
            epoch = self.position.epoch
            rate = self._rate()
            parts = self._step(batch)
            self._losses.append(parts["loss"])
            self._by_language(batch, parts["loss"])
            for sums in (self._recent, self._parts):
                for name, value in parts.items():
                    if name != "loss":
                        sums[name] = sums.get(name, 0.0) + abs(self.task.weights.get(name, 1.0) * value)
            at = self.position.step
            sides = 1 + (batch.target is not None) + (batch.third is not None)
            weighted = {
                name: self.task.weights.get(name, 1.0) * value for name, value in parts.items() if name != "loss"
            }
            progress.step(at, parts["loss"], rate, sides * len(batch), weighted)
            if at % max(1, self.steps // 100) == 0 or at == self.steps:
                self.seconds = time.monotonic() - started
                row = {
                    **{"stage": self.stage.name, "step": at, "epoch": epoch},
                    **{
                        "seconds": round(self.seconds, 6),
                        "steps_per_second": round(at / max(self.seconds, 1e-9), 3),
                    },
                    "learning_rate": rate,
                    **parts,
                    "loss": float(np.mean(self._losses)),
                    "shares": shares(self._recent),
                }
                self._losses, self._recent = [], {}
                log(row)
            if at % self.evaluate_every == 0 or at >= self.steps:
                progress.validating()
                stop = self._validate(log, epoch)
            if (
                time.monotonic() - saved > self.checkpoint_seconds or at % self.evaluate_every == 0
            ) and at < self.steps:
                self.seconds = time.monotonic() - started
                self._save()
                saved = time.monotonic()
            if stop or at >= self.steps:
                break
        self.seconds = time.monotonic() - started

    def _by_language(self, batch: Batch, loss: float) -> None:
        for code in set(batch.languages):
            sums = self._sums.setdefault(code, [0.0, 0.0])
            share = batch.languages.count(code)
            sums[0] += loss * share
            sums[1] += share

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.task.student.state_dict().items()}

    def _take(self, weights: dict[str, Tensor]) -> None:
        self.task.student.load_state_dict(weights)

    def _to_keep(self) -> dict[str, Tensor]:
        """Trained weights of the student as they are kept: their average, and so far back to the start as asked.

        Source of the way back: Wortsman et al. 2022 (WiSE-FT).
        """
        end = self.average or {name: p.detach() for name, p in self._trained()}
        if self.start is not None:
            end = {name: value.lerp(self.start[name], self.stage.start_share) for name, value in end.items()}
        return {name.removeprefix("student."): v for name, v in end.items() if name.startswith("student.")}

    def _best_path(self) -> Path:
        return self.folder / "best.safetensors"

    def _validate(self, log: Callable[[dict[str, Any]], None], epoch: int) -> bool:
        """Score the student as it would be kept, keep the best weights; whether to stop early."""
        kept = None
        if self.average is not None or self.start is not None:
            kept = self._weights()
            self.task.student.load_state_dict({**kept, **self._to_keep()})
        defaults = EncodeDefaults({"": self.feed.prompt}, "")
        stage = self.stage
        encoder = Encoder(self.task.student, self.feed.tokenizer, stage.max_length, stage.name, defaults=defaults)
        state = random_states()
        numbers = self.validate(encoder)
        restore_random_states(state)
        self.task.train()
        by_language = {f"loss_{code}": s / n for code, (s, n) in sorted(self._sums.items()) if n}
        self._sums = {}
        log(
            {"stage": self.stage.name, "step": self.position.step, "epoch": epoch, "evaluation": numbers, **by_language}
        )
        self.history.append({"step": self.position.step, "epoch": epoch, **numbers})
        choice = numbers["choice"]
        if self.best is None or choice > self.best[0]:
            self.best = (choice, self.position.step, numbers)
            if self.rank == 0:
                with atomic_path(self._best_path()) as temporary:
                    save_file({k: v.contiguous().cpu() for k, v in self._weights().items()}, str(temporary))
            parallel.barrier()
        if kept is not None:
            self._take(kept)
        return self._stopped()

    def _stopped(self) -> bool:
        """Whether the validations so far end the stage early; asked again after a resume, so from the state."""
        if self.stage.patience is None or self.best is None or not self.history:
            return False
        return (
            self.history[-1]["epoch"] - next(h["epoch"] for h in self.history if h["step"] == self.best[1])
            >= self.stage.patience
        )

    def _save(self, name: str | None = None) -> None:
        if self.rank:
            return
        save_checkpoint(
            self.folder,
            self.position.step,
            {
                "task": {name: value.detach().clone() for name, value in self.task.state_dict().items()},
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "position": self.position.as_list(),
                "random": random_states(),
                "average": self.average,
                "best": None if self.best is None else json.dumps(self.best),
                "history": json.dumps(self.history),
                "sums": json.dumps(self._sums),
                "parts": json.dumps(self._parts),
                "row": json.dumps([self._losses, self._recent, self.seconds]),
            },
            name,
        )

    def _restore(self, state: dict[str, Any]) -> None:
        try:
            self.task.load_state_dict(state["task"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (RuntimeError, ValueError, KeyError) as error:
            first = str(error).splitlines()[0]
            raise MsdcError(f"stage {self.stage.name}: the checkpoint belongs to another recipe ({first})") from error
        self.feed.position = Position(*state["position"])
        self.average = state["average"]
        self.best = None if state["best"] is None else tuple(json.loads(state["best"]))  # type: ignore[assignment]
        self.history = json.loads(state["history"])
        self._sums = json.loads(state["sums"])
        # Checkpoints of earlier versions do not have it.
        self._parts = json.loads(state.get("parts", "{}"))
        self._losses, self._recent, self.seconds = json.loads(state.get("row", "[[], {}, 0.0]"))
        restore_random_states(state["random"])
