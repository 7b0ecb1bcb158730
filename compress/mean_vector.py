"""Centre a model's vectors: subtract what all of them share, so that cosines use their range.

Models of a contrastive loss at a low temperature, such as multilingual E5, have cosines of 0.7 to 1 for any texts. A
ranking that adds cosines to other scores hears little of them. The mean vector is subtracted before the normalisation,
in the bias of the head: size and speed stay. Mu and Viswanath 2018 remove the mean of word vectors for the same reason.

Shapes: N texts, D width of the vectors.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from msdc.arguments import checked
from msdc.compress.gate import require_written
from msdc.compress.loading import load_torch_encoder, open_source
from msdc.compress.student.config import DENSE, DENSE_BIAS
from msdc.compress.student.io import ModelReport, save_student
from msdc.compress.student.model import Student, with_state
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.scores import unit_rows

MOST_TEXTS = 5_000  # an even spread of a longer corpus


class CentreReport(ModelReport):
    """The model that was written; the mean cosine of two different texts before and after, and the number of texts."""

    before: float
    after: float
    texts: int


def _mean_cosine(vectors_ND: np.ndarray) -> float:
    """The mean cosine of two different texts."""
    unit_ND = unit_rows(vectors_ND)
    total = float(np.square(unit_ND.sum(0, dtype=np.float64)).sum()) - len(unit_ND)
    return total / (len(unit_ND) * (len(unit_ND) - 1))


def unnormalised(encoder: Encoder, student: Any, head: bool = True) -> Encoder:
    """An encoder of `student` that neither normalises nor truncates its vectors, without the head if so asked.

    Tokenizer, longest input and prompts are those of `encoder`.
    """
    changes = {"normalize": False} | ({} if head else {"dense": None})
    state = {name: value for name, value in student.state_dict().items() if head or not name.startswith("dense.")}
    return Encoder(
        with_state(student.config.model_copy(update=changes), state), encoder.tokenizer, encoder.max_length,
        encoder.name, defaults=replace(encoder.defaults, truncate_dim=None),
    )  # fmt: skip


def centred(student: Student, before_ND: np.ndarray) -> Student:
    """A student whose vectors are those of `student` less the mean of `before_ND`, its vectors before normalisation.

    A head without activation is kept; without a head the student gets one that changes nothing else.
    """
    config = student.config
    if config.dense_activation != "identity" and config.dense is not None:
        raise InputError(f"a head with {config.dense_activation} cannot subtract a mean after it")
    state = dict(student.state_dict())
    state.setdefault(DENSE, torch.eye(config.hidden))
    bias_D = state.get(DENSE_BIAS, torch.zeros(len(state[DENSE])))
    state[DENSE_BIAS] = bias_D - torch.from_numpy(before_ND.mean(0, dtype=np.float64)).to(bias_D)
    changes = {"dense": len(state[DENSE]), "dense_bias": True, "dense_activation": "identity", "normalize": True}
    return with_state(config.model_copy(update=changes), state)


@checked
def centre(
    model: str | Path = "msdc-mini", *, output: str | Path, corpus: str | Path | None = None, force: bool = False
) -> CentreReport:
    """Write a model whose vectors have the mean 0 over a text: that of two different texts' cosines falls to about 0.

    The folder is written in float, also for a quantized model.

        from msdc.compress import centre

        report = centre("intfloat/multilingual-e5-small", output="centred", corpus="text.txt")
        print(report.before, report.after)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        corpus: text like that which will be encoded, in all its languages; None: the embedded corpus.
        force: replace `output` if it exists.

    Raises:
        InputError: no such model, one that cannot become a student, a head with an activation, fewer than two texts, or
            `output` exists.
    """
    output, encoder, student = open_source(model, output, force)
    texts = quickstart_texts() if corpus is None else read_texts(corpus)
    texts = texts[:: -(-len(texts) // MOST_TEXTS)]
    if len(texts) < 2:
        raise InputError(f"{corpus}: a mean needs two texts or more")
    before_ND = unnormalised(encoder, student).encode(texts)
    changed = centred(student, before_ND)
    after = Encoder(changed, encoder.tokenizer, encoder.max_length, output.name, defaults=encoder.defaults)
    cosines = _mean_cosine(before_ND), _mean_cosine(after.encode(texts))
    card = (
        f"# {output.name}\n\n{encoder.name} with centred vectors: the mean cosine of two texts is {cosines[1]:.3f}, "
        f"before {cosines[0]:.3f} ({len(texts):,} texts).\n"
    )
    save_student(
        changed, encoder.tokenizer, output, card=card, force=force, defaults=encoder.defaults,
        check=lambda stage: require_written(encoder, after, load_torch_encoder(stage), texts[:16]),
    )  # fmt: skip
    return CentreReport(model=encoder.name, out=str(output), before=cosines[0], after=cosines[1], texts=len(texts))
