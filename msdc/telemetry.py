"""ONNX Runtime without its usage data.

From release 1.29 on, ONNX Runtime stores a device identifier and events in the home folder when it is imported, and
sends them to Microsoft. `import msdc` switches that off, for this process and for its children, so that every import of
`onnxruntime` after it is covered, those of other libraries included.
"""

from __future__ import annotations

import os
import sys

# Read by ONNX Runtime once, when it starts.
VARIABLE = "ORT_DISABLE_TELEMETRY"


def disable_telemetry() -> None:
    """Set the variable of ONNX Runtime, unless the user has set it: a value of theirs stays, `0` included.

    An ONNX Runtime that was imported before has stored its identifier by then; its further events are switched off.
    """
    if os.environ.get(VARIABLE):
        return
    os.environ[VARIABLE] = "1"
    # None where the import is blocked, without the function while the import is under way.
    stop = getattr(sys.modules.get("onnxruntime"), "disable_telemetry_events", None)
    if stop is not None:
        stop()
