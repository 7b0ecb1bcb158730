"""What the processes of tests/distill do that train, or compute a teacher's outputs, together.

A module of its own, because a process that does not inherit the memory of the tests imports it by name. The optimizer
is plain SGD without clipping (Adam and clipping hide a wrong factor of the gradient), in float64.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny_models
import torch
import torch.distributed as dist

from msdc.compress.student.model import Student, StudentConfig
from msdc.distill import parallel
from msdc.distill.data import Batch, Row
from msdc.distill.recipe import Stage
from msdc.distill.tasks import make_task
from msdc.distill.tasks.hidden_states import HiddenStatesTask, layer_pairs
from msdc.distill.tasks.sentence import TrainingTask
from msdc.distill.teacher import CachedTeacher
from msdc.distill.training import trainer
from msdc.distill.training.feed import Position
from msdc.errors import InputError, MsdcError
from msdc.loading import load_encoder
from msdc.text.tokenizer import pad, text_key

SIZES = (7, 5, 1, 6)  # pairs of each batch: with four processes some have no rows
BANK = {"options": {"bank": 9}}
MANY = [f"{name} and the number {number}" for number, name in enumerate(["one", "two", "three"] * 4)]
STAGES = {
    "mse": {"objective": ["multilingual_mse", "multilingual_contrastive"], "source_share": 0.5},
    "contrast": {"objective": ["contrastive_cross_entropy"], "source_share": 0.5},  # the map has no gradient in a step
    "bank": {"objective": [{"name": "contrastive_distillation", **BANK}, {"name": "similarity_distillation", **BANK}]},
    "kd": {"objective": ["kd", {"name": "similarity_distillation", **BANK}]},
    "search": {"objective": ["guided_contrastive", "margin_mse", "listwise_kl", "supervised_contrastive"],
               "dimensions": [4, 8], "mini_batch": 2, "mined_negatives": 2},
    "relations": {"objective": ["relational_distance", "relational_angle"]},
    "states": {"objective": ["pkd"]},
    "domains": {"objective": ["metakd"]},
    "embedding": {"objective": ["embedding_alignment"], "train": "student.embedding"},
    "pooled": {"objective": [{"name": "embedding_alignment", "options": {"pooled": True}}],
               "train": "student.embedding"},
    "classes": {"objective": ["softmax_classification"]},
    "scores": {"objective": ["cosine_regression", "domain_adversarial"]},
    "one mask": {"objective": ["unified_generative", "smlm", "sentence_alignment", "sentence_similarity"]},
    "many masks": {"objective": ["mlm", "xtr"]},
    "coded": {"objective": ["multilingual_mse"]},  # it has an int16 buffer
}  # fmt: skip


class Feed:
    """The batches of `SIZES`, over and over: every process has its rows of them."""

    def __init__(self, width: int, states: tuple[int, int]) -> None:
        self.seed, self.position, self.tokenizer, self.prompts = 3, Position(), tiny_models.tokenizer(), ("", "")
        self.stream, self.width, self.states = SimpleNamespace(), width, states

    def batches(self):
        while True:
            number = self.position.batch
            self.position.batch += 1
            yield self.batch(number)

    def batch(self, number: int) -> Batch:
        size, rng = SIZES[number % len(SIZES)], np.random.default_rng(number)

        def side(count):
            return pad([[2, *rng.integers(4, 60, int(rng.integers(1, 12))), 3] for _ in range(count)], 0)

        def vectors(*shape):
            return torch.from_numpy(rng.standard_normal(shape))

        # Some texts are equal: they are no negatives of each other.
        rows = [Row(f"s{i // 2}", f"t{i}", "de", ("n", f"n{i}"), i % 2, float(i % 2)) for i in range(size)]
        texts = [[text_key(text) for text in (row.source, row.target, *row.negatives)] for row in rows]
        negatives = tuple(tensor.view(size, 2, -1) for tensor in side(2 * size))
        states = vectors(size, *self.states) if self.states[0] else None
        teacher = (vectors(size, self.width), vectors(size, self.width), states)
        share = parallel.share(size)

        def part(value):
            return tuple(map(part, value)) if isinstance(value, tuple) else None if value is None else value[share]

        inputs = map(part, (side(size), side(size), negatives, *teacher, vectors(size, 2, self.width)))
        return Batch(
            lambda: rows[share], *inputs, languages=["de"] * len(rows[share]),
            domain_B=torch.tensor([row.domain for row in rows[share]], dtype=torch.int64),
            label_B=torch.tensor([row.label for row in rows[share]], dtype=torch.float32),
            texts_BS=torch.from_numpy(np.array(texts, np.uint64).view(np.int64))[share], global_size=size,
        )  # fmt: skip


def make(name: str, folder: Path) -> tuple[TrainingTask, Feed]:
    """The task of a stage in float64, and its batches."""
    corpora = [{"path": "a.tsv", "name": "a"}, {"path": "b.tsv", "name": "b"}]
    settings = {"schedule": "constant", "warmup_steps": 0, "clip": 1e9, "max_length": 20, "corpora": corpora}
    stage = Stage(name="s", **settings | STAGES[name])
    torch.manual_seed(3)
    config = {"hidden": 32 if stage.train == "student.embedding" else 16, "unit": 2, "repeats": 1, "positions": 20}
    config |= {"base_rows": 40, "nonzeros": 3} if name == "coded" else {}
    config = StudentConfig(vocabulary=60, heads=2, intermediate=32, dropout=0.0, normalize=False, **config)
    student = Student(config)
    encoder = load_encoder(tiny_models.student_folder())
    pairs = layer_pairs(stage, encoder, student)
    teacher = CachedTeacher(encoder, folder / "cache", 20, layers=tuple(teacher_layer for teacher_layer, _ in pairs))
    task = make_task(student, stage, teacher, mask_id=1).double().train()
    teacher.encoder.module.double()
    if isinstance(task, HiddenStatesTask):
        task.prototypes_PD = torch.randn(2, teacher.width, dtype=torch.float64)
    return task, Feed(teacher.width, (len(pairs), teacher.hidden))


def train(name: str, folder: Path, steps: int = 5, resume=False) -> tuple[list[float], dict[str, torch.Tensor]]:
    """Losses of the steps, and the weights of the task after them; the state of the last step is kept."""
    (task, feed), losses = make(name, folder), []

    def validate(_) -> dict[str, float]:
        assert parallel.rank_and_world()[0] == 0
        return {"choice": float(feed.position.step)}

    def log(row) -> None:
        losses.extend([row["loss"]] if "loss" in row else [])

    stage_trainer = trainer.Trainer(task, feed, validate, folder, steps, "float32", torch.device("cpu"), log)
    stage_trainer.run(resume, keep_end=True)
    return losses, {key: value.detach().clone() for key, value in task.state_dict().items()}


def sgd(task) -> torch.optim.Optimizer:
    return torch.optim.SGD([{"params": [p for p in task.parameters() if p.requires_grad], "lr": 0.05, "base": 0.05}])


def failing() -> None:
    raise InputError("the corpus is missing")


def work(rank: int, world: int, port: int, folder: Path) -> None:
    """What one of `world` processes does; the first two write what they found."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}  # fmt: skip
    torch.set_num_threads(1)
    trainer.make_optimizer = sgd
    parallel.start()
    trained = {name: train(name, folder / f"{world}-{name}") for name in STAGES}
    # Two processes take three steps, and four the others; three is not the end of an epoch.
    if world == 2:
        train("coded", folder / "going", steps=3)
    else:
        trained["going"] = train("coded", folder / "going", resume=True)
    # What the first process computed, or failed with, is known to all.
    assert parallel.on_rank_zero(lambda: os.environ["RANK"]) == "0"
    with pytest.raises(InputError, match="the corpus is missing"):
        parallel.on_rank_zero(failing)
    with pytest.raises(ZeroDivisionError if rank == 0 else MsdcError, match="division by zero"):
        parallel.on_rank_zero(lambda: 1 / 0)
    for size in range(1, 10):
        for tensor in (torch.arange(size), torch.randn(size, 3, 2).bfloat16()):
            tensor = parallel.on_rank_zero(lambda tensor=tensor: tensor)
            assert torch.equal(parallel.gather(tensor[parallel.share(size)], size), tensor)
    if rank < 2:
        torch.save(trained, folder / f"{world}-{rank}.pt")


def one_of_two(rank, folder, model, where):
    """A process with a cache folder of its own, in which the other's sentences are missing."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{where}", rank=rank, world_size=2)
    teacher = CachedTeacher(load_encoder(model), folder / f"machine-{rank}", 20)
    teacher.vectors(MANY[: 3 * rank])  # one machine has some already
    for number in (1, 2):
        np.save(folder / f"{rank}-{number}.npy", teacher.vectors(MANY, shared=True))
    dist.destroy_process_group()
