"""Corpora by name: data sets of the hub and OPUS, downloaded once into the user's cache; folders of `save_to_disk`.

Only data files are downloaded (parquet, tsv, zip of two text files); no code of a data set is run.
"""

from __future__ import annotations

import contextlib
import http.client
import lzma
import re
import shutil
import struct
import tarfile
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub

from msdc.distill.recipe import Corpus
from msdc.errors import InputError, first_line
from msdc.extras import require
from msdc.files import atomic_path, disk_errors, locked, user_cache, without_system_files
from msdc.progress import say, warn
from msdc.text.tabular import BATCH_ROWS, arrow_table
from msdc.text.text_files import TabularFile

OPUS_URL = "https://object.pouta.csc.fi/OPUS-{name}/{version}/moses/{pair}.txt.zip"
# What the standard library raises for a damaged, encrypted or foreign archive.
ARCHIVE_ERRORS = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, struct.error, EOFError, ValueError,
                  OverflowError, NotImplementedError, RuntimeError)  # fmt: skip


def corpus_cache() -> Path:
    """The user's cache folder for downloaded corpora."""
    return user_cache() / "corpora"


class NotServed(InputError):
    """A file that the server does not have or refuses."""


def download(url: str, target: Path) -> Path:
    """Download `url` to `target`; an interrupted download continues if the server supports ranges.

    Processes that download to the same path wait for the first of them.

    Raises:
        NotServed: the server does not have it.
        InputError: the server does not answer, or the connection ended early.
    """
    if target.is_file():
        return target
    part, mark, lock = (target.with_name(f".{target.name}.{end}") for end in ("part", "version", "lock"))
    with disk_errors(target), locked(lock):
        if not target.is_file():
            say(f"downloading {url}")
            try:
                _fetch(url, part, mark)
            except (urllib.error.URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
                code = error.code if isinstance(error, urllib.error.HTTPError) else 0
                refused = NotServed if code in (403, 404, 410) else InputError
                raise refused(f"{url}: cannot be fetched ({error})") from error
            part.replace(target)
        mark.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # who waited for it finds the file; Windows removes no open file
            lock.unlink()
    return target


def _fetch(url: str, part: Path, mark: Path) -> None:
    """Complete the file `part`, whose version as the server names it is in the file `mark`."""
    # Continued only if the server still has the version that the part is of: `If-Range` sends the whole otherwise.
    version = mark.read_text(encoding="utf-8") if mark.is_file() else ""
    have = part.stat().st_size if version and part.is_file() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-", "If-Range": version} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            # A server without ranges sends the whole file.
            begun = have if answer.status == 206 else 0
            sent = answer.headers.get("Content-Range") or f"bytes {begun}-"
            if begun and not sent.startswith(f"bytes {begun}-"):
                part.unlink()
                raise InputError(f"{url}: the server sent another part of the file; run again")
            if not begun:
                tag = answer.headers.get("ETag") or ""
                mark.write_text(tag if tag.startswith('"') else answer.headers.get("Last-Modified") or "", "utf-8")
            with open(part, "ab" if begun else "wb") as out:
                shutil.copyfileobj(answer, out)
            length = answer.headers.get("Content-Length")
            if length is not None and part.stat().st_size != begun + int(length):
                raise InputError(f"{url}: the connection ended early; run again to continue")
    except http.client.IncompleteRead as error:
        raise InputError(f"{url}: the connection ended early; run again to continue") from error
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:
            raise
        if error.headers.get("Content-Range") != f"bytes */{have}":  # else the part is complete
            part.unlink(missing_ok=True)
            _fetch(url, part, mark)


# --- OPUS -------------------------------------------------------------------------------------------------------------


def fetch_opus(corpus: Corpus) -> list[tuple[Path, Path, str]]:
    """(source file, target file, language) of an OPUS corpus `NAME/VERSION`, e.g. TED2020/v1, for each language.

    A pair that the server does not have is skipped with a warning. A server that does not answer is an error, so that a
    recipe is always trained on the same text.
    """
    name, _, version = str(corpus.opus).partition("/")
    if not name or not version:
        raise InputError(f"OPUS corpus {corpus.opus!r}: expected NAME/VERSION, such as TED2020/v1")
    if not corpus.languages:
        raise InputError(f"OPUS corpus {corpus.opus}: name the languages (`languages: [de]`)")
    pairs = [(_opus_pair(name, version, corpus.source, code), code) for code in corpus.languages]
    downloaded = [(*files, code) for files, code in pairs if files is not None]
    if not downloaded:
        raise InputError(f"OPUS corpus {corpus.opus}: cannot be fetched (has none of {', '.join(corpus.languages)})")
    return downloaded


def _opus_pair(name: str, version: str, source: str, code: str) -> tuple[Path, Path] | None:
    """The two files of a pair; None if the server does not have it."""
    pair = "-".join(sorted((source, code)))
    folder = corpus_cache() / "opus" / name / version
    files, archive = (folder / f"{pair}.{source}", folder / f"{pair}.{code}"), folder / f"{pair}.zip"
    if all(path.is_file() for path in files):
        return files
    url = OPUS_URL.format(name=name, version=version, pair=pair)
    try:
        download(url, archive)
        with zipfile.ZipFile(archive) as content:
            for path in files:
                members = [
                    member for member in content.namelist() if member.endswith(path.suffix) and "/" not in member
                ]
                if len(members) != 1:
                    raise InputError(f"{url}: does not contain exactly one {path.suffix} text file")
                # Written under our own name, not the archive's, which could leave the folder.
                with atomic_path(path) as part, content.open(members[0]) as text, open(part, "wb") as out:
                    shutil.copyfileobj(text, out)
    except NotServed as error:
        warn(f"warning: OPUS corpus {name}/{version} {pair}: {error}; skipped")
        return None
    except ARCHIVE_ERRORS as error:
        raise InputError(f"{url}: not a zip archive, or a damaged one ({first_line(error)})") from error
    finally:
        archive.unlink(missing_ok=True)
    return files


# --- the hub, and folders of the `datasets` library -------------------------------------------------------------------


def fetch_hub(corpus: Corpus) -> list[tuple[Path, str]]:
    """(file, language) of a hub data set's training files (names like `en-de/train-00000-of-00001.parquet`).

    `NAME@REVISION` selects a commit, branch or tag. Empty if the files are not named by language pair: then the
    `datasets` library opens the data set (`hub_tables`).
    """
    name, _, revision = str(corpus.hub).partition("@")
    if not corpus.languages or corpus.subset is not None or Path(name).is_dir():
        return []
    patterns = [
        f"*{corpus.source}-{code}*{separator}train*.{kind}"
        for separator in ("/", "")
        for code in corpus.languages
        for kind in ("parquet", "tsv.gz", "tsv")
    ]
    try:
        folder = Path(
            huggingface_hub.snapshot_download(
                name, repo_type="dataset", revision=revision or None, allow_patterns=patterns
            )
        )
    except Exception as error:
        raise InputError(f"hub corpus {name}: cannot be fetched ({first_line(error)})") from error
    paths = without_system_files(path for path in folder.rglob("*train*") if path.is_file())
    files = [(path, path.relative_to(folder).as_posix()) for path in paths]
    return [(path, code) for code in corpus.languages for path, name in files if f"{corpus.source}-{code}" in name]


def is_saved(folder: Path) -> bool:
    """Whether a folder was written by `datasets.save_to_disk`."""
    return any((folder / name).is_file() for name in ("dataset_dict.json", "dataset_info.json"))


def saved_table(folder: Path) -> TabularFile:
    """A folder of `save_to_disk`."""
    require("datasets", "a folder of save_to_disk")
    import datasets

    try:
        saved = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise InputError(f"{folder}: not a folder that datasets.load_from_disk opens ({first_line(error)})") from error
    return _table(folder, _train_part(folder, saved), "data set of save_to_disk")


def _table(path: Path, data: Any, form: str) -> TabularFile:
    """A `datasets.Dataset`."""

    def batches(names: list[str]) -> Iterator[Any]:
        tops = dict.fromkeys(name if name in data.column_names else name.split(".", 1)[0] for name in names)
        return data.select_columns(list(tops)).with_format("arrow").iter(BATCH_ROWS)  # type: ignore[no-any-return]

    return arrow_table(path, form, data.features.arrow_schema, batches)


def _train_part(name: object, dataset: Any) -> Any:
    """The data set itself, or its part `train` if it has parts."""
    if not isinstance(dataset, dict):
        return dataset
    if len(dataset) == 1:
        return next(iter(dataset.values()))
    if "train" not in dataset:
        raise InputError(f"{name}: no part `train` (has {', '.join(dataset)}); name the folder of one part")
    return dataset["train"]


def _configurations(name: str, configurations: list[str], corpus: Corpus) -> list[tuple[str, str | None]]:
    """(configuration, language) for the wanted languages, of the known configurations of a hub data set."""
    if len(configurations) == 1:
        return [(configurations[0], corpus.languages[0] if len(corpus.languages) == 1 else None)]
    by_name = {re.sub("[_-]", "-", configuration).lower(): configuration for configuration in configurations}
    pairs = {code: (f"{corpus.source}-{code}", f"{code}-{corpus.source}") for code in corpus.languages}
    by_language = {code: by_name.get(forward) or by_name.get(backward) for code, (forward, backward) in pairs.items()}
    missing = [code for code, configuration in by_language.items() if configuration is None]
    if missing or not by_language:
        shown = ", ".join(configurations[:12]) + (", ..." if len(configurations) > 12 else "")
        languages_text = f"for {', '.join(missing)} " if missing else ""
        raise InputError(
            f"hub corpus {name}: which configuration {languages_text}is meant (`subset: NAME`)? It has {shown}"
        )
    return [(configuration, code) for code, configuration in by_language.items() if configuration is not None]


def load_hub(corpus: Corpus) -> list[tuple[Any, str | None]]:
    """(data set, target language) of a hub name, or of a local folder with the same layout."""
    require("datasets", "a data set of the hub")
    import datasets

    name, _, tag = str(corpus.hub).partition("@")
    try:
        datasets.disable_progress_bars()
        names = [corpus.subset] if corpus.subset is not None else datasets.get_dataset_config_names(name, tag or None)
        configurations = _configurations(name, names, corpus)
        loaded = [
            (datasets.load_dataset(name, configuration, revision=tag or None), code)
            for configuration, code in configurations
        ]
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"hub corpus {name}: cannot be opened ({first_line(error)})") from error
    return [(_train_part(f"hub corpus {name}", data), language) for data, language in loaded]


def hub_tables(corpus: Corpus) -> list[tuple[TabularFile, str | None]]:
    """Tables of a hub data set with the target language of each."""
    return [(_table(Path(f"hub:{corpus.hub}"), data, "data set"), code) for data, code in load_hub(corpus)]
