"""The targets a bundle can be written for. To add one, add its record (a `Target`) to `TARGETS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msdc.export.records import NativeModule, Registry, Target
from msdc.export.runtimes import EVERY, RUNTIMES

__all__ = ["TARGETS", "TargetName", "default_runtimes_help"]

TARGETS: Registry[Target] = Registry(
    "target",
    [
        Target(
            "android",
            ("executorch",),
            module=NativeModule("android", "src/main/cpp/core", ("executorch", "onnx"), sample="android-sample"),
        ),
        Target("ios", ("executorch",), module=NativeModule("ios", "Sources/MSDCCore", ("executorch",))),
        Target("linux", ("executorch", "onnx")),
        # Engines other than ONNX Runtime should be able to run the program.
        Target("web", ("onnx",), microsoft_operators=False, module=NativeModule("web", None, ("onnx",))),
    ],
)

if TYPE_CHECKING:
    TargetName = str
else:

    def __getattr__(name: str) -> Any:
        # Made on import by a schema, so that it holds the records added until then.
        if name == "TargetName":
            return Literal[TARGETS.names()]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def default_runtimes_help() -> str:
    """The default runtimes of all targets in words: "executorch for android and ios, both for linux"."""
    groups: dict[str, list[str]] = {}
    for target in TARGETS:
        label = EVERY if set(target.runtimes) == set(RUNTIMES.names()) else " and ".join(target.runtimes)
        groups.setdefault(label, []).append(target.name)
    return ", ".join(f"{label} for {' and '.join(names)}" for label, names in groups.items())
