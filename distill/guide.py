"""Guide outputs, computed once: a store on disk keyed by text (msdc.distill.data.guide_store).

A folder holds the outputs of one guide at one maximum length, one choice of layers and one precision, so that outputs
of different models or settings never mix. Numbers are float16 (relative error 5e-4, far below any training signal):
ten million sentence vectors of 384 numbers take 7.7 GB of disk and no memory.

Shapes: N sentences, D sentence width, L layers, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from msdc.compress.student.from_transformers import to_student
from msdc.distill.data.guide_store import GuideStore
from msdc.distill.training import parallel
from msdc.encoders.defaults import with_prompt
from msdc.encoders.encoder import BATCH_TOKENS, Encoder
from msdc.errors import InputError
from msdc.files import user_cache
from msdc.progress import track
from msdc.text.packing import pack_by_length, pad
from msdc.text.tokenizer import text_key


def default_cache() -> Path:
    """The user's cache folder for guide outputs."""
    return user_cache() / "guides"


@dataclass(frozen=True)
class GuideOutput:
    """What a guide says of N sentences: vectors float32 [N, D], and states of chosen layers float32 [N, L, H].

    A state is the first token's ([CLS], <s>): guide and student may tokenize a sentence differently. `states_NLH` is
    None where no layer is chosen.
    """

    sentence_ND: np.ndarray
    states_NLH: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sentence_ND)

    def rows(self, start: int, end: int) -> GuideOutput:
        """The output for sentences `start` to `end`."""
        states = None if self.states_NLH is None else self.states_NLH[start:end]
        return GuideOutput(self.sentence_ND[start:end], states)


class Guide:
    """A frozen encoder whose outputs come from the store where they are known, and are computed and stored otherwise.

    Args:
        encoder: the guide; frozen here. With `layers` its module becomes the equal `Student`.
        cache: folder of all stores.
        max_length: longer texts are truncated to so many tokens.
        precision: `float32` or `bfloat16`, of the forward pass.
        layers: applied layers, from 1, whose states are part of the output.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: Path,
        max_length: int,
        precision: str = "float32",
        layers: tuple[int, ...] = (),
    ) -> None:
        encoder.max_length = min(encoder.max_length, max_length)
        student = to_student(encoder) if layers else None
        if student is not None:
            encoder.module = student
        self._student = student
        encoder.module.eval()
        # The published DistilCSE code left its teacher in train mode: here it is checked at every use.
        encoder.module.requires_grad_(False)
        self.encoder = encoder
        self.precision = precision
        self.layers = layers
        self.width = encoder.width
        self.hidden = 0 if student is None else student.config.hidden
        name = f"{encoder.fingerprint()[:32]}-{encoder.max_length}"
        if layers:
            name += f"-layers-{'-'.join(map(str, layers))}"
        if precision != "float32":
            name += f"-{precision}"
        self.store = GuideStore(cache / name, self.width + len(layers) * self.hidden)

    def _check_frozen(self) -> None:
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"guide {self.encoder.name} is not frozen: it must be in eval mode without gradients")

    def vectors(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Sentence vectors alone, float32 [N, D]; see `outputs`."""
        return self.outputs(texts, progress=progress).sentence_ND

    def outputs(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> GuideOutput:
        """The outputs for `texts`; missing ones are computed once and stored.

        Args:
            shared: every process asks for the same texts, and each computes its part of the missing ones.
            progress: show a bar while computing.
        """
        self._check_frozen()
        keys = np.fromiter((text_key(text) for text in texts), dtype=np.uint64, count=len(texts))
        rows = self.store.find(keys)
        missing = np.flatnonzero(rows < 0)
        rank, world = parallel.rank_and_world() if shared else (0, 1)
        if len(missing):
            _, first = np.unique(keys[missing], return_index=True)
            mine = missing[np.sort(first)][rank::world]
            if len(mine):
                self.store.append(keys[mine], self._compute([texts[i] for i in mine], progress))
        if shared:
            parallel.barrier()
        if len(missing):
            self.store.reload()
            rows = self.store.find(keys)
        stored = self.store.read(rows)
        states_NLH = None
        if self.layers:
            states_NLH = stored[:, self.width :].reshape(len(stored), len(self.layers), self.hidden)
        return GuideOutput(stored[:, : self.width], states_NLH)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        """Rows of the store: the sentence vector, then the states, float32 [N, D + L x H]."""
        student = self._student
        if student is None:
            return self.encoder.encode(texts, progress=progress, precision=self.precision)
        device = next(student.parameters()).device
        ids = self.encoder.tokenize(with_prompt(self.encoder.defaults.prompt(), texts))
        rows = np.zeros((len(texts), self.store.width), dtype=np.float32)
        batches = pack_by_length([len(row) for row in ids], BATCH_TOKENS)
        for batch in track(batches, f"encode with {self.encoder.name}", enabled=progress):
            ids_BT, mask_BT = pad([ids[i] for i in batch], self.encoder.tokenizer.pad_id)
            with (
                torch.inference_mode(),
                torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"),
            ):
                sentence_BD, states_BLH = student.layer_states(ids_BT.to(device), mask_BT.to(device), self.layers)
            rows[batch, : self.width] = sentence_BD.float().cpu().numpy()
            rows[batch, self.width :] = states_BLH.flatten(1).float().cpu().numpy()
        return rows
