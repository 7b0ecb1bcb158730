"""The record of ExecuTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from msdc.export.records import GenericRequest, ProgramPart, ProgramRequest, Runner, Runtime, Small, WrittenProgram

if TYPE_CHECKING:
    from msdc.export.manifest import Manifest

PROGRAM_FILE = "model.pte"
Style = Literal["multi-method", "forward"]


class ExecutorchPart(ProgramPart):
    """A `.pte`: `multi-method` (embed, unit x repeats, pool) or one `forward`."""

    style: Style
    repeats: Small


class ExecutorchRuntime(Runtime):
    """A `.pte` lowered to the XNNPACK delegate."""

    name = "executorch"
    title = "ExecuTorch"
    package = "executorch"
    part = ExecutorchPart
    made_with = ("executorch", "torchao")
    runs_with = ("executorch", "torch")
    engine = "engine_executorch.cpp"

    @staticmethod
    def _part(manifest: Manifest) -> ExecutorchPart:
        part = manifest.part("executorch")
        assert isinstance(part, ExecutorchPart)
        return part

    def write(self, request: ProgramRequest, folder: Path) -> WrittenProgram:
        """Write, check and open the program."""
        from msdc.export.executorch.lower import write_executorch
        from msdc.export.executorch.origin import remember_exported
        from msdc.export.executorch.runner import ExecutorchRunner

        path, repeats = folder / PROGRAM_FILE, request.smoothed.weights.config.repeats
        part = ExecutorchPart.model_validate({"file": PROGRAM_FILE, "style": request.style, "repeats": repeats})
        share = write_executorch(request.smoothed, request.plan, path, max_length=request.max_length, style=part.style)
        remember_exported(path)
        return WrittenProgram(part, ExecutorchRunner(path, style=part.style, repeats=repeats), share)

    def write_generic(self, request: GenericRequest, folder: Path) -> WrittenProgram:
        """Write, check and open the program of any model, as one `forward`."""
        from msdc.export.executorch.origin import remember_exported
        from msdc.export.executorch.runner import ExecutorchRunner
        from msdc.export.generic.executorch import write_generic_executorch

        path = folder / PROGRAM_FILE
        lowered = write_generic_executorch(request, path)
        remember_exported(path)
        part = ExecutorchPart(file=PROGRAM_FILE, style="forward", repeats=1)
        runner = ExecutorchRunner(path, style="forward", repeats=1, takes_prompt=request.model.takes_prompt)
        return WrittenProgram(part, runner, lowered.low_bit_share, lowered.delegated_share, lowered.outside)

    def check(self, folder: Path, manifest: Manifest) -> None:
        """Check the file without running it here; one of unknown origin is run in a child process."""
        from msdc.export.executorch.origin import require_known
        from msdc.export.executorch.pte import check_pte

        part = self._part(manifest)
        constants = {
            "repeats": part.repeats,
            "width": manifest.width,
            "max_length": manifest.max_length,
            "vocabulary": manifest.vocabulary,
        }
        check_pte(folder / part.file, style=part.style, constants=constants, inputs=1 if manifest.include_prompt else 2)
        require_known(
            folder / part.file, manifest.files[part.file].sha256, style=part.style, repeats=part.repeats,
            max_length=manifest.max_length, vocabulary=manifest.vocabulary, takes_prompt=not manifest.include_prompt,
        )  # fmt: skip

    def start(self, threads: int) -> None:
        """Import the libraries and set the thread count."""
        import executorch.kernels.quantized
        import executorch.runtime  # noqa: F401

        from msdc.export.executorch.runner import set_executorch_threads

        set_executorch_threads(threads)

    def open(self, folder: Path, manifest: Manifest, threads: int | None = None) -> Runner:
        """Open a checked program."""
        from msdc.export.executorch.runner import ExecutorchRunner

        part = self._part(manifest)
        return ExecutorchRunner(
            folder / part.file,
            style=part.style,
            repeats=part.repeats,
            threads=threads,
            takes_prompt=not manifest.include_prompt,
        )

    def readme(self, manifest: Manifest) -> list[str]:
        """Markdown section for the bundle's README."""
        part = self._part(manifest)
        if not manifest.include_prompt:
            steps = [
                "`forward(ids int64 [1, T], prompt_tokens int64 [1]) -> float32 [1, D]`. `prompt_tokens` counts the",
                "tokens at the front that are not pooled: the prompt alone with its special ids, but for the last one;",
                "0 without a prompt.",
            ]
        elif part.style == "forward":
            steps = ["`forward(ids int64 [1, T]) -> float32 [1, D]`."]
        else:
            steps = [
                "`embed(ids int64 [1, T]) -> hidden [1, T, H]`, then `unit(hidden) -> hidden` called "
                f"**{part.repeats}** time{'s' if part.repeats > 1 else ''}, then `pool(hidden) -> float32 [1, D]`.",
                "The unit's weights are stored and packed once, however often it is called.",
            ]
        return [
            "## ExecuTorch",
            "",
            *steps,
            f"T is 1 to {manifest.max_length}, without padding; D is {manifest.width}.",
            "Constant methods `repeats`, `width`, `max_length` and `vocabulary` give the same numbers as the manifest.",
            "Link the XNNPACK backend and the optimized and quantized kernels. Load the program memory-mapped: the",
            "token table is then paged in row by row instead of being read whole.",
            "",
        ]
