"""Parts of a result from a device's answer; the same for every device.

Shapes: N golden texts, D sentence width.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.result import Artifact, Parity
from msdc.errors import MsdcError
from msdc.export.manifest import GOLDEN_FILE, Manifest
from msdc.export.mobile.sizes import deflated
from msdc.export.runtimes import RuntimeName
from msdc.scores import cosine_rows


@functools.lru_cache(maxsize=32)
def _compressed(paths: tuple[Path, ...], hashes: tuple[str, ...]) -> int:
    # `hashes` make another entry of a bundle that was exported again.
    return deflated(paths)


def artifact_of(bundle: Path, manifest: Manifest, runtime: RuntimeName) -> Artifact:
    """The artifact of one runtime: its program with external data, and what the device needs with it."""
    part, program_bytes = manifest.part(runtime), manifest.program_bytes(runtime)
    tokenizer = manifest.tokenizer.native_file or manifest.tokenizer.file
    names = (*manifest.program_files(runtime), tokenizer)
    compressed = _compressed(
        tuple(bundle.resolve() / name for name in names), tuple(manifest.files[name].sha256 for name in names)
    )
    return Artifact(
        bundle=manifest.name,
        runtime=runtime,
        precision=manifest.precision,
        file=part.file,
        bytes=program_bytes,
        sha256=manifest.files[part.file].sha256,
        parameters=manifest.model.parameters,
        bundle_bytes=program_bytes + manifest.files[tokenizer].bytes,
        compressed_bytes=compressed,
    )


# Minimum of the mean cosine to the golden vectors; a single text may be ten times as far from 1. Kernels for different
# processors round activations to 8 bits differently (KleidiAI on Arm differs from x86), so two correct results are as
# far from each other as each is from the float model. Wrong kernels are far off: 0.81 to 0.88 where observed.
PARITY_GATE = 0.999
SINGLE_GATE = 1 - 10 * (1 - PARITY_GATE)


def vectors_agree(golden: Parity) -> bool:
    """Whether the device's golden vectors are those of the export, as far as processors may differ."""
    return golden.mean_cosine >= PARITY_GATE and golden.min_cosine >= SINGLE_GATE


def compare_golden(
    golden: dict[str, Any], runtime: RuntimeName, ids: Sequence[Sequence[int]], sentence_ND: np.ndarray
) -> Parity:
    """Compare the device's ids and vectors of the golden texts with those stored at export.

    `golden` is what `msdc.export.golden.read_golden` returns. The reference is the artifact's own vector, not
    the float model's: the question is whether the device computes what the exporting machine computed. The cosine to
    the float model's vectors says what quantization costs.

    Raises:
        MsdcError: an unexpected number of rows or width, or a value that is not finite.
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
    cosines_N = cosine_rows(expected_ND, sentence_ND)
    float_ND = golden["vectors"].get("float")
    float_N = cosine_rows(float_ND, sentence_ND) if float_ND is not None else None
    differ = [i for i, (mine, theirs) in enumerate(zip(ids, golden["ids"], strict=True)) if list(mine) != list(theirs)]
    return Parity(
        texts=len(ids),
        mean_cosine=round(float(cosines_N.mean()), 7),
        min_cosine=round(float(cosines_N.min()), 7),
        float_mean_cosine=None if float_N is None else round(float(float_N.mean()), 7),
        float_min_cosine=None if float_N is None else round(float(float_N.min()), 7),
        ids_equal=not differ,
        ids_differ=tuple(differ),
    )
