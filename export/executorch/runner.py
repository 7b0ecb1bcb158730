"""Run a checked `.pte` with ExecuTorch: ids in, vectors out.

Shapes: N texts, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.export.executorch.pte import METHODS
from msdc.export.executorch.quiet import quiet


@functools.cache
def _executorch() -> Any:
    with quiet():
        # The import registers quantized operators (the int8 and int4 token tables) with the runtime.
        import executorch.kernels.quantized  # noqa: F401
        from executorch.runtime import Runtime

        return Runtime.get()


_threads: int | None = None


def set_executorch_threads(threads: int) -> None:
    """Set the size of XNNPACK's thread pool for the whole process; a pool of that size is kept."""
    global _threads
    if threads == _threads:
        return
    from executorch.extension.pybindings import portable_lib

    with quiet():
        portable_lib._unsafe_reset_threadpool(threads)
    _threads = threads


class ExecutorchRunner:
    """An open `.pte`, run at batch 1; `style`, `repeats` and `takes_prompt` come from the manifest.

    `takes_prompt`: its one method `forward` has a second input, the number of tokens that are not pooled.
    """

    name = "executorch"

    def __init__(
        self, path: Path, *, style: str, repeats: int, threads: int | None = None, takes_prompt: bool = False
    ) -> None:
        import torch
        from executorch.runtime import Verification

        self._torch = torch
        self.repeats = repeats
        self.takes_prompt = takes_prompt
        runtime = _executorch()
        if threads is not None:
            set_executorch_threads(threads)
        captured = None
        try:
            with quiet() as captured:
                self.program = runtime.load_program(path, verification=Verification.InternalConsistency)
                self.methods: dict[str, Any] = {name: self.program.load_method(name) for name in METHODS[style]}
        except Exception as error:
            said = captured.last_line() if captured else ""
            raise InputError(f"{path}: ExecuTorch refuses the program ({said or error})") from error

    def _one(self, ids: Sequence[int], prompt_tokens: int) -> np.ndarray:
        ids_1T = self._torch.tensor([list(ids)], dtype=self._torch.int64)
        if "forward" in self.methods:
            inputs = [ids_1T]
            if self.takes_prompt:
                inputs.append(self._torch.tensor([prompt_tokens], dtype=self._torch.int64))
            return self.methods["forward"].execute(inputs)[0].numpy()[0]
        hidden_1TH = self.methods["embed"].execute([ids_1T])[0]
        for _ in range(self.repeats):
            hidden_1TH = self.methods["unit"].execute([hidden_1TH])[0]
        return self.methods["pool"].execute([hidden_1TH])[0].numpy()[0]

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids.

        `prompt_tokens`: see `Runner.run`.

        Raises:
            MsdcError: the program failed at run time.
        """
        try:
            return np.stack([self._one(row, prompt_tokens) for row in rows]).astype(np.float32, copy=False)
        except RuntimeError as error:
            raise MsdcError(f"ExecuTorch failed to run the program: {' '.join(str(error).split())[:200]}") from error
