"""Remote data: a data set of the hub by its id, or a task of `mteb` where that is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.task import Data, Task
from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.text.scored_pairs import GOLD_RANGE, ScoredPairs, parse_gold
from msdc.text.text_files import SourceFile

READABLE = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")
COLUMNS = ["sentence1", "sentence2", "score"]


def read_remote(task: Task, word: str) -> Data:
    """`hub:OWNER/NAME[/FILE]` or `mteb:TASK[/SUBSET]`.

    Raises:
        InputError: the hub cannot provide it, several files match, mteb is not installed, or the task is not STS.
    """
    chosen = None if word.startswith("mteb:") else _download(word)
    if chosen is not None and chosen.suffix != ".parquet":
        return task.read(chosen)
    if task.name != "sts":
        raise InputError(f"{word}: only sts is read from mteb and from parquet; {task.name} reads its published files")
    return Data.of(_from_mteb(word) if chosen is None else read_parquet(chosen, word))


def _download(word: str) -> Path:
    """The file of `hub:OWNER/NAME[/FILE]`; without FILE the only readable one with "test" in its name."""
    from huggingface_hub import snapshot_download

    owner, _, rest = word.removeprefix("hub:").partition("/")
    name, _, file = rest.partition("/")
    name, _, revision = name.partition("@")
    try:
        patterns = [file] if file else None
        folder = Path(
            snapshot_download(
                f"{owner}/{name}", repo_type="dataset", revision=revision or None, allow_patterns=patterns
            )
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"{word}: the hub did not give this data set: {reason}") from error
    files = [p for p in sorted(folder.rglob("*")) if p.name.endswith(READABLE)]
    chosen = [p for p in files if (p == folder / file if file else "test" in p.name)]
    if len(chosen) != 1:
        known = ", ".join(p.relative_to(folder).as_posix() for p in files)
        raise InputError(f"{word}: name one file, as hub:OWNER/NAME/FILE; it holds: {known[:300] or 'none'}")
    return chosen[0]


def read_parquet(path: Path, name: str) -> ScoredPairs:
    """Columns sentence1, sentence2 and score.

    Raises:
        InputError: not parquet, other columns, or a bad row with its number.
    """
    import pyarrow.parquet as parquet

    try:
        table = parquet.read_table(path, columns=COLUMNS)
    except Exception as error:
        raise InputError(f"{path}: not a parquet file with columns {', '.join(COLUMNS)} ({error})") from error
    source = SourceFile(path.name, path.stat().st_size, sha256_file(path))
    return scored_rows(name, zip(*(table[column].to_pylist() for column in COLUMNS), strict=True), source)


def scored_rows(name: str, rows: Iterable[tuple[Any, Any, Any]], source: SourceFile) -> ScoredPairs:
    """Scored pairs from (sentence, sentence, score); each row is checked like a line of a file.

    Raises:
        InputError: an empty sentence, or a score outside 0..5; with the row, counted from 1.
    """
    one, two, scores = [], [], []
    for row, (left, right, value) in enumerate(rows, start=1):

        def fail(problem: str, row: int = row) -> InputError:
            return InputError(f"{name} row {row}: {problem}")

        one.append(str(left).strip())
        two.append(str(right).strip())
        if not one[-1] or not two[-1]:
            raise fail("an empty sentence")
        scores.append(parse_gold(str(value), GOLD_RANGE, fail))
    lines = list(range(1, len(one) + 1))
    return ScoredPairs(name, one, two, np.array(scores), [name] * len(one), lines, [source])


def _from_mteb(word: str) -> ScoredPairs:
    if importlib.util.find_spec("mteb") is None:
        raise InputError(f"{word}: mteb is not installed; `pip install mteb`, or give the file as sts=PATH")
    import mteb

    name, _, subset = word.removeprefix("mteb:").partition("/")
    try:
        loaded = mteb.get_task(name)
        loaded.load_data()
    except Exception as error:
        raise InputError(f"{word}: mteb cannot load it ({' '.join(str(error).split())[:160]})") from error
    return pairs_of_mteb(loaded, subset, word)


def pairs_of_mteb(loaded: Any, subset: str, name: str) -> ScoredPairs:
    """Pairs of a loaded mteb STS task; gold scores are expected in 0..5.

    Raises:
        InputError: an unknown subset, or several and none named.
    """
    dataset = loaded.dataset
    # monolingual tasks hold splits, multilingual ones hold subsets of splits
    subsets = {"": dataset} if "test" in dataset else dict(dataset.items())
    if subset not in subsets:
        known = ", ".join(subsets)
        raise InputError(f"{name}: name one subset, as {name.split('/')[0]}/SUBSET; it has: {known}")
    test = subsets[subset]["test"]
    return scored_rows(name, zip(*(test[column] for column in COLUMNS), strict=True), SourceFile(name, 0, ""))
