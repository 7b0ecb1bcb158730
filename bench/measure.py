"""What is measured, the same on every device: settings, sentences of the tasks, the artifact, parity.

Accuracy on a device: `collect` the tasks, embed `Tasks.texts` on the device, score the vectors on the host.

Shapes: U distinct texts, N golden texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.bench.accuracy.task import AccuracyTask, Settings, plain
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.bench.options import BenchSettings
from msdc.bench.result import Accuracy, Artifact, DeviceParity, DeviceRun
from msdc.errors import InputError, MsdcError
from msdc.export.golden import UNIT_LENGTH_ERROR, length_error, parity_cosines
from msdc.export.manifest import GOLDEN_FILE, Manifest
from msdc.export.mobile.sizes import deflated
from msdc.export.schema import RuntimeName

USUAL_LENGTHS = (8, 32, 128)
USUAL_TASKS, USUAL_DATA_TASKS = ("graded-pairs",), ("bench",)
RESAMPLES = 1000


def usual_lengths(longest: int) -> tuple[int, ...]:
    """8, 32 and 128 tokens; lengths beyond the artifact's longest input are replaced by it."""
    return tuple(sorted({min(length, longest) for length in USUAL_LENGTHS}))


@dataclass(frozen=True)
class Tasks:
    """Tasks with their data, read and checked: (name as requested, task, data)."""

    loaded: tuple[tuple[str, AccuracyTask, Any], ...]

    def texts(self) -> list[str]:
        """Distinct sentences of all tasks, in order of appearance."""
        return list(dict.fromkeys(text for _, _, data in self.loaded for text in data.texts()))

    def score(self, model: Any) -> tuple[Accuracy, ...]:
        """Scores of `model` (anything with `.encode`); each distinct sentence is encoded once."""
        store, settings = CachedEncoder(model), Settings(resamples=RESAMPLES)
        accuracies = []
        for name, task, data in self.loaded:
            with store.counted() as truncated:
                scores = plain(task.score(store, data.content, settings).scores)
            accuracies.append(Accuracy(task=task.name, name=name, truncated=truncated(), **scores))
        return tuple(accuracies)

    def score_vectors(
        self, name: str, texts: Sequence[str], vectors_UD: np.ndarray,
        count_truncated: Callable[[Sequence[str]], int | None] = lambda texts: None,
    ) -> tuple[Accuracy, ...]:  # fmt: skip
        """Scores of vectors [U, D] that a device computed for `texts`, of which `count_truncated` counts those that it
        read only in part.
        """
        if not self.loaded:
            return ()
        if len(texts) != len(vectors_UD):
            raise MsdcError(f"{name}: {len(vectors_UD)} vectors came back for {len(texts)} texts")
        rows = {text: row for row, text in enumerate(texts)}

        def encode(asked: Sequence[str], **_: Any) -> np.ndarray:
            return vectors_UD[[rows[text] for text in asked]]

        width = int(vectors_UD.shape[1])
        return self.score(SimpleNamespace(name=name, width=width, encode=encode, count_truncated=count_truncated))


def collect(settings: BenchSettings) -> Tasks:
    """Read the data of every requested task, by the names of `msdc evaluate`: graded-pairs, sts17/es-en, sts=FILE."""
    tasks = (USUAL_TASKS if settings.data is None else USUAL_DATA_TASKS) if settings.tasks is None else settings.tasks
    sets, absent = select_sets([name for name in tasks if name != "none"], find_data_folder(settings.data))
    if absent and not sets:
        looked = ", ".join(dict.fromkeys(source["looked_for"] for source in absent))
        raise InputError(f"{settings.data}: no {looked} in it; name other tasks")
    for job in sets:
        if job.task.needs_reference:
            raise InputError(f"task {job.name} compares two models: run it with msdc evaluate")
    return Tasks(tuple((job.name, job.task, job.load()) for job in sets))


def artifact_of(bundle: Path, manifest: Manifest, runtime: RuntimeName) -> Artifact:
    """The artifact of one runtime: its program with external data, and what the device needs with it."""
    part, program_bytes = manifest.part(runtime), manifest.program_bytes(runtime)
    tokenizer = manifest.tokenizer.native_file or manifest.tokenizer.file
    return Artifact(
        bundle=manifest.name,
        runtime=runtime,
        precision=manifest.precision,
        file=part.file,
        bytes=program_bytes,
        sha256=manifest.files[part.file].sha256,
        parameters=manifest.model.parameters,
        delegated_share=manifest.parity[runtime].delegated_share if runtime in manifest.parity else None,
        bundle_bytes=program_bytes + manifest.files[tokenizer].bytes,
        compressed_bytes=deflated([bundle / name for name in (*manifest.program_files(runtime), tokenizer)]),
    )


# Minimum of the mean cosine to the golden vectors; a single text may be ten times as far from 1. Kernels for different
# processors round activations to 8 bits differently (KleidiAI on Arm differs from x86), so two correct results are as
# far from each other as each is from the float model. Wrong kernels are far off: 0.81 to 0.88 where observed.
PARITY_GATE = 0.999
SINGLE_GATE = 1 - 10 * (1 - PARITY_GATE)


def vectors_agree(golden: DeviceParity) -> bool:
    """Whether the device's golden vectors are those of the export, as far as processors may differ."""
    return golden.mean_cosine >= PARITY_GATE and golden.min_cosine >= SINGLE_GATE


def compare_golden(
    golden: dict[str, Any], runtime: RuntimeName, ids: Sequence[Sequence[int]], sentence_ND: np.ndarray
) -> DeviceParity:
    """Compare the device's ids and vectors of the golden texts with those stored at export.

    `golden` is what `msdc.export.golden.read_golden` returns. The reference is the artifact's own vector, not
    the float model's: the question is whether the device computes what the exporting machine computed. The cosine to
    the float model's vectors is the cost of quantization. Cosines do not see lengths: of unit vectors they are checked.
    """
    expected_ND = golden["vectors"].get(runtime)
    if expected_ND is None:
        raise MsdcError(f"{GOLDEN_FILE} holds no vectors of {runtime}: export the bundle again")
    sentence_ND = np.asarray(sentence_ND, dtype=np.float32)
    if sentence_ND.shape != expected_ND.shape or len(ids) != len(golden["ids"]):
        raise MsdcError(f"golden vectors came back as {sentence_ND.shape}, expected {expected_ND.shape}")
    if not np.isfinite(sentence_ND).all():
        row = int(np.flatnonzero(~np.isfinite(sentence_ND).all(axis=1))[0])
        raise MsdcError(f"golden text {row} came back with NaN or infinity")
    lengths_N = np.linalg.norm(expected_ND, axis=1)
    if np.abs(lengths_N - 1).max() < UNIT_LENGTH_ERROR < (error := length_error(expected_ND, sentence_ND)):
        raise MsdcError(f"golden vectors came back with lengths other than 1, by up to {100 * error:.2g} %")
    cosines_N = parity_cosines(expected_ND, sentence_ND)
    float_ND = golden["vectors"].get("float")
    float_N = parity_cosines(float_ND, sentence_ND) if float_ND is not None else None
    pairs = zip(ids, golden["ids"], strict=True)
    differ = [number for number, (row, golden_row) in enumerate(pairs) if list(row) != list(golden_row)]
    return DeviceParity(
        texts=len(ids),
        mean_cosine=round(float(cosines_N.mean()), 7),
        min_cosine=round(float(cosines_N.min()), 7),
        float_mean_cosine=None if float_N is None else round(float(float_N.mean()), 7),
        float_min_cosine=None if float_N is None else round(float(float_N.min()), 7),
        ids_equal=not differ,
        ids_differ=tuple(differ),
    )


def parity_failures(runs: Sequence[DeviceRun]) -> list[str]:
    """One line per run whose golden vectors or token ids differ from those of the export."""
    failures = []
    for run in runs:
        if run.parity is not None and not vectors_agree(run.parity):
            mean, least = f"{run.parity.mean_cosine:.4f}", f"{run.parity.min_cosine:.4f}"
            gates = f"(gates {PARITY_GATE} and {SINGLE_GATE:.3g})"
            failures.append(f"{run.title}: golden vectors agree only to mean cosine {mean}, lowest {least} {gates}")
        if run.parity is not None and not run.parity.ids_equal:
            failures.append(f"{run.title}: {len(run.parity.ids_differ)} golden texts get other token ids")
    return failures
