"""Data of a task from a data set of the hub, by its id."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msdc.bench.accuracy.task import Data, Task
from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.text.scored_pairs import GOLD_RANGE, ScoredPairs, parse_gold
from msdc.text.text_files import SourceFile

READABLE = (".tsv", ".tsv.gz", ".csv", ".csv.gz", ".txt", ".txt.gz", ".parquet")
COLUMNS = ["sentence1", "sentence2", "score"]


def read_remote(task: Task, word: str) -> Data:
    """`hub:OWNER/NAME[/FILE]`; without FILE the only readable one with "test" in its name.

    Raises:
        InputError: the hub cannot provide it, several files match, or parquet for a task other than sts.
    """
    from huggingface_hub import snapshot_download

    owner, _, rest = word.removeprefix("hub:").partition("/")
    name, _, file = rest.partition("/")
    name, _, revision = name.partition("@")
    hub_id, patterns = f"{owner}/{name}", [file] if file else None
    try:
        found = snapshot_download(hub_id, repo_type="dataset", revision=revision or None, allow_patterns=patterns)
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"{word}: the hub did not give this data set: {reason}") from error
    folder = Path(found)
    files = [p for p in sorted(folder.rglob("*")) if p.name.endswith(READABLE)]
    chosen = [p for p in files if (p == folder / file if file else "test" in p.name)]
    if len(chosen) != 1:
        known = ", ".join(p.relative_to(folder).as_posix() for p in files)
        raise InputError(f"{word}: name one file, as hub:OWNER/NAME/FILE; it holds: {known[:300] or 'none'}")
    if chosen[0].suffix != ".parquet":
        return task.read(chosen[0])
    if task.name != "sts":
        raise InputError(f"{word}: only sts is read from parquet; {task.name} reads its published files")
    return Data.of(read_parquet(chosen[0], word))


def read_parquet(path: Path, name: str) -> ScoredPairs:
    """Columns sentence1, sentence2 and score; each row is checked like a line of a file.

    Raises:
        InputError: not parquet, other columns, an empty sentence, or a score outside 0..5; with the row.
    """
    import pyarrow.parquet as parquet

    try:
        columns = [parquet.read_table(path, columns=COLUMNS)[column].to_pylist() for column in COLUMNS]
    except Exception as error:
        raise InputError(f"{path}: not a parquet file with columns {', '.join(COLUMNS)} ({error})") from error
    first, second = ([str(text).strip() for text in column] for column in columns[:2])
    scores = []
    for row, (one, two, value) in enumerate(zip(first, second, columns[2], strict=True), start=1):

        def fail(problem: str, row: int = row) -> InputError:
            return InputError(f"{name} row {row}: {problem}")

        if not one or not two:
            raise fail("an empty sentence")
        scores.append(parse_gold(str(value), GOLD_RANGE, fail))
    source = SourceFile(path.name, path.stat().st_size, sha256_file(path))
    rows = list(range(1, len(first) + 1))
    return ScoredPairs(name, first, second, np.array(scores), [name] * len(first), rows, [source])
