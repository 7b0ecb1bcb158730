"""Training: corpora, objectives, tasks, trainer, recipes. The verb is `distill`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msdc.arguments import checked
from msdc.errors import InputError

if TYPE_CHECKING:
    from msdc.distill.recipe import Recipe
    from msdc.distill.run import RunResult

__all__ = ["distill", "fill_teacher_cache"]
MOST_HOURS = 10_000


@checked
def distill(
    recipe: str | os.PathLike[str] | Mapping[str, Any] | Recipe,
    output: str | os.PathLike[str] | None = None,
    resume: bool = False,
    *,
    overrides: Sequence[str] = (),
    data: str | os.PathLike[str] | None = None,
    trackers: Sequence[str] = (),
    extendable: bool = False,
    hours: float | None = None,
) -> RunResult:
    """Train a student with a recipe, as `msdc distill` does.

    Args:
        recipe: the name of a shipped recipe (`quickstart`, `msd:bool`), a file, a mapping as in such a file, or a
            `Recipe`.
        output: the run folder (see msdc.distill.run_folder); None: runs/NAME.
        resume: continue a stopped run, or a finished one to more steps of its last stage. The weights are bit for bit
            those of an uninterrupted run.
        overrides: changes by key: `stages.train.steps=2000`, `corpora.TED2020.limit=10000`.
        data: the folder that replaces `{data}` in the recipe.
        trackers: any of tensorboard, wandb, trackio, mlflow.
        extendable: keep the final state, so that a finished run can be resumed to more steps.
        hours: end in good order after about this time: each stage gets its share of it, its learning rate falls within
            that share, and the best weights are kept.

    Example:
        ```python
        from msdc.distill import distill

        result = distill("quickstart", "runs/first", overrides=["stages.contrast.steps=50"])
        student = msdc.load_encoder(result.student)
        print(result.stages["contrast"]["heldout_accuracy"])
        ```

    Raises:
        InputError: the recipe or the folder is invalid; nothing was written.
        MsdcError: training failed; `resume` continues from the last checkpoint.
    """
    from msdc.distill.catalog import load_recipe
    from msdc.distill.run import Run

    if hours is not None and not 0 < hours < MOST_HOURS:
        raise InputError(f"`hours` {hours}: expected a number above 0, at most {MOST_HOURS}")
    resolved = load_recipe(recipe, overrides, data)
    folder = Path("runs") / resolved.name if output is None else Path(output)
    return Run(resolved, folder, resume, trackers=trackers, extendable=extendable, hours=hours).run()


@checked
def fill_teacher_cache(
    model: str | Path,
    texts: Iterable[str],
    *,
    max_length: int = 128,
    precision: Literal["auto", "float32", "bfloat16"] = "auto",
    prompted: bool = False,
    cache: str | os.PathLike[str] | None = None,
) -> int:
    """Compute a teacher's vectors of `texts` before a training, in any number of processes; returns how many were new.

    The other arguments are those of the recipe; `prompted` texts begin with `teacher_prompts`.
    """
    from msdc.compress.loading import load_torch_encoder
    from msdc.distill import parallel
    from msdc.distill.teacher import CachedTeacher, default_cache, fill

    if isinstance(texts, str):
        raise InputError("`texts`: one text; expected an iterable of texts")
    encoder, device = load_torch_encoder(model), parallel.own_device()
    encoder.module.to(device)
    folder = default_cache() if cache is None else Path(cache).expanduser()
    chosen = parallel.resolve_precision(precision, device)
    return fill(CachedTeacher(encoder, folder, max_length, chosen, prompted=prompted), texts)
