"""The evaluation behind a model card, in one command: `msdc evaluate MODEL --tasks card`.

The sets of the suite are in `msdc.bench.accuracy.sets.registry`. `evaluate_card` composes an export and an evaluation:
what the user did not name is filled in. Artifacts are MODEL exported for both runtimes, in its own precision or int8;
languages are those of the model's card; the training text to search for test sentences is that of the recipe in the
model's run folder, or of the shipped recipe with the model's name.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from msdc.bench.accuracy.config import EvaluateConfig
from msdc.bench.accuracy.contamination.corpora import corpus_streams
from msdc.bench.accuracy.contender import Contender, Opener
from msdc.bench.accuracy.document import Document
from msdc.bench.accuracy.run import check_tasks, evaluate_loaded, load_sets
from msdc.bench.accuracy.sets.languages import SHIPPED
from msdc.bench.accuracy.sets.named_set import find_data_folder
from msdc.errors import InputError
from msdc.progress import warn

RECIPE = "recipe.yaml"


def evaluate_card(config: EvaluateConfig) -> Document:
    """Export the model, then score it and its artifacts on `config.tasks`; returns the result document.

    All data is read before the export, so that a bad file stops the command early.

    Raises:
        InputError: absent or bad data, or a model that cannot be opened or exported.
        MsdcError: vectors that cannot be scored.
    """
    check_tasks(config)
    opener = Opener(config)
    main = opener.open(config.model, config.runtime)
    languages = config.languages or tuple(main.record.get("languages") or card_languages(main.folder))
    loaded = load_sets(replace(config, languages=languages))
    corpora, why = _training_text(config, main)
    with contextlib.ExitStack() as kept:
        artifacts = config.artifacts
        if main.record["kind"] == "float" and not artifacts:
            artifacts = (kept.enter_context(exported(config.model)),)
        complete = replace(
            config, languages=languages, artifacts=artifacts, corpora=corpora, no_corpora=why or config.no_corpora
        )
        return evaluate_loaded(complete, opener, main, loaded)


def card_languages(folder: Path | None) -> tuple[str, ...]:
    """Languages named in a model folder's card, or those of the shipped student."""
    from msdc.export.model_card import read_card

    return read_card(folder).languages or SHIPPED


def training_recipe(folder: Path | None, name: str) -> str | None:
    """The recipe a model was trained with: that of its run folder, or the shipped one of its name."""
    from msdc.distill.catalog import shipped

    beside = folder.resolve().parent / RECIPE if folder is not None else None
    if beside is not None and beside.is_file():
        return str(beside)
    return name if name in shipped() else None


@contextlib.contextmanager
def exported(model: str, runtimes: str = "both") -> Iterator[str]:
    """A bundle of `model` in a temporary folder that is removed when the context ends.

    Gates are not enforced: the card states what an artifact scores, also where `msdc export` would refuse it.

    Raises:
        InputError: a model that cannot be exported.
    """
    from msdc.export.export import ExportRequest, export_model

    with tempfile.TemporaryDirectory(prefix="msdc-card-") as folder:
        out = Path(folder) / "bundle"
        _, manifest = export_model(ExportRequest(model, "linux", runtime=runtimes, out=out, gates=False))
        short = [runtime for runtime, parity in manifest.parity.items() if not parity.passed]
        if short:
            warn(f"card: msdc export would refuse this model for {' and '.join(short)}: a gate is not met")
        yield str(out)


def _training_text(config: EvaluateConfig, main: Contender) -> tuple[tuple[str | Path, ...], str]:
    """The corpora to search, and why there are none."""
    recipe = training_recipe(main.folder, main.record["model"])
    if config.corpora or recipe is None:
        return config.corpora, ""
    return readable_corpora(recipe, find_data_folder(config.data).folder)


def readable_corpora(recipe: str, data: Path | None = None) -> tuple[tuple[str, ...], str]:
    """(the recipe as a corpus, ""), or ((), the reason) where its text cannot be read; `data` is the data folder."""
    try:
        corpus_streams([recipe], data)
    except InputError as error:
        return (), str(error)
    return (recipe,), ""
