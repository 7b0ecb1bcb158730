"""Remote data: a data set of the hub by its id, or a task of `mteb` where that is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.task import Task
from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.text.scored_pairs import GOLD_RANGE, ScoredPairs, parse_gold
from msdc.text.text_files import SourceFile

MAX_PARQUET_ROWS = 5_000_000
READABLE = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")


def read_remote(task: Task, word: str) -> Any:
    """`hub:OWNER/NAME[/FILE]` or `mteb:TASK[/SUBSET]`.

    Raises:
        InputError: the hub cannot provide it, several files match, mteb is not installed, or the task is not STS.
    """
    kind, _, rest = word.partition(":")
    if kind == "mteb":
        return _from_mteb(task, rest)
    return _from_hub(task, rest)


def _from_hub(task: Task, name: str) -> Any:
    parts = name.split("/")
    if len(parts) < 2:
        raise InputError(f"hub:{name}: expected hub:OWNER/NAME or hub:OWNER/NAME/FILE")
    dataset, file = "/".join(parts[:2]), "/".join(parts[2:])
    from huggingface_hub import snapshot_download

    try:
        hub_id, _, revision = dataset.partition("@")
        patterns = [file] if file else None
        folder = Path(
            snapshot_download(hub_id, repo_type="dataset", revision=revision or None, allow_patterns=patterns)
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"hub:{dataset}: the hub did not give this data set: {reason}") from error
    if file:
        chosen = folder / file
    else:
        files = [p for p in sorted(folder.rglob("*")) if p.name.endswith(READABLE)]
        tests = [p for p in files if "test" in p.name]
        if len(tests) != 1:
            known = ", ".join(p.relative_to(folder).as_posix() for p in files)
            raise InputError(f"hub:{dataset}: name one file, as hub:{dataset}/FILE; it holds: {known[:300] or 'none'}")
        chosen = tests[0]
    if not chosen.is_file():
        raise InputError(f"hub:{dataset}: no file {file}")
    if chosen.suffix == ".parquet":
        if task.name != "sts":
            raise InputError(f"hub:{dataset}: parquet is read for sts only; {task.name} reads its published files")
        return read_parquet(chosen, f"hub:{name}")
    return task.read(chosen)


def read_parquet(path: Path, name: str) -> ScoredPairs:
    """Columns sentence1, sentence2 and score.

    Raises:
        InputError: not parquet, other columns, too many rows, or a bad row with its number.
    """
    import pyarrow.parquet as parquet

    try:
        handle = parquet.ParquetFile(path)
        rows, columns = handle.metadata.num_rows, handle.schema_arrow.names
    except Exception as error:
        raise InputError(f"{path}: not a parquet file ({type(error).__name__})") from error
    wanted = ["sentence1", "sentence2", "score"]
    if not set(wanted) <= set(columns) or rows > MAX_PARQUET_ROWS:
        raise InputError(f"{path}: needs columns {', '.join(wanted)}; it has {', '.join(columns)} and {rows} rows")
    table = handle.read(columns=wanted).to_pydict()
    source = SourceFile(path.name, path.stat().st_size, sha256_file(path))
    return pairs_of_columns(name, table["sentence1"], table["sentence2"], table["score"], source)


def _row_error(name: str, row: int, problem: str) -> InputError:
    return InputError(f"{name} row {row}: {problem}")


def pairs_of_columns(
    name: str, first: Iterable[Any], second: Iterable[Any], gold: Iterable[Any], source: SourceFile
) -> ScoredPairs:
    """Scored pairs from columns; each row is checked like a line of a file.

    Raises:
        InputError: an empty sentence, or a score outside 0..5; with the row, counted from 1.
    """
    one, two = [str(text).strip() for text in first], [str(text).strip() for text in second]
    scores = []
    for row, value in enumerate(gold, start=1):
        fail = partial(_row_error, name, row)
        scores.append(parse_gold(str(value), GOLD_RANGE, fail))
    if not len(one) == len(two) == len(scores):
        raise InputError(f"{name}: {len(one)}, {len(two)} and {len(scores)} rows in its three columns")
    for row, sides in enumerate(zip(one, two, strict=True), start=1):
        if not all(sides):
            raise InputError(f"{name} row {row}: an empty sentence")
    rows = list(range(1, len(one) + 1))
    return ScoredPairs(name, one, two, np.array(scores), [name] * len(one), rows, [source])


def _from_mteb(task: Task, name: str) -> ScoredPairs:
    if task.name != "sts":
        raise InputError(f"mteb:{name}: only sts is read from mteb; {task.name} reads its published files")
    if importlib.util.find_spec("mteb") is None:
        raise InputError(f"mteb:{name}: mteb is not installed; `pip install mteb`, or give the file as sts=PATH")
    import mteb

    task_name, _, subset = name.partition("/")
    try:
        loaded = mteb.get_task(task_name)
        loaded.load_data()
    except Exception as error:
        raise InputError(f"mteb:{task_name}: mteb cannot load it ({' '.join(str(error).split())[:160]})") from error
    return pairs_of_mteb(loaded, subset, f"mteb:{name}")


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
    rows = subsets[subset]["test"]
    return pairs_of_columns(name, rows["sentence1"], rows["sentence2"], rows["score"], SourceFile(name, 0, ""))
