"""The gate of the compress verbs: what was written is compared with the source model's own encoding.

A student is converted from a stock model and then changed, so comparing it with itself before the change would miss
what the conversion lost. The source's vectors are those of sentence-transformers, one text at a time, with every prompt
that the model has.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from msdc.compress.texts import quickstart_texts
from msdc.encoders.encoder import Encoder, own_vectors
from msdc.encoders.folder import prompted_texts
from msdc.errors import GateError
from msdc.scores import cosine_rows

# The same function in other operators, in float32.
SAME_COSINE, SAME_MAX_ABS = 0.9999, 1e-3
# What the mean cosine of a written folder may be below that of the student in memory.
WRITTEN_LOSS = 0.002
TEXTS = 12


def source_vectors(source: Encoder, texts: Sequence[str], prompt: str) -> NDArray[np.float32]:
    """Vectors [N, D] of `texts` after `prompt` as the model's own library computes them, of its default width."""
    own_ND = own_vectors(source, texts, source.max_length, prompt)
    return source.encode(texts, prompt=prompt) if own_ND is None else own_ND[:, : source.width]


def require_same(source: Encoder, student: Encoder) -> None:
    """Refuse a converted student that does not compute what its model computes, on texts short and too long.

    Raises:
        GateError: naming the cosine and the largest difference, at the scale of unit vectors.
    """
    texts = quickstart_texts(limit=TEXTS)
    texts.append(" ".join(texts * (2 + source.max_length // 100)) if source.max_length < 2048 else " ".join(texts))
    for prompt, prompt_texts in prompted_texts(source.defaults, texts):
        own_ND, student_ND = source_vectors(source, prompt_texts, prompt), student.encode(prompt_texts, prompt=prompt)
        length_N = np.linalg.norm(own_ND, axis=1, keepdims=True)
        largest = float((np.abs(own_ND - student_ND) / np.maximum(length_N, 1.0)).max())
        cosine = float(cosine_rows(own_ND, student_ND).min())
        if not (cosine >= SAME_COSINE and largest <= SAME_MAX_ABS):
            label = source.defaults.label(prompt, " with ")
            raise GateError(
                f"{source.name} cannot become a student: converted, it gives other vectors than the model itself"
                f"{label} (lowest cosine {cosine:.4f}, largest difference {largest:.1e}); nothing was "
                "written"
            )


def require_written(source: Encoder, expected: Encoder, written: Encoder, texts: Sequence[str]) -> None:
    """Refuse a model that was read back from its folder if it is farther from the source's own encoding of `texts` than
    `expected`, in memory.

    Raises:
        GateError: naming both mean cosines.
    """
    for prompt, prompt_texts in prompted_texts(source.defaults, texts):
        own_ND = source_vectors(source, prompt_texts, prompt)
        in_memory, reread = (
            float(cosine_rows(own_ND, model.encode(prompt_texts, prompt=prompt)).mean())
            for model in (expected, written)
        )
        if not reread >= in_memory - WRITTEN_LOSS:
            label = source.defaults.label(prompt, " with ")
            raise GateError(
                f"the written folder has mean cosine {reread:.4f} to {source.name}{label}, the student "
                f"in memory {in_memory:.4f}; nothing was kept"
            )
