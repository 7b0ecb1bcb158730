"""The child of a trial run (`msdc.export.origin`): it runs a program of unknown origin on a few lengths."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from msdc.export.origin import answer

# Longer inputs than this reach no other code.
MOST_TOKENS = 256


def trial(path: Path, facts: dict[str, Any], package: str) -> str:
    """Run a program by the runtime of `package`; `facts` are those of `trial_run_if_unknown`."""
    runner: Any
    if package == "executorch":
        from msdc.export.executorch.program import ExecutorchRunner

        runner = ExecutorchRunner(path, threads=1, **facts)
    else:
        from msdc.export.onnx.runner import OnnxRunner

        runner = OnnxRunner(path, threads=1)
    vocabulary, most = facts["constants"]["vocabulary"], min(facts["constants"]["max_length"], MOST_TOKENS)
    lengths = sorted({1, 2, 3, 7, 16, most} & set(range(1, most + 1)))
    runner.run([[(7 * i * length) % vocabulary for i in range(length)] for length in lengths])
    runner.run([[0], [vocabulary - 1]])
    return "ran"


if __name__ == "__main__":
    sys.exit(answer(trial))
