"""Cross-lingual sentence retrieval (XSR, LXS section 4.2): 2,000 queries, one answer each, 200,000 candidates.

Shapes: N queries, M candidates, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from msdc.bench.accuracy.neighbours import gold_ranks
from msdc.bench.accuracy.readers.parallel import Parallel, read_parallel
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import unit_rows
from msdc.text.text_files import SourceFile, read_lines


@dataclass(frozen=True)
class Pool:
    """Queries with one answer each (a translation), and distractors that answer no query."""

    pairs: Parallel
    distractors: list[str]
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """Name of the pairs."""
        return self.pairs.name

    def __len__(self) -> int:
        return len(self.pairs)

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return self.pairs.texts() + self.distractors

    def test_texts(self) -> list[str]:
        """Sentences that are scored."""
        return self.pairs.texts()


def read_pool(path: str | Path) -> Pool:
    """Parallel sentences (queries in the first language, answers in the second) and `NAME.pool.txt[.gz]` beside them.

    Raises:
        InputError: see `read_parallel`.
    """
    path = Path(path)
    pairs = read_parallel(path)
    stem = path.name.split(".tsv")[0]
    places = [path.with_name(f"{stem}.pool.txt{end}") for end in ("", ".gz")]
    beside = next((place for place in places if place.is_file()), None)
    if beside is None:
        return Pool(pairs, [], pairs.sources, pairs.notes)
    pool = read_lines(beside)
    distractors = [line.strip() for line in pool.lines if line.strip()]
    return Pool(pairs, distractors, [*pairs.sources, pool.source], pairs.notes)


def score(store: VectorStore, data: Pool, options: Options) -> Outcome:
    """P@1 and MRR x 100 over the whole pool; distractors fill the pool up to `options.candidates`.

    Equal texts are one candidate. Ties with the answer give the expected result of breaking them at random, so that a
    model with one vector for every text gets 1 / M, not 1.

    Raises:
        InputError: not two languages.
    """
    if len(data.pairs.languages) != 2:
        raise InputError(f"{data.name}: needs two languages, got {data.pairs.languages}")
    queries, answers = data.pairs.sides.values()
    queries, answers = queries[: options.queries], answers[: options.queries]
    distinct = list(dict.fromkeys(answers))
    known = set(distinct)
    for text in data.distractors:
        if len(distinct) >= options.candidates:
            break
        if text not in known:
            known.add(text)
            distinct.append(text)
    position = {text: row for row, text in enumerate(distinct)}
    gold_N = np.array([position[answer] for answer in answers])
    queries_ND = unit_rows(store.encode(queries, data.pairs.where))
    candidates_MD = unit_rows(store.encode(distinct))
    above_N, level_N = gold_ranks(queries_ND, candidates_MD, gold_N, threads=options.threads)
    first = Items("mean", np.where(above_N == 0, 1.0 / (1 + level_N), 0.0))
    # mean of 1 / rank over the ranks that the tied candidates share
    reciprocal_N = np.array(
        [np.mean(1.0 / np.arange(above + 1, above + level + 2)) for above, level in zip(above_N, level_N, strict=True)]
    )
    return Outcome(
        {
            "p_at_1": 100.0 * float(first.values_N.mean()),
            "interval": interval(first, options.resamples, options.seed),
            "mrr": 100.0 * float(reciprocal_N.mean()),
            "queries": len(queries),
            "candidates": len(distinct),
            "tied": int((level_N > 0).sum()),
            "languages": data.pairs.languages,
            "pairs": len(queries),
        },
        first,
    )


TASK = Task("retrieval", "XSR: P@1 and MRR of translations in a large pool", "p_at_1", read_pool, score)
