"""What a model card states, in one command: `msdc evaluate MODEL --tasks card`.

The suite's sets are in `sets`. Beyond them the card fills in what the user did not name: the artifacts (MODEL exported
for both runtimes, in its own precision or int8), the languages (those of the model's card), and the training text to
look for test sentences in (the recipe of the model's run folder, or the shipped recipe of its name).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msdc.bench.accuracy.sets.languages import SHIPPED
from msdc.errors import InputError
from msdc.progress import say

SUITE = "card"
RECIPE = "recipe.yaml"


def card_languages(folder: Path | None) -> tuple[str, ...]:
    """Languages of a model folder's card, or those of the shipped student."""
    from msdc.export.model_card import read_card

    return read_card(folder).languages or SHIPPED


def training_recipe(folder: Path | None, name: str) -> str | None:
    """The recipe a model was taught with: of the run folder it lies in, or the shipped one of its name."""
    from msdc.distill.catalog import shipped

    beside = folder.resolve().parent / RECIPE if folder is not None else None
    if beside is not None and beside.is_file():
        return str(beside)
    return name if name in shipped() else None


@contextlib.contextmanager
def exported(model: str, runtimes: str = "both") -> Iterator[str]:
    """A bundle of `model` for as long as the context lasts.

    Gates are left out: the card is to say what an artifact scores, also of one that an export would refuse.

    Raises:
        InputError: a model that cannot be exported.
    """
    from msdc.export.export import ExportRequest, export_model

    with tempfile.TemporaryDirectory(prefix="msdc-card-") as folder:
        out = Path(folder) / "bundle"
        _, manifest = export_model(ExportRequest(model, "linux", runtime=runtimes, out=out, gates=False))
        short = [runtime for runtime, parity in manifest.parity.items() if not parity.passed]
        if short:
            say(f"card: msdc export would refuse this model for {' and '.join(short)}: a gate falls short")
        yield str(out)


@contextlib.contextmanager
def data_variable(folder: Path | None) -> Iterator[None]:
    """Recipes look for their corpora under MSDC_DATA: the folder given, for as long as the context lasts."""
    from msdc.bench.accuracy.sets.place import ENVIRONMENT

    before = os.environ.get(ENVIRONMENT)
    if folder is not None:
        os.environ[ENVIRONMENT] = str(folder)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(ENVIRONMENT, None)
        else:
            os.environ[ENVIRONMENT] = before


def readable_corpora(recipe: str) -> tuple[tuple[str, ...], str]:
    """(the recipe as a corpus, ""), or ((), why its text cannot be read here)."""
    from msdc.bench.accuracy.corpora import corpus_streams

    try:
        corpus_streams([recipe])
    except InputError as error:
        return (), str(error)
    return (recipe,), ""
