"""Translation retrieval: nearest neighbour of each sentence on the other side, both directions (MKD section 4.3)."""

from __future__ import annotations

import numpy as np

from msdc.bench.accuracy.neighbours import nearest
from msdc.bench.accuracy.readers.parallel import Parallel, read_parallel
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError, MsdcError
from msdc.scores import unit_rows


def score(store: VectorStore, data: Parallel, options: Options) -> Outcome:
    """Accuracy x 100: first to second language, back, and their average (the headline).

    Raises:
        InputError: not exactly two languages, or fewer than two rows.
        MsdcError: NaN vectors, or the same vector for every sentence.
    """
    if len(data.languages) != 2 or len(data) < 2:
        raise InputError(f"{data.name}: needs two languages and two rows, got {data.languages} and {len(data)} rows")
    vectors = unit_rows(store.encode(data.texts(), data.where))
    if np.ptp(vectors, axis=0).max() < 1e-6:
        raise MsdcError(f"{data.name}: {store.name} maps all sentences to one vector; nothing is nearest")
    count = len(data)
    first_ND, second_ND = vectors[:count], vectors[count:]
    own_N = np.arange(count)
    forward_N = nearest(first_ND, second_ND, 1, threads=options.threads)[1][:, 0] == own_N
    backward_N = nearest(second_ND, first_ND, 1, threads=options.threads)[1][:, 0] == own_N
    items = Items("mean", (forward_N.astype(np.float64) + backward_N) / 2)
    return Outcome(
        {
            "accuracy": 100.0 * float(items.values_N.mean()),
            "interval": interval(items, options.resamples, options.seed),
            "forward": 100.0 * float(forward_N.mean()),
            "backward": 100.0 * float(backward_N.mean()),
            "languages": data.languages,
            "pairs": count,
        },
        items,
    )


TASK = Task("tatoeba", "Nearest-neighbour translation retrieval, both directions", "accuracy", read_parallel, score)
