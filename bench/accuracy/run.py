"""Models x data sets -> one result document.

Order of work: read all data, so that a bad file stops the evaluation before a model runs; check contamination; score.
Every text is encoded once per model.
"""

from __future__ import annotations

from typing import Any

from msdc.bench.accuracy.config import EvaluateConfig
from msdc.bench.accuracy.contamination.check import Findings, check
from msdc.bench.accuracy.contender import Contender, Opener, line_up
from msdc.bench.accuracy.document import FORMAT, KIND, Document, read_document
from msdc.bench.accuracy.published.tables import tables
from msdc.bench.accuracy.scoring import Loaded, score_all
from msdc.bench.accuracy.sets.checksums import check_sums
from msdc.bench.accuracy.sets.named_set import find_data_folder
from msdc.bench.accuracy.sets.registry import SETS, SUITES, select_sets
from msdc.bench.accuracy.task import tested_texts
from msdc.errors import InputError
from msdc.machine import versions
from msdc.progress import warn

PACKAGES = ("msdc", "numpy", "scipy", "scikit-learn", "faiss-cpu", "torch", "executorch", "onnxruntime")


def run(config: EvaluateConfig) -> Document:
    """Score every model on every data set; returns the result document.

    Raises:
        InputError: an unknown task, absent data, a bad file (with the line), a model that cannot be opened.
        MsdcError: vectors that cannot be scored.
    """
    check_tasks(config)
    opener = Opener(config)
    main = opener.open(config.model, config.runtime)
    return evaluate_loaded(config, opener, main, load_sets(config))


def check_tasks(config: EvaluateConfig) -> None:
    """Fail early when no task is named.

    Raises:
        InputError: no task.
    """
    if not config.tasks:
        raise InputError(f"no tasks; give --tasks with sets ({', '.join(SETS)}) or suites ({', '.join(SUITES)})")


def load_sets(config: EvaluateConfig) -> Loaded:
    """Read the data of every selected set and compare it with the data folder's checksums.

    Raises:
        InputError: an unknown task, absent data, a bad file (with the line), or a file that differs from its checksum.
    """
    folder = find_data_folder(config.data, config.languages)
    found = select_sets(config.tasks, folder)
    loaded = tuple((one, one.load()) for one in found.sets)
    verified = check_sums(folder.folder, (source for _, data in loaded for source in data.sources))
    return Loaded(loaded, tuple(found.absent), verified)


def evaluate_loaded(config: EvaluateConfig, opener: Opener, main: Contender, loaded: Loaded) -> Document:
    """The result document of data that was read already and a main model that is open.

    Raises:
        InputError: another model cannot be opened, a bad corpus, or a task that needs a second model.
        MsdcError: vectors that cannot be scored.
    """
    contenders, reference = line_up(config, opener, main)
    findings = _contamination(config, loaded)
    results, absent = score_all(config, contenders, reference, loaded, findings)
    for one in [*contenders, *([reference] if reference else [])]:
        one.store.save()
    by_model: dict[str, dict[str, Any]] = {one.label: {} for one in contenders}
    for result in results:
        by_model[result["model"]][result["name"]] = result
    raw = {
        "format": FORMAT,
        "kind": KIND,
        "tasks": list(config.tasks),
        "models": [one.record for one in contenders],
        "results": results,
        "tables": tables(config.tasks, by_model),
        "absent": absent,
        "files_with_listed_sums": loaded.verified,
        "contamination": _contamination_record(config, findings),
        "settings": {
            "resamples": config.options.resamples,
            "seed": config.options.seed,
            "neighbours": config.options.neighbours,
            "margin": config.options.margin,
        },
        "versions": versions(PACKAGES),
    }
    return read_document(raw)


def _contamination(config: EvaluateConfig, loaded: Loaded) -> Findings | None:
    if not config.corpora:
        warn(f"contamination: not checked ({config.no_corpora}); name the model's training corpora with --corpus")
        return None
    tests = {one.name: tested_texts(data) for one, data in loaded.sets if one.task.name != "drift"}
    data = find_data_folder(config.data).folder
    return check(tests, config.corpora, near=config.near, progress=config.options.progress, data=data)


def _contamination_record(config: EvaluateConfig, findings: Findings | None) -> dict[str, Any]:
    if findings is None:
        return {"checked": False, "reason": config.no_corpora}
    return {"checked": True, "near_at": config.near, "corpora": findings.corpora}
