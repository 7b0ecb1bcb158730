"""The student and its size: bottleneck, recurrence, vocabulary, quantization, size planning.

* `plan`, `plan_budget`: sizes before anything is trained.
* `cut_student`, `code_table`, `trim`, `quantize`: write a smaller model folder.

They are what `msdc compress` calls, and are imported on first use, so that importing this package loads no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msdc.compress.quantization.search import quantize as quantize
    from msdc.compress.size import plan as plan
    from msdc.compress.size import plan_budget as plan_budget
    from msdc.compress.student.cut import code_table as code_table
    from msdc.compress.student.cut import cut_student as cut_student
    from msdc.compress.vocabulary.trim import trim as trim

_VERBS = {
    "code_table": "student.cut",
    "cut_student": "student.cut",
    "plan": "size",
    "plan_budget": "size",
    "quantize": "quantization.search",
    "trim": "vocabulary.trim",
}
__all__ = ["code_table", "cut_student", "plan", "plan_budget", "quantize", "trim"]


def __getattr__(name: str) -> object:
    if name not in _VERBS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{_VERBS[name]}"), name)
    return found
