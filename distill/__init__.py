"""Teaching: corpora, targets, objectives, tasks, trainer, recipes. The verb is `distill`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msdc.distill.recipe import Recipe
    from msdc.distill.run import RunResult


def distill(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    *,
    overrides: Sequence[str] = (),
    data: str | os.PathLike[str] | None = None,
    trackers: Sequence[str] = (),
    extendable: bool = False,
    reuse: Sequence[Path] = (),
) -> RunResult:
    """Train a student with a recipe, as `msdc distill` does.

    Args:
        recipe: the name of a shipped recipe (`quickstart`, `msd:bool`), a file, a mapping as in such a file, or a
            `Recipe`, which is taken as it is.
        output: the run folder, which msdc.distill.run_folder describes; None: runs/NAME.
        resume: continue a run that was stopped, or on to more steps of its last stage; bit for bit the uninterrupted.
        overrides: changes as of `--set`: `stages.train.steps=2000`, `corpora.TED2020.limit=10000`.
        data: the folder that `{data}` in the recipe stands for.
        trackers: of tensorboard, wandb, trackio, mlflow.
        extendable: keep the state at the end, so that a finished run can go on to more steps.
        reuse: run folders whose finished stages are taken over where this run would repeat them.

    Example:
        ```python
        from msdc.distill import distill

        result = distill("quickstart", "runs/first", overrides=["stages.contrast.steps=50"])
        student = msdc.load_encoder(result.student)
        print(result.stages["contrast"]["heldout_accuracy"])
        ```

    Raises:
        InputError: something is wrong with the recipe or the folder; nothing is written then.
        MsdcError: training failed; `resume` continues from the last checkpoint.
    """
    from msdc.distill.catalog import load_recipe
    from msdc.distill.run import Run

    resolved = load_recipe(recipe, overrides, data)
    folder = Path("runs") / resolved.name if output is None else Path(output)
    return Run(resolved, folder, resume, reuse, trackers, extendable).run()
