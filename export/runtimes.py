"""The runtimes a bundle can hold programs for. To add one, add its record (a `Runtime`) to `RUNTIMES`.

Schemas, option values and error messages of all packages derive from this registry. The one exception is
`msdc.compress.size.PROGRAM_BYTES`, which lies below this package and lists the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msdc.export.executorch.record import ExecutorchRuntime
from msdc.export.onnx.record import OnnxRuntime
from msdc.export.records import Registry, Runtime

__all__ = ["EVERY", "RUNTIMES", "RuntimeName", "expand", "runtime_choices"]

# In order of preference: the first that a bundle holds is the default.
RUNTIMES: Registry[Runtime] = Registry("runtime", [ExecutorchRuntime(), OnnxRuntime()])
# The value of --runtime for all of them.
EVERY = "both"

if TYPE_CHECKING:
    RuntimeName = str
else:

    def __getattr__(name: str) -> Any:
        # Made on import by a schema, so that it holds the records added until then.
        if name == "RuntimeName":
            return Literal[RUNTIMES.names()]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def runtime_choices() -> list[str]:
    """Values of a `--runtime` option that takes one runtime or all."""
    return [*RUNTIMES.names(), EVERY]


def expand(choice: str) -> tuple[str, ...]:
    """Names behind a value of `runtime_choices`.

    Raises:
        InputError: unknown name.
    """
    return RUNTIMES.names() if choice == EVERY else (RUNTIMES[choice].name,)
