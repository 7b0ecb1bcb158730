"""The student and its size: bottleneck, recurrence, vocabulary, quantization, size planning.

* `plan`, `plan_budget`: sizes before anything is trained.
* `cut_student`, `code_table`, `trim`, `quantize`: write a smaller model folder.
* `add_words`: write one with more tokens; `centre`: one whose vectors have the mean 0.

They are what `msdc compress` calls, and are imported on first use, so that importing this package loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.compress.budget import plan_budget as plan_budget
    from msdc.compress.cut import code_table as code_table
    from msdc.compress.cut import cut_student as cut_student
    from msdc.compress.mean_vector import centre as centre
    from msdc.compress.quantization.search import quantize as quantize
    from msdc.compress.size import plan as plan
    from msdc.compress.vocabulary.add import add_words as add_words
    from msdc.compress.vocabulary.trim import trim as trim

_MODULES = {
    "add_words": "msdc.compress.vocabulary.add",
    "centre": "msdc.compress.mean_vector",
    "code_table": "msdc.compress.cut",
    "cut_student": "msdc.compress.cut",
    "plan": "msdc.compress.size",
    "plan_budget": "msdc.compress.budget",
    "quantize": "msdc.compress.quantization.search",
    "trim": "msdc.compress.vocabulary.trim",
}
__all__ = ["add_words", "centre", "code_table", "cut_student", "plan", "plan_budget", "quantize", "trim"]
__getattr__ = exports(__name__, _MODULES)
