"""Evaluations of retrieval: Tatoeba's nearest neighbours, XSR's large pool, bitext mining.

Shapes: N queries, M candidates of a pool, C mined candidates, D width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msdc.bench.accuracy.neighbours import gold_ranks, mine, nearest
from msdc.bench.accuracy.parallel import Parallel, read_parallel
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import AccuracyTask, Outcome, Settings, TaskData
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError, MsdcError
from msdc.files import without_system_files
from msdc.scores import unit_rows
from msdc.text.answers import equal_form, right_answers
from msdc.text.text_files import Lines, SourceFile, read_lines


def score_tatoeba(store: CachedEncoder, data: Parallel, settings: Settings) -> Outcome:
    """Accuracy x 100 of the nearest neighbour on the other side (MKD section 4.3): both directions and the average.

    Of equal sentences each is right (`right_answers`).
    """
    if len(data.languages) != 2 or len(data) < 2:
        raise InputError(f"{data.name}: needs two languages and two rows, got {data.languages} and {len(data)} rows")
    vectors = unit_rows(store.encode(data.texts(), data.where))
    if np.ptp(vectors, axis=0).max() < 1e-6:
        raise MsdcError(f"{data.name}: {store.name} maps all sentences to one vector; nothing is nearest")
    first_ND, second_ND = np.split(vectors, 2)
    first, second = data.two_sides()
    forward_N = right_answers(first, second, nearest(first_ND, second_ND, threads=settings.threads))
    backward_N = right_answers(second, first, nearest(second_ND, first_ND, threads=settings.threads))
    items = Items((forward_N.astype(np.float64) + backward_N) / 2)
    return Outcome(
        {
            "accuracy": 100.0 * float(items.values_N.mean()),
            "interval": interval(items, settings.resamples, settings.seed),
            "forward": 100.0 * float(forward_N.mean()),
            "backward": 100.0 * float(backward_N.mean()),
            "languages": data.languages,
            "pairs": len(data),
        },
        items,
    )


# Cross-lingual sentence retrieval (XSR, LXS section 4.2): 2,000 queries, one answer each, 200,000 candidates.


def read_pool(path: str | Path) -> TaskData:
    """Parallel sentences (queries, then answers) and distractors in `NAME.pool.txt[.gz]` next to them."""
    path = Path(path)
    pairs = read_parallel(path)
    files = [path.with_name(f"{path.name.split('.tsv')[0]}.pool.txt{end}") for end in ("", ".gz")]
    pools = [read_lines(file) for file in files if file.is_file()][:1]
    distractors = [line.strip() for pool in pools for line in pool.lines if line.strip()]
    return pool_data(pairs, distractors, [pool.source for pool in pools])


def pool_data(pairs: Parallel, distractors: list[str], sources: list[SourceFile]) -> TaskData:
    """Queries with one answer each (a translation), and distractors that answer no query."""
    sources = pairs.sources + sources
    return TaskData(pairs.name, (pairs, distractors), pairs.texts(), distractors, sources, pairs.notes)


def score_xsr(store: CachedEncoder, data: tuple[Parallel, list[str]], settings: Settings) -> Outcome:
    """P@1 and MRR x 100 over the whole pool; distractors fill the pool up to `settings.candidates`.

    Equal texts are one candidate, and an equal query shares its answers. Ties with the answer give the expected result
    of breaking them at random, so that a model with one vector for every text gets 1 / M, not 1.
    """
    pairs, distractors = data
    queries, answers = (side[: settings.queries] for side in pairs.two_sides())
    unique = dict.fromkeys(answers)
    distinct = list(dict.fromkeys([*unique, *distractors]))[: max(len(unique), settings.candidates)]
    rows: dict[str, list[int]] = {}  # candidates by their equal form
    for row, text in enumerate(distinct):
        rows.setdefault(equal_form(text), []).append(row)
    gold: dict[str, set[int]] = {}
    for query, answer in zip(map(equal_form, queries), answers, strict=True):
        gold.setdefault(query, set()).update(rows[equal_form(answer)])
    queries_ND = unit_rows(store.encode(queries, pairs.where))
    candidates_MD = unit_rows(store.encode(distinct))
    above_N, level_N = gold_ranks(
        queries_ND, candidates_MD, [sorted(gold[equal_form(query)]) for query in queries], threads=settings.threads
    )
    first = Items(np.where(above_N == 0, 1.0 / (1 + level_N), 0.0))
    # mean of 1 / rank over the ranks that the tied candidates share
    reciprocal_N = np.array(
        [np.mean(1.0 / np.arange(above + 1, above + level + 2)) for above, level in zip(above_N, level_N, strict=True)]
    )
    return Outcome(
        {
            "p_at_1": 100.0 * float(first.values_N.mean()),
            "interval": interval(first, settings.resamples, settings.seed),
            "mrr": 100.0 * float(reciprocal_N.mean()),
            "queries": len(queries),
            "candidates": len(distinct),
            "tied": int((level_N > 0).sum()),
            "languages": pairs.languages,
            "pairs": len(queries),
        },
        first,
    )


# Bitext mining as BUCC scores it (MKD section 4.2; Artetxe and Schwenk 2019). Its files: `de-en.training.de` and `.en`
# (id, tab, sentence), `.gold` (id, tab, id).


class Split(NamedTuple):
    """Two unaligned collections and the positions of their translations; `gold` is None where it is not published."""

    source: list[str]
    target: list[str]
    gold: set[tuple[int, int]] | None

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return self.source + self.target

    def distinct(self) -> Split:
        """The same with each sentence once: an equal one is as right a translation."""
        source, target = list(dict.fromkeys(self.source)), list(dict.fromkeys(self.target))
        rows = [{text: row for row, text in enumerate(side)} for side in (source, target)]
        pairs = self.gold and {
            (rows[0][self.source[first]], rows[1][self.target[second]]) for first, second in self.gold
        }
        return Split(source, target, pairs)


def mining_data(
    name: str, training: Split, test: Split | None, sources: list[SourceFile], notes: list[str]
) -> TaskData:
    """A training split, for the threshold, and a test split where there is one."""
    others = training.texts() if test else []
    return TaskData(name, (training, test), (test or training).texts(), others, sources, notes)


def _two_columns(lines: Lines) -> list[tuple[str, str]]:
    """Both cells of each line."""
    rows = [line.split("\t") for line in lines.lines]
    for number, cells in enumerate(rows, start=1):
        if len(cells) != 2 or not all(cell.strip() for cell in cells):
            raise lines.error(number, "expected two tab-separated cells, an id and a sentence (or two ids in .gold)")
    return [(first.strip(), second.strip()) for first, second in rows]


def _read_split(prefix: Path) -> tuple[Split, list[Lines]]:
    """One split from `prefix.LANGUAGE` (two files) and `prefix.gold` where it exists."""
    files = {p.name.removesuffix(".gz").rsplit(".", 1)[1]: p for p in sorted(prefix.parent.glob(f"{prefix.name}.*"))}
    gold_file = files.pop("gold", None)
    if len(files) != 2:
        raise InputError(f"{prefix}.*: {len(files)} language files, expected two, as de-en.training.de and .en")
    # BUCC names the split by its pair, de-en.training: the first language is the source
    order = prefix.name.split(".")[0].split("-")
    codes = sorted(files, key=lambda code: order.index(code) if code in order else 9)
    read = [read_lines(files[code]) for code in codes]
    rows = [_two_columns(lines) for lines in read]
    places = [{identifier: row for row, (identifier, _) in enumerate(side)} for side in rows]
    for lines, side, index in zip(read, rows, places, strict=True):
        if len(index) < len(side):
            repeated = next(row for row, (identifier, _) in enumerate(side) if index[identifier] != row)
            raise lines.error(index[side[repeated][0]] + 1, f"the id {side[repeated][0]!r} is a duplicate")
    source, target = ([text for _, text in side] for side in rows)
    gold: set[tuple[int, int]] | None = None
    if gold_file is not None:
        read.append(read_lines(gold_file))
        gold = set()
        for number, pair in enumerate(_two_columns(read[-1]), start=1):
            if missing := [word for word, index in zip(pair, places, strict=True) if word not in index]:
                raise read[-1].error(number, f"the id {missing[0]!r} is in no sentence file")
            gold.add((places[0][pair[0]], places[1][pair[1]]))
    return Split(source, target, gold), read


def read_bucc(path: str | Path) -> TaskData:
    """A folder with `XX-en.training.*` and, where published, `XX-en.test.*`; or the prefix of one pair in it."""
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    pattern = "*.training.gold*" if path.is_dir() else f"{path.name.split('.')[0]}.training.gold*"
    golds = without_system_files(folder.glob(pattern))
    if len(golds) != 1:
        names = ", ".join(p.name for p in golds) or "none"
        raise InputError(f"{path}: expected one XX-en.training.gold, found {names}; name one pair as FOLDER/de-en")
    pair = golds[0].name.split(".training.gold")[0]
    training, lines = _read_split(folder / f"{pair}.training")
    test, more_lines = _read_split(folder / f"{pair}.test") if list(folder.glob(f"{pair}.test.*")) else (None, [])
    lines += more_lines
    notes = [f"{file.path.name} {note}" for file in lines for note in file.notes]
    if test is not None and test.gold is None:
        notes.append("the test split has no gold file: scored on the training split only")
        test = None
    return mining_data(pair, training, test, [file.source for file in lines], notes)


def best_threshold(score_C: np.ndarray, right_C: np.ndarray, gold: int) -> float:
    """The threshold of the best F1: halfway between the last accepted and the first rejected score.

    It is between two different scores, since a threshold cannot separate equal ones.
    """
    if not len(score_C):
        return 0.0
    hits_C = right_C.cumsum()
    f1_C = 2 * hits_C / (np.arange(1, len(score_C) + 1) + gold)
    following_C = np.append(score_C[1:], score_C[-1] - 2 * abs(score_C[-1]) - 1.0)
    f1_C = np.where(score_C > following_C, f1_C, -1.0)
    cut = int(f1_C.argmax())
    return float((score_C[cut] + following_C[cut]) / 2) if cut + 1 < len(score_C) else float(score_C[cut])


def scores_at(score_C: np.ndarray, right_C: np.ndarray, gold: int, threshold: float) -> dict[str, Any]:
    """Precision, recall and F1 x 100 of the candidates at or above `threshold`."""
    taken = int((score_C >= threshold).sum())
    hits = int(right_C[:taken].sum())
    precision = hits / taken if taken else 0.0
    recall = hits / gold if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall, "extracted": taken, "gold": gold}


def score_mining(store: CachedEncoder, data: tuple[Split, Split | None], settings: Settings) -> Outcome:
    """F1, precision and recall x 100 on the test split, at the threshold that was best on the training split.

    Without published test gold the training split is scored at its own best threshold; `split` in the result names it.
    """

    def mined(split: Split) -> tuple[np.ndarray, np.ndarray, int]:
        source_C, target_C, score_C = mine(
            unit_rows(store.encode(split.source)), unit_rows(store.encode(split.target)), k=settings.neighbours,
            kind=settings.margin, threads=settings.threads, progress=settings.progress,
        )  # fmt: skip
        gold = split.gold or set()
        pairs = zip(source_C.tolist(), target_C.tolist(), strict=True)
        return score_C, np.array([pair in gold for pair in pairs], dtype=bool), len(gold)

    training_split, test_split = (split and split.distinct() for split in data)
    if training_split is None or not training_split.gold:
        raise InputError("the training split has no gold pairs, so there is no threshold")
    answers = mined(training_split)
    threshold = best_threshold(*answers)
    training = scores_at(*answers, threshold)
    final, split, shown = training, "training", training_split
    if test_split is not None and test_split.gold:
        final, split, shown = scores_at(*mined(test_split), threshold), "test", test_split
    return Outcome(
        {
            **final,
            "split": split,
            "threshold": threshold,
            "margin": settings.margin,
            "neighbours": settings.neighbours,
            "sources": len(shown.source),
            "targets": len(shown.target),
            "training": training,
            "pairs": final["gold"],
        }
    )


MINING = AccuracyTask(
    "mining", "Bitext mining: margin over k neighbours, threshold from training, F1", "f1", read_bucc, score_mining
)
TATOEBA = AccuracyTask(
    "tatoeba", "Nearest-neighbour translation retrieval, both directions", "accuracy",
    lambda path: TaskData.of(read_parallel(path)), score_tatoeba,
)  # fmt: skip
XSR = AccuracyTask("xsr", "P@1 and MRR of translations in a large pool", "p_at_1", read_pool, score_xsr)
