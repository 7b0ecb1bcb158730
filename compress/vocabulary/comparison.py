"""What a changed vocabulary does to texts and their vectors, and the gate on it.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import GateError, InputError
from msdc.progress import warn
from msdc.scores import cosine_rows
from msdc.text.answers import nearest_accuracy
from msdc.text.quickstart import parallel_table

COMPARED = 200  # texts of each kind, changed and unchanged, whose vectors are compared
PROMPTED = 400  # texts that are compared after each prompt
# The same rows through the same layers: only the order of additions can differ, of a batch or of a stock model's code.
SAME_MAX_ABS = 2e-5
LEAST_COSINE = 0.98  # docs/guides/compress.md has the measurement
CLOSE_COSINE = 0.995  # below this a warning
# A language counts as read if this share (x 100) of its sentences finds its English translation: all-MiniLM-L6-v2
# reaches 2 to 36 % in languages that it was not trained on, msdc-mini 99 % and more in its own.
LEAST_READ, READ_ROWS = 50.0, 40


class Proof(BaseModel):
    """One set of texts before and after: how many are tokenized differently, and how much the vectors change.

    `mean_cosine` is that of all texts; those that are tokenized as before count as 1.
    """

    model_config = ConfigDict(frozen=True)

    texts: int
    source: str
    changed_share: float
    unchanged_max_abs: float
    changed_mean_cosine: float | None
    mean_cosine: float
    tokens_before: float
    tokens_after: float

    def summary(self) -> str:
        """Share and cosine of the texts that changed, as one phrase."""
        if self.changed_mean_cosine is None:
            return f"{self.source}: no text is tokenized differently"
        return (
            f"{self.source}: {self.changed_share:.1%} of the texts are tokenized differently, and the vectors of these "
            f"have a mean cosine of {self.changed_mean_cosine:.3f} to the vectors before (all texts: "
            f"{self.mean_cosine:.3f})"
        )


def read_languages(encoder: Encoder) -> list[str]:
    """Languages of the embedded corpus that a model reads: English, and those in which sentences find the English one.

    A model that reads none of them is compared on English.
    """
    header, rows = parallel_table()
    sides = [list(side) for side in zip(*rows[:: max(1, len(rows) // READ_ROWS)][:READ_ROWS], strict=True)]
    vectors = [encoder.encode(side, prompt="") for side in sides]
    readable = [code for code, other_ND, side in zip(header[1:], vectors[1:], sides[1:], strict=True)
             if float(np.mean(nearest_accuracy(vectors[0], other_ND, sides[0], side))) >= LEAST_READ]  # fmt: skip
    return [header[0], *readable]


def embedded_languages(encoder: Encoder, languages: Sequence[str]) -> list[str]:
    """Languages of the embedded corpus to compare a model on: those of `languages`, or without any those it reads."""
    header, _ = parallel_table()
    return [code for code in header if code in languages] if languages else read_languages(encoder)


def prove(
    before: Encoder, after: Encoder, rows: Sequence[int], texts: Sequence[str], source: str, prompt: str = ""
) -> Proof:
    """Compare two encoders text by text, each after `prompt`; `rows` are the old table rows of the new ids.

    Raises:
        GateError: a text that is tokenized as before has another vector.
    """
    source += before.defaults.label(prompt, ", ")
    old_ids, new_ids = (model.tokenize(with_prompt(prompt, texts)) for model in (before, after))
    same = [[rows[i] for i in new] == old for old, new in zip(old_ids, new_ids, strict=True)]
    unchanged, changed = (
        [text for text, equal in zip(texts, same, strict=True) if equal == is_same][:COMPARED]
        for is_same in (True, False)
    )
    old_ND, new_ND = (model.encode(unchanged, prompt=prompt) for model in (before, after))
    # Vectors that are not normalized are compared at the scale of a unit vector.
    length_N1 = np.maximum(np.linalg.norm(old_ND, axis=1, keepdims=True), 1.0)
    largest = float((np.abs(old_ND - new_ND) / length_N1).max()) if unchanged else 0.0
    if largest > SAME_MAX_ABS:
        raise GateError(f"{source}: vectors of unchanged texts differ by {largest:.1e}; nothing was written")
    cosine = None
    if changed:
        old_ND, new_ND = (model.encode(changed, prompt=prompt) for model in (before, after))
        cosine = float(cosine_rows(old_ND, new_ND).mean())
    share = 1 - sum(same) / len(same)
    return Proof(
        texts=len(texts),
        source=source,
        changed_share=share,
        unchanged_max_abs=largest,
        changed_mean_cosine=cosine,
        mean_cosine=1.0 if cosine is None else 1 - share * (1 - cosine),
        tokens_before=sum(map(len, old_ids)) / len(texts),
        tokens_after=sum(map(len, new_ids)) / len(texts),
    )


def prove_prompts(
    before: Encoder, after: Encoder, rows: Sequence[int], texts: Sequence[str], source: str
) -> list[Proof]:
    """`prove` without a prompt, and after every prompt of the model on up to `PROMPTED` of the texts.

    Raises:
        GateError: as `prove`.
    """
    step = -(-len(texts) // PROMPTED)
    prompts = [prompt for prompt in before.defaults.prompt_texts() if prompt]
    return [prove(before, after, rows, texts, source),
            *(prove(before, after, rows, texts[::step], source, prompt) for prompt in prompts)]  # fmt: skip


def require_prompts(before: Encoder, after: Encoder, rows: Sequence[int]) -> None:
    """Refuse a vocabulary in which a prompt of the model is tokenized differently; `rows` as in `prove`.

    Raises:
        GateError: naming the prompt.
    """
    for prompt in before.defaults.prompt_texts():
        (old,), (new,) = before.tokenize([prompt]), after.tokenize([prompt])
        if [rows[i] for i in new] != old:
            raise GateError(
                f"{before.defaults.label(prompt)} {prompt[:40]!r} would be tokenized differently; nothing was written"
            )


def check_least(least_cosine: float) -> None:
    """Refuse a `least_cosine` that is no cosine to require."""
    if not 0 <= least_cosine <= 1:
        raise InputError(f"`least_cosine` {least_cosine}: a cosine from 0 (no limit) to 1")


def passes(proofs: Sequence[Proof], least_cosine: float) -> bool:
    """Whether the mean cosine of every set of texts reaches `least_cosine`; 0 is no limit."""
    return least_cosine == 0 or all(proof.mean_cosine >= least_cosine for proof in proofs)


def require_close(proofs: Sequence[Proof], least_cosine: float, advice: str) -> None:
    """Refuse vectors that changed too much, with the figures and `advice`; `passes` decides.

    Raises:
        GateError: naming the set of texts with the lowest mean cosine.
    """
    if not passes(proofs, least_cosine):
        worst = min(proofs, key=lambda proof: proof.mean_cosine)
        raise GateError(f"{worst.summary()}, below `least_cosine` {least_cosine:g}; nothing was written. {advice}")


def warn_changed(proofs: Sequence[Proof]) -> None:
    """Warn of every set of texts whose vectors changed noticeably."""
    for proof in proofs:
        if proof.mean_cosine < CLOSE_COSINE:
            warn(proof.summary())
