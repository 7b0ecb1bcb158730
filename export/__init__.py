"""Artifacts: ExecuTorch, ONNX, tokenizer, bundle per target, parity gates. `export` is the whole verb."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from msdc.compress.quantization.plan import PrecisionPlan
    from msdc.export.manifest import Manifest

__all__ = ["Exported", "export"]


class Exported(NamedTuple):
    """A written bundle: its folder and the content of its `bundle.json`."""

    folder: Path
    manifest: Manifest


def export(
    model: str | Path = "msdc-mini",
    *,
    target: str,
    runtime: str | None = None,
    precision: str | PrecisionPlan | None = None,
    out: str | Path | None = None,
    style: Literal["multi-method", "forward"] = "multi-method",
    max_length: int | None = None,
    exporter: str | None = None,
    gates: bool = True,
    module: bool = True,
    sample: bool = False,
    with_runtime: bool = False,
    transformers_js: bool = False,
    force: bool = False,
) -> Exported:
    """Write the bundle of a model for a target: programs, tokenizer, golden vectors, manifest.

        from msdc.export import export

        folder, manifest = export("msdc-mini", target="android", out="mini")
        print(manifest.parity["executorch"].mean_cosine)

    Args:
        model: a shipped name, a folder, or a hub id: a student, or any encoder that sentence-transformers loads.
        target: android, ios, linux or web.
        runtime: executorch, onnx or both; None: the target's own.
        precision: fp32, int8, int8-embed4, int4-embed4, a plan or its `.json` file; None: the plan of a folder made by
            `msdc compress quantize`, else int8.
        out: bundle folder; None: MODEL-TARGET in the working directory.
        style: of ExecuTorch programs: methods embed, unit and pool, or one `forward`.
        max_length: longest input in tokens; None: that of the model.
        exporter: the exporter, canonical or generic; None: canonical where it takes the model.
        gates: fail where the artifact is too far from the float model; False: the manifest records it.
        module: write the target's module for apps.
        sample: write a sample app (android, ios).
        with_runtime: copy onnxruntime-web (web).
        transformers_js: write files with which transformers.js reads the bundle too (web).
        force: replace an existing folder.

    Raises:
        InputError: no such model, or one that cannot be exported so; `out` exists without force.
        GateError: a gate failed; nothing is left on disk.
    """
    from msdc.export.exporters import export_model

    return export_model(
        model, target, runtime, precision, out, style, max_length, exporter, gates, module, sample, with_runtime,
        transformers_js, force,
    )  # fmt: skip
