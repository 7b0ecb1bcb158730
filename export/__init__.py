"""Artifacts: ExecuTorch, ONNX, tokenizer, bundle per target, parity gates. `export` is the verb."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.export.exporters import Exported as Exported
    from msdc.export.exporters import export as export

__all__ = ["Exported", "export"]
__getattr__ = exports(__name__, {"Exported": "msdc.export.exporters", "export": "msdc.export.exporters"})
