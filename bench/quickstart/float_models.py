"""Scores and sizes of a float model, shown beside the artifacts made from it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msdc.bench.result import ModelScores
from msdc.bench.workload import Tasks
from msdc.compress.student.from_transformers import to_student
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import STOCK_FOLDER
from msdc.errors import InputError

Role = Literal["teacher", "assistant", "student", "peer", "other"]


def parameter_counts(encoder: Encoder) -> tuple[int, int | None, int | None]:
    """Numbers of all, embedding (token table, its map, positions) and encoder (stored layers) parameters.

    The two parts are None for an architecture that cannot be converted to `Student`.
    """
    total = sum(parameter.numel() for parameter in encoder.module.parameters())
    try:
        state = to_student(encoder).state_dict()
    except InputError:
        return total, None, None
    counts = {name: value.numel() for name, value in state.items()}
    embedding = sum(n for name, n in counts.items() if name.startswith("embedding.") and ".norm." not in name)
    layers = sum(n for name, n in counts.items() if name.startswith("layers."))
    return sum(counts.values()), embedding, layers


def weight_bytes(folder: Path | None) -> int | None:
    """Bytes of a model folder's weight files; None without any. A student's twin of stock classes does not count."""
    if folder is None:
        return None
    files = [path for path in folder.rglob("*.safetensors") if STOCK_FOLDER not in path.relative_to(folder).parts]
    return sum(path.stat().st_size for path in files) or None


def score_model(encoder: Encoder, role: Role, tasks: Tasks, name: str | None = None) -> ModelScores:
    """A float model's sizes and its scores on `tasks`."""
    total, embedding, layers = parameter_counts(encoder)
    return ModelScores(
        role=role,
        name=name or encoder.name,
        parameters=total,
        embedding_parameters=embedding,
        encoder_parameters=layers,
        bytes=weight_bytes(encoder.folder),
        accuracy=tasks.score(encoder),
    )
