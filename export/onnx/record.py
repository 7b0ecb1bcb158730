"""The record of ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msdc.errors import InputError
from msdc.export.records import (
    GenericRequest,
    InsidePath,
    ProgramPart,
    ProgramRequest,
    Runner,
    Runtime,
    Small,
    WrittenProgram,
)

if TYPE_CHECKING:
    from msdc.export.manifest import Manifest

PROGRAM_FILE = "model.onnx"


class OnnxPart(ProgramPart):
    """An `.onnx` and its external data file."""

    data: InsidePath | None
    opset: Small

    def files(self) -> list[str]:
        """All files of the program, the `.onnx` first."""
        return [self.file] + ([self.data] if self.data else [])


class OnnxRuntime(Runtime):
    """An `.onnx` with its weights in an external data file."""

    name = "onnx"
    title = "ONNX Runtime"
    package = "onnxruntime"
    part = OnnxPart
    made_with = ("onnx", "onnxruntime")
    runs_with = ("onnxruntime",)
    engine = "engine_onnx.cpp"

    @staticmethod
    def _part(manifest: Manifest) -> OnnxPart:
        part = manifest.part("onnx")
        assert isinstance(part, OnnxPart)
        return part

    def write(self, request: ProgramRequest, folder: Path) -> WrittenProgram:
        """Write, check and open the program."""
        from msdc.export.onnx.runner import OnnxRunner
        from msdc.export.onnx.write import write_onnx

        path = folder / PROGRAM_FILE
        written = write_onnx(request.smoothed, request.plan, path, max_length=request.max_length, target=request.target)
        part = OnnxPart(file=PROGRAM_FILE, data=f"{PROGRAM_FILE}.data", opset=written.opset)
        return WrittenProgram(part, OnnxRunner(path, pad_id=request.pad_id), written.low_bit_share)

    def write_generic(self, request: GenericRequest, folder: Path) -> WrittenProgram:
        """Write, check and open the program of any model."""
        from msdc.export.generic.onnx import write_generic_onnx
        from msdc.export.onnx.runner import OnnxRunner

        path = folder / PROGRAM_FILE
        written = write_generic_onnx(request, path)
        part = OnnxPart(file=PROGRAM_FILE, data=f"{PROGRAM_FILE}.data", opset=written.opset)
        return WrittenProgram(part, OnnxRunner(path, pad_id=request.pad_id), written.low_bit_share)

    def check(self, folder: Path, manifest: Manifest) -> None:
        """Check the file without running it."""
        from msdc.export.onnx.check import check_onnx_file

        path = folder / self._part(manifest).file
        found = {value.name for value in check_onnx_file(path).graph.input}
        wanted = {"input_ids", "attention_mask"} | (set() if manifest.include_prompt else {"prompt_tokens"})
        if found != wanted:
            raise InputError(f"{path}: the program's inputs are {sorted(found)}, not {sorted(wanted)}")

    def start(self, threads: int) -> None:
        """Import the libraries and set the thread count."""
        # Threads belong to a session: `open` sets them.
        import onnxruntime  # noqa: F401

    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """Open a checked program."""
        from msdc.export.onnx.runner import OnnxRunner

        return OnnxRunner(folder / self._part(manifest).file, pad_id=manifest.tokenizer.pad_id, threads=threads)

    def readme(self, manifest: Manifest) -> list[str]:
        """Markdown section for the bundle's README."""
        part = self._part(manifest)
        prompt = [
            "A third input, `prompt_tokens`, int64 [B], counts the tokens at the front of each text that are not",
            "pooled: the prompt alone with its special ids, but for the last one; 0 without a prompt.",
        ]
        return [
            "## ONNX Runtime",
            "",
            "Inputs `input_ids` and `attention_mask`, int64 [B, T], mask 1 on real tokens and 0 on padding; output",
            f"`sentence_embedding`, float32 [B, {manifest.width}].",
            *(prompt if not manifest.include_prompt else []),
            f"Opset {part.opset}. `{part.data}` must lie beside",
            f"`{part.file}`: it holds the weights and is memory-mapped. On a busy machine set the session option",
            "`session.intra_op.allow_spinning` to 0.",
            "",
        ]
