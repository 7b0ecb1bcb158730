"""Data sets that the `datasets` library opens: folders of `save_to_disk`, and any data set of the hub.

The library reads and caches the files of a data set; no code of a data set is run (it has not done so since version 4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msdc.distill.data.columns import unknown_form
from msdc.distill.data.sources import Source
from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.extras import require
from msdc.text.parquet import column_of, text_names
from msdc.text.tabular import MAX_LINE_BYTES, Numbered, Table, take_sample

BATCH_ROWS = 1024
MARKS = ("dataset_dict.json", "dataset_info.json")


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `save_to_disk`."""
    return folder.is_dir() and any((folder / name).is_file() for name in MARKS)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def as_table(path: Path, data: Any, form: str) -> Table:
    """The text columns of a `datasets.Dataset`.

    Raises:
        InputError: it has no text column.
    """
    names = text_names(data.features.arrow_schema)
    if not names:
        raise unknown_form(path, f"{form} without a text column (has {', '.join(data.column_names)[:200]})")

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        chosen = [names[column] for column in columns]
        tops = list(dict.fromkeys(n if n in data.column_names else n.split(".", 1)[0] for n in chosen))
        number = 0
        try:
            for batch in data.select_columns(tops).with_format("arrow").iter(BATCH_ROWS):
                for row in zip(*(column_of(batch, name).to_pylist() for name in chosen), strict=True):
                    number += 1
                    yield number, [cell[:MAX_LINE_BYTES] if isinstance(cell, str) else cell for cell in row]
        except (OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: damaged after row {number} ({_reason(error)})") from error

    sample = take_sample(row for _, row in read(range(len(names))) if not isinstance(row, str))
    size = int(data.dataset_size or data.data.nbytes or 1)
    return Table(path, form, tuple(names), len(names), sample, read, size)


def _train_part(path: object, found: Any) -> Any:
    """The data set itself, or the part `train` of one that has parts.

    Raises:
        InputError: there are parts, and none is called train.
    """
    if not isinstance(found, dict):
        return found
    if "train" in found:
        return found["train"]
    if len(found) == 1:
        return next(iter(found.values()))
    raise InputError(f"{path}: no part `train` (has {', '.join(found)}); name the folder of one part")


def saved_table(folder: Path) -> Table:
    """A folder of `save_to_disk`.

    Raises:
        InputError: damaged, without a part `train`, or without text.
    """
    require("datasets", "a folder of save_to_disk")
    import datasets

    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise InputError(f"{folder}: not a folder that datasets.load_from_disk opens ({_reason(error)})") from error
    return as_table(folder, _train_part(folder, found), "data set of save_to_disk")


def _configurations(name: str, revision: str | None, corpus: Corpus) -> list[tuple[str | None, str | None]]:
    """(configuration, language) of a hub data set for the wanted languages.

    Raises:
        InputError: it has several configurations, and none is named or fits.
    """
    import datasets

    if corpus.subset is not None:
        return [(corpus.subset, corpus.languages[0] if len(corpus.languages) == 1 else None)]
    found = datasets.get_dataset_config_names(name, revision=revision)
    if len(found) == 1:
        return [(found[0], corpus.languages[0] if len(corpus.languages) == 1 else None)]
    by_name = {re.sub("[_-]", "-", one).lower(): one for one in found}
    pairs = [(by_name.get(f"{corpus.source}-{code}") or by_name.get(f"{code}-{corpus.source}"), code)
             for code in corpus.languages]  # fmt: skip
    missing = [code for config, code in pairs if config is None]
    if missing or not pairs:
        shown = ", ".join(found[:12]) + (", ..." if len(found) > 12 else "")
        wanted = f"for {', '.join(missing)} " if missing else ""
        raise InputError(f"hub corpus {name}: which configuration {wanted}is meant (`subset: NAME`)? It has {shown}")
    return list(pairs)


def load_hub(corpus: Corpus) -> list[tuple[Any, str | None]]:
    """(data set, target language) of a hub name, or of a local folder that is laid out like one.

    Raises:
        InputError: it cannot be opened, or it is not said which part is meant.
    """
    require("datasets", "a data set of the hub")
    import datasets

    name, _, revision = str(corpus.hub).partition("@")
    try:
        datasets.disable_progress_bars()
        configurations = _configurations(name, revision or None, corpus)
        found = [
            (datasets.load_dataset(name, config, revision=revision or None), language)
            for config, language in configurations
        ]
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"hub corpus {name}: cannot be opened ({_reason(error)})") from error
    return [(_train_part(f"hub corpus {name}", data), language) for data, language in found]


def hub_tables(corpus: Corpus) -> list[tuple[Table, str | None]]:
    """Tables of a hub data set with the target language of each.

    Raises:
        InputError: see `load_hub`; a data set without text.
    """
    label = Path(f"hub:{corpus.hub}")
    return [(as_table(label, data, "data set"), language) for data, language in load_hub(corpus)]


def hub_record(corpus: Corpus) -> dict[str, Any]:
    """What identifies the files of a hub data set: their addresses, which name the commit, with sizes and hashes.

    Raises:
        InputError: see `load_hub`.
    """
    files: dict[str, str] = {}
    for data, _ in load_hub(corpus):
        for url, facts in (data.info.download_checksums or {}).items():
            files[str(url)] = str(facts.get("checksum") or f"{facts.get('num_bytes')} bytes")
        if not data.info.download_checksums:
            files[str(data.info.config_name)] = str(data._fingerprint)
    return {"files": files}


def read_table(table: Table, corpus: Corpus, language: str | None) -> list[Source]:
    """The sources of a table."""
    from msdc.distill.data.formats import read_columns

    return read_columns(table, corpus, language)


def read_saved(folder: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """The sources of a folder of `save_to_disk`.

    Raises:
        InputError: see `saved_table`.
    """
    return read_table(saved_table(folder), corpus, language)
