"""Several models as one, whose cosines are the means of theirs: for collections of notes and paragraphs alike.

Shapes: N texts, D the sum of the models' widths.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from msdc.encoders.encoder import Batching, EncodeOptions, SentenceEncoder, configured
from msdc.encoders.folder import EncodeDefaults
from msdc.errors import InputError
from msdc.scores import joined_rows

JOIN = "+"  # between the names of joined models


class JoinedEncoder(SentenceEncoder):
    """Models whose vectors, at unit length, are joined: the cosine of two texts is the mean of the models' cosines.

    Each model reads a text with its own tokenizer, default prompt and longest input. Passages fit all of them.

    Args:
        models: at least two.

    Raises:
        InputError: fewer than two models.
    """

    def __init__(self, models: Sequence[SentenceEncoder]) -> None:
        if len(models) < 2:
            raise InputError("a joined model has at least two models")
        self._models = tuple(models)
        name, length = JOIN.join(model.name for model in models), min(model.max_length for model in models)
        super().__init__(name, models[0].tokenizer, length, EncodeDefaults())

    def __repr__(self) -> str:
        return f"JoinedEncoder({list(self._models)})"

    @property
    def full_width(self) -> int:
        """The sum of the models' widths."""
        return sum(model.width for model in self._models)

    @property
    def source(self) -> str:
        """The fingerprint with that of each model's source."""
        return self._with_settings(self._joined([model.source for model in self._models]))

    def _fingerprint(self) -> str:
        return self._joined([model.fingerprint() for model in self._models])

    def _joined(self, fingerprints: list[str]) -> str:
        return hashlib.sha256("\0".join(["joined", *fingerprints]).encode()).hexdigest()

    def token_counter(self, prompt: str | None = None) -> tuple[Callable[[Sequence[str]], list[int]], int]:
        """Tokens of texts by the model that has most, and how many every model reads after its own prompt."""
        self._require_own_settings(prompt)
        counters, rooms = zip(*(model.token_counter() for model in self._models), strict=True)

        def count(texts: Sequence[str]) -> list[int]:
            return [max(counts) for counts in zip(*(counter(texts) for counter in counters), strict=True)]

        return count, min(rooms)

    def _count_truncated(self, texts: list[str], prompt: str) -> int:
        count, most = self.token_counter(prompt)
        return sum(tokens > most for tokens in count(texts))

    if not TYPE_CHECKING:  # the arguments are those of `SentenceEncoder.encode`

        def encode(self, texts=None, prompt_name=None, prompt=None, *others, **options):
            """`SentenceEncoder.encode`; prompt="" switches the models' default prompts off."""
            model = self._with_prompts(None) if prompt == "" and prompt_name is None else self
            return SentenceEncoder.encode(model, texts, prompt_name, prompt, *others, **options)

    def encode_query(
        self, texts: Sequence[str] | str | None = None, **options: Unpack[EncodeOptions]
    ) -> NDArray[np.float32]:
        """`encode` with the prompt "query" of each model that has one."""
        return self._with_prompts("query").encode(texts, **options)

    def encode_document(
        self, texts: Sequence[str] | str | None = None, **options: Unpack[EncodeOptions]
    ) -> NDArray[np.float32]:
        """`encode` with the prompt "document" of each model that has one."""
        return self._with_prompts("document").encode(texts, **options)

    def _with_prompts(self, name: str | None) -> JoinedEncoder:
        """The models with their prompts of a name as defaults, without a prompt where they have none."""
        self._require_own_settings(None)
        prompts = ("" if name is None else model.defaults.prompts.get(name, "") for model in self._models)
        return JoinedEncoder(
            [configured(model, None, prompt, None) for model, prompt in zip(self._models, prompts, strict=True)]
        )

    def _encode(self, texts: list[str], prompt: str, batching: Batching, precision: str) -> NDArray[np.float32]:
        self._require_own_settings(prompt)
        vectors = [
            model.encode(
                texts, batch_size=batching.texts, show_progress_bar=batching.progress, batch_tokens=batching.tokens,
                precision=precision,
            )
            for model in self._models
        ]  # fmt: skip
        joined_ND: NDArray[np.float32] = joined_rows(vectors, [1.0] * len(vectors))
        return joined_ND

    def _require_own_settings(self, prompt: str | None) -> None:
        if prompt or self.max_length != self._loaded[0]:
            setting = "prompt" if prompt else "longest input"
            raise InputError(f"{self.name}: each of the joined models has its own {setting}; change theirs")
