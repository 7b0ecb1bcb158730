"""The queue of teacher vectors that contrastive distillation takes more negatives from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from msdc.distill.objectives.numerics import check_floating, shape
from msdc.errors import InputError


class MemoryBank(nn.Module):
    """First in, first out queue of at most `size` vectors, kept in float32.

    Everything lives in buffers, so `state_dict` carries the vectors and the pointer, and a resumed run continues with
    the same negatives. With many processes every one pushes the same gathered batch, in rank order; then all banks
    are equal and one of them is saved.

    Args:
        width: D, the teacher's sentence width.
        size: Q, how many vectors are kept.

    Source: Gao et al. 2021 (DistilCSE): Q = 65,536.
    """

    bank_KD: Tensor
    pointer: Tensor
    filled: Tensor

    def __init__(self, width: int, size: int = 65_536) -> None:
        super().__init__()
        if width < 1 or size < 1:
            raise InputError(f"a memory bank needs a width and a size of at least 1, got {width} and {size}")
        self.register_buffer("bank_KD", torch.zeros(size, width, dtype=torch.float32))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))

    def __len__(self) -> int:
        """How many vectors are in the bank now."""
        return int(self.filled)

    def vectors(self) -> Tensor:
        """The stored vectors, [filled, D], in slot order; a view: use it before the next `push`, or clone it."""
        return self.bank_KD[: len(self)]

    @torch.no_grad()
    def push(self, vectors_BD: Tensor) -> None:
        """Add a batch of vectors [B, D]; the oldest ones are removed. Of more than `size`, the last `size` stay.

        Raises:
            InputError: not [B, D] with the bank's width, or empty.
        """
        check_floating("MemoryBank.push", "vectors_BD", vectors_BD, dimensions=2)
        size, width = self.bank_KD.shape
        if vectors_BD.shape[1] != width:
            raise InputError(f"MemoryBank.push: vectors_BD is {shape(vectors_BD)}, expected [B, {width}]")
        count = len(vectors_BD)
        kept = min(count, size)
        slots = (self.pointer + torch.arange(count - kept, count, device=self.bank_KD.device)) % size
        self.bank_KD[slots] = vectors_BD[count - kept :].to(self.bank_KD)
        self.pointer.copy_((self.pointer + count) % size)
        self.filled.copy_((self.filled + count).clamp(max=size))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "bank_KD")
        if saved is not None and saved.shape != self.bank_KD.shape:
            raise InputError(f"the checkpoint's memory bank is {shape(saved)}, this run's is {shape(self.bank_KD)}")
        pointer, filled = state_dict.get(prefix + "pointer"), state_dict.get(prefix + "filled")
        if pointer is not None and filled is not None:
            at, held, size = int(pointer), int(filled), len(self.bank_KD)
            # Until the bank is full the next free slot is the first one that was never filled.
            if not (at == held if 0 <= held < size else held == size and 0 <= at < size):
                raise InputError(f"the checkpoint's memory bank is damaged: pointer {at}, filled {held} of {size}")
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
