"""Corpora by name: hub data sets and OPUS, downloaded once into the user's cache.

Only data files are downloaded (parquet, tsv, zip of two text files); no code of a data set is run.
"""

from __future__ import annotations

import functools
import shutil
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.files import atomic_path, disk_errors, read_json, sha256_file, user_cache, write_json
from msdc.progress import say, warn

OPUS_URL = "https://object.pouta.csc.fi/OPUS-{name}/{version}/moses/{pair}.txt.zip"
MAX_ZIP_BYTES = 20 * 2**30


class PairMissing(InputError):
    """The server does not have a language pair."""


def corpus_cache() -> Path:
    """The user's cache folder for downloaded corpora."""
    return user_cache() / "corpora"


def fetch_hub(corpus: Corpus) -> list[Path]:
    """Training files of a hub data set in the wanted languages (names like `en-de/train-00000-of-00001.parquet`).

    `NAME@REVISION` takes the files of a commit, branch or tag. Empty where its files are not named by language pair, or
    it is no such name: then the `datasets` library opens it (msdc.distill.data.saved).

    Raises:
        InputError: it cannot be downloaded.
    """
    name, _, revision = str(corpus.hub).partition("@")
    if not corpus.languages or corpus.subset is not None or Path(name).is_dir():
        return []
    patterns = [
        f"*{corpus.source}-{code}*/train*.{kind}" for code in corpus.languages for kind in ("parquet", "tsv.gz", "tsv")
    ]
    patterns += [
        f"*{corpus.source}-{code}*train*.{kind}" for code in corpus.languages for kind in ("parquet", "tsv.gz", "tsv")
    ]
    try:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(name, repo_type="dataset", revision=revision or None, allow_patterns=patterns))
    except Exception as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise InputError(f"hub corpus {name}: cannot be fetched ({reason})") from error
    return link_by_language(folder, corpus)


def link_by_language(folder: Path, corpus: Corpus) -> list[Path]:
    """Files of a fetched data set under names that carry their language pair (`en-de.NAME.parquet`), if it has any."""
    found = []
    for code in corpus.languages:
        pair = f"{corpus.source}-{code}"
        for path in sorted(folder.rglob("*train*")):
            if path.is_file() and pair in path.relative_to(folder).as_posix():
                target = corpus_cache() / "hub" / str(corpus.hub).replace("/", "--") / f"{pair}.{path.name}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                try:
                    target.symlink_to(path.absolute())  # through the snapshot, whose name is the commit
                except OSError:  # Windows, to users without that right
                    shutil.copy2(path, target)
                found.append(target)
    return found


def fetch_opus(corpus: Corpus) -> list[tuple[Path, Path, str]]:
    """(source file, target file, language) of an OPUS corpus `NAME/VERSION`, e.g. TED2020/v1, for each language.

    A pair that the server does not have is skipped with a warning. A server that does not answer is an error: the same
    recipe would else be trained on other text from one day to the next.

    Raises:
        InputError: no version given, no pair found, no connection, or an archive that is not OPUS' pair of text files.
    """
    name, separator, version = str(corpus.opus).partition("/")
    if not separator or not name or not version:
        raise InputError(f"OPUS corpus {corpus.opus!r}: expected NAME/VERSION, such as TED2020/v1")
    if not corpus.languages:
        raise InputError(f"OPUS corpus {corpus.opus}: name the languages (`languages: [de]`)")
    found: list[tuple[Path, Path, str]] = []
    for code in corpus.languages:
        try:
            found.append((*_opus_pair(name, version, corpus.source, code), code))
        except PairMissing as error:
            warn(f"warning: {error}; skipped")
    if not found:
        raise InputError(
            f"OPUS corpus {corpus.opus}: cannot be fetched (none of {', '.join(corpus.languages)} is there)"
        )
    return found


def _opus_pair(name: str, version: str, source: str, code: str) -> tuple[Path, Path]:
    pair = "-".join(sorted((source, code)))
    folder = corpus_cache() / "opus" / name / version
    files = folder / f"{pair}.{source}", folder / f"{pair}.{code}"
    record = folder / f"{pair}.json"
    if all(path.is_file() for path in files):
        _compare(files, record)
        return files
    url = OPUS_URL.format(name=name, version=version, pair=pair)
    say(f"fetching {url}")
    archive = folder / f"{pair}.zip"
    try:
        with (
            urllib.request.urlopen(url, timeout=60) as answer,
            atomic_path(archive) as temporary,
            open(temporary, "wb") as out,
        ):
            shutil.copyfileobj(answer, out)
    except urllib.error.HTTPError as error:
        kind = PairMissing if error.code in (403, 404, 410) else InputError
        raise kind(f"OPUS corpus {name}/{version} {pair}: cannot be fetched ({error})") from error
    except (urllib.error.URLError, TimeoutError) as error:
        raise InputError(f"OPUS corpus {name}/{version} {pair}: cannot be fetched ({error})") from error
    try:
        with zipfile.ZipFile(archive) as content:
            for path in files:
                wanted = [i for i in content.infolist() if i.filename.endswith(path.suffix) and "/" not in i.filename]
                if len(wanted) != 1 or wanted[0].file_size > MAX_ZIP_BYTES:
                    raise InputError(f"{url}: does not hold one {path.suffix} text file")
                # Written under our own name, never under the archive's: nothing leaves the folder.
                with (
                    disk_errors(path),
                    atomic_path(path) as temporary,
                    content.open(wanted[0]) as text,
                    open(temporary, "wb") as out,
                ):
                    shutil.copyfileobj(text, out)
    except zipfile.BadZipFile as error:
        raise InputError(f"{url}: not a zip archive ({error})") from error
    finally:
        archive.unlink(missing_ok=True)
    write_json(record, {"url": url, "files": {path.name: sha256_file(path) for path in files}})
    return files


@functools.cache
def _compare(files: tuple[Path, Path], record: Path) -> None:
    """Say which of the files are not those that were downloaded; once per process, it reads them."""
    if not record.is_file():
        return
    known = read_json(record)
    for path in files:
        if isinstance(known, dict) and known.get("files", {}).get(path.name) != sha256_file(path):
            warn(f"warning: {path}: changed since it was downloaded; remove it to have it fetched again")
