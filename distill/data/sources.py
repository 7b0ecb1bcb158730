"""The sources of the shipped recipes' texts: the list, its files, and the rows in them.

An entry of `sources.yaml`:

    ntrex:
      about: NTREX-128, news
      license: CC BY-SA 4.0
      origins: {ntrex: {github: MicrosoftTranslator/NTREX, commit: 8561f6a..., sha256: fc0d1bc...}}
      make:
        - file: ntrex/ntrex128.en-{language}.tsv.gz
          languages: {ar: arb, de: deu}
          read: [{files: [NTREX-128/newstest2019-src.eng.txt, "NTREX-128/newstest2019-ref.{code}.txt"]}]

A path is that of a file in the source, `KEY:path` if there are several `origins`; `path!member` is a member of a zip or
tar archive. `{language}` is the key of a language, `{code}` the source's code of it.
"""

from __future__ import annotations

import csv
import functools
import gzip
import hashlib
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import unescape
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from msdc.distill.data.corpora import open_corpus
from msdc.distill.data.download import ARCHIVE_ERRORS, corpus_cache, download
from msdc.distill.recipe import Corpus, CorpusKind, Strict, parse
from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.text.text_files import iterate_lines

LIST = Path(__file__).with_name("sources.yaml")
TextRow = tuple[str, ...]


class Origin(Strict):
    """A GitHub repository at a commit.

    `sha256` is the hash of the sorted list of the files and their hashes: `sha256sum FILES | sha256sum`.
    """

    github: str
    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    folder: str = ""  # folder of the repository that all paths are relative to

    def __str__(self) -> str:
        return f"github {self.github} @ {self.commit[:10]}"

    def take(self, names: Sequence[str], copies: Path | None) -> dict[str, Path]:
        """The files of these names, downloaded into the user's cache or taken from `copies`, and checked.

        InputError: a file is unavailable, or the files have changed since the list was written.
        """
        checkout = self.github.replace("/", "+")
        folder = corpus_cache() / "sources" / checkout / self.commit
        files = {name: folder / name for name in sorted(set(names))}
        for name, file in files.items():
            web = f"https://raw.githubusercontent.com/{self.github}/{self.commit}/{name}"
            download(web if copies is None else (copies.resolve() / checkout / name).as_uri(), file)
        listed = "".join(f"{sha256_file(file)}  {name}\n" for name, file in files.items())
        if (digest := hashlib.sha256(listed.encode()).hexdigest()) != self.sha256:
            for file in files.values():
                file.unlink()
            raise InputError(f"{self}: other files than expected (sha256 {digest}, expected {self.sha256})")
        return files


@functools.lru_cache(maxsize=4)  # the English file is read with each language
def _member(archive: Path, name: str) -> bytes:
    """A file in a zip or tar archive."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as content:
                return content.read(name)
        with tarfile.open(archive) as tar, tar.extractfile(name) or io.BytesIO() as stream:
            return stream.read()
    except KeyError:
        raise InputError(f"{archive.name}: no {name} in it") from None
    except ARCHIVE_ERRORS as error:
        raise InputError(f"{archive.name}: not an archive that can be read ({error})") from error


def _unpacked(file: Path, member: str) -> Path:
    """A file, or a member of an archive as a file next to it."""
    if not member:
        return file
    target = file.with_name(f"{file.name}!") / member
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(_member(file, member))
    return target


def _select(value: Any, keys: Sequence[str]) -> Iterator[str]:
    """The texts at a path of keys in a JSON value, of all entries of its lists; `*` is every key, sorted."""
    if isinstance(value, list):
        for item in value:
            yield from _select(item, keys)
    elif isinstance(value, str) and not keys:
        yield value
    elif isinstance(value, dict) and keys:
        for key in sorted(value) if keys[0] == "*" else [keys[0]]:
            yield from _select(value.get(key), keys[1:])


def squad_lines(files: Iterable[Path], part: Literal["corpus", "queries", "qrels"]) -> Iterator[TextRow]:
    """The lines of one file of a retrieval set: a paragraph, a question, or the paragraph that answers a question.

    Raises:
        InputError: not SQuAD's JSON.
    """
    titles: dict[str, str] = {}  # of each paragraph, which some sets repeat
    answered: list[tuple[str, str]] = []  # question, its paragraph
    for file in files:
        raw = file.read_bytes()
        try:
            for article in json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw)["data"]:
                for paragraph in article["paragraphs"]:
                    text = paragraph["context"].strip()
                    titles.setdefault(text, str(article.get("title", "")).replace("_", " "))
                    answered += [(entry["question"].strip(), text) for entry in paragraph["qas"]]
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{file.name}: not SQuAD's JSON ({type(error).__name__}: {error})") from error
    number_of_text = {text: number for number, text in enumerate(titles)}
    if part == "qrels":
        yield ("query-id", "corpus-id", "score")
        yield from ((f"q{number}", f"p{number_of_text[text]}", "1") for number, (_, text) in enumerate(answered))
        return
    paragraphs = [{"_id": f"p{number_of_text[text]}", "title": title, "text": text} for text, title in titles.items()]
    questions = [{"_id": f"q{number}", "text": question} for number, (question, _) in enumerate(answered)]
    yield from ((json.dumps(row, ensure_ascii=False),) for row in (paragraphs if part == "corpus" else questions))


class SourcePart(Strict):
    """Files of a set, and how their rows are read: as in training, unless `texts`, `pattern` or `paste` is set.

    Attributes:
        files: one file of English or of pairs, or two: English and the other language.
        names: the part is read once for each, as `{name}`.
        kind, columns, tokenized: as of a recipe's corpus.
        texts: keys in JSON, or in one JSON value per line, such as `annotations.caption`.
        pattern: a regular expression of a text: its first group that matches, or the group `text` with the group `key`.
            Texts with the same key, or at the same position, are translations. In one file of pairs, the groups are
            `source` and `target`.
        keep: a regular expression that all of a row's English must match.
        paste: files of scored or labelled pairs are joined line by line: `file#2` is the second column of a table; rows
            with an empty cell are skipped. A single file is copied.
        header: the first line of `paste`.
        squad: SQuAD's JSON as one file of a retrieval set in BEIR's layout: its paragraphs, questions or judgements.
    """

    files: tuple[str, ...]
    names: tuple[str, ...] = ("",)
    kind: CorpusKind = "auto"
    columns: tuple[int | str, ...] = ()
    tokenized: bool = False
    texts: tuple[str, ...] = ()
    pattern: str = ""
    keep: str = ""
    paste: bool = False
    header: tuple[str, ...] = ()
    squad: Literal["corpus", "queries", "qrels"] | None = None

    @property
    def verbatim(self) -> bool:
        """Whether its rows are written as they are: neither cleaned nor without copies."""
        return self.paste or self.squad is not None

    def paths(self) -> list[str]:
        """The files that are read, each once."""
        return list(dict.fromkeys(name.partition("#")[0] for name in self.files))

    def filled(self, placeholders: Mapping[str, str]) -> SourcePart:
        """This part with the placeholders in its paths replaced."""
        fill = functools.partial(re.sub, r"\{\w+\}", lambda match: placeholders[match[0]])
        return self.model_copy(update={"files": tuple(map(fill, self.files))})

    def rows(self, find: Callable[[str], Path], language: str) -> Iterator[TextRow]:
        """One text, a pair (English, `language`), or the cells of `paste`.

        `find` gives the file of a path. InputError: a file has unexpected contents.
        """
        for row in self._rows(find, language):
            if not self.keep or re.fullmatch(self.keep, row[0], re.DOTALL):
                yield row

    def _rows(self, find: Callable[[str], Path], language: str) -> Iterator[TextRow]:
        files = {path: find(path) for path in self.paths()}
        if self.squad is not None:
            yield from squad_lines(files.values(), self.squad)
            return
        if self.paste or not (self.texts or self.pattern):
            yield from self._pasted(files) if self.paste else self._read(list(files.values()), language)
            return
        if "?P<source>" in self.pattern:
            text = next(iter(files.values())).read_text(encoding="utf-8-sig")
            matches = re.finditer(self.pattern, text, re.DOTALL)
            yield from ((unescape(match["source"]), unescape(match["target"])) for match in matches)
            return
        sides = [self._texts(file.read_bytes(), path) for path, file in files.items()]
        if "?P<key>" not in self.pattern and len(set(map(len, sides))) > 1:
            raise InputError(f"{' and '.join(self.files)}: not the same number of texts")
        yield from (tuple(side[key] for side in sides) for key in sides[0] if all(key in side for side in sides))

    def _texts(self, raw: bytes, path: str) -> dict[Any, str]:
        text = raw.decode("utf-8-sig", "replace")
        if self.texts:
            try:
                values = [json.loads(text)] if text.count("\n{") < 1 else list(map(json.loads, text.splitlines()))
            except ValueError as error:
                raise InputError(f"{path}: not JSON ({error})") from error
            return dict(
                enumerate(selected for keys in self.texts for selected in _select(values, tuple(keys.split("."))))
            )
        matches = re.finditer(self.pattern, text, re.MULTILINE | re.DOTALL)
        if "?P<key>" in self.pattern:
            return {match["key"]: match["text"] for match in matches}
        return dict(enumerate(next(filter(None, match.groups()), "") for match in matches))

    def _read(self, paths: Sequence[Path], language: str) -> Iterator[TextRow]:
        where = {"path": str(paths[0])} if len(paths) == 1 else {"files": tuple(map(str, paths))}
        settings = self.model_dump(include={"kind", "columns", "tokenized"})
        corpus = Corpus.model_validate({**where, **settings, "languages": (language,) if language else ()})
        for source in open_corpus(corpus):
            yield from ((row.source, row.target) if language else (row.source,) for row in source.rows())

    def _pasted(self, local_files: Mapping[str, Path]) -> Iterator[TextRow]:
        if self.header:
            yield self.header
        columns = []
        for name in self.files:
            path, _, column = name.partition("#")
            lines = [line for _, line in iterate_lines(local_files[path])]
            if column:
                table = csv.reader(lines) if path.endswith(".csv") else (line.split("\t") for line in lines)
                lines = [cells[int(column) - 1] if len(cells) >= int(column) else "" for cells in table]
            columns.append([line.strip() for line in lines] if len(self.files) > 1 else lines)
        if len(set(map(len, columns))) > 1:
            raise InputError(f"{', '.join(self.paths())}: not the same number of lines")
        yield from (row for row in zip(*columns, strict=True) if all(row))


class Output(Strict):
    """Files of one name pattern and the parts of each; `languages`: language -> the source's code."""

    file: str
    languages: dict[str, str] | tuple[str, ...] = ()
    read: tuple[SourcePart, ...]

    def targets(self) -> Iterator[tuple[str, str, tuple[SourcePart, ...]]]:
        """(file, language, parts) of each language, placeholders replaced; language "" if there are none."""
        codes = self.languages if isinstance(self.languages, dict) else {code: code for code in self.languages}
        for language, code in (codes or {"": ""}).items():
            fields = {"{language}": language, "{code}": code}
            parts = tuple(part.filled(fields | {"{name}": name}) for part in self.read for name in part.names)
            yield self.file.replace("{language}", language), language, parts


class SourceSet(Strict):
    """A set: description, license, origins, and the files to build."""

    about: str
    license: str
    origins: dict[str, Origin]
    make: tuple[Output, ...]
    test: bool = False  # a test or development set, which is excluded from training

    @functools.cached_property
    def targets(self) -> dict[str, tuple[str, tuple[SourcePart, ...]]]:
        """(language, parts) of each file."""
        return {file: (language, parts) for output in self.make for file, language, parts in output.targets()}

    def locate(self, path: str) -> tuple[str, str, str]:
        """(key of the origin, name in it, member of the archive) of `KEY:name!member`."""
        key, separator, rest = path.partition(":")
        if not separator and len(self.origins) == 1:
            key, rest = next(iter(self.origins)), path
        if key not in self.origins:
            raise InputError(f"{path}: expected KEY:path with one of {', '.join(self.origins)}")
        name, _, member = rest.partition("!")
        folder = self.origins[key].folder
        return key, f"{folder}/{name}" if folder else name, member

    def rows(self, file: str, copies: Path | None) -> Iterator[TextRow]:
        """The rows of one of the files; all files of its origins are downloaded, to check their sha256."""
        names: dict[str, list[str]] = {key: [] for key in self.origins}
        for _, parts in self.targets.values():
            for key, name, _ in (self.locate(path) for part in parts for path in part.paths()):
                names[key].append(name)
        taken = functools.cache(lambda key: self.origins[key].take(names[key], copies))

        def find(path: str) -> Path:
            key, name, member = self.locate(path)
            return _unpacked(taken(key)[name], member)

        language, parts = self.targets[file]
        for part in parts:
            yield from part.rows(find, language)


def read_sources(path: Path = LIST) -> dict[str, SourceSet]:
    """All sets by name; InputError if the list is invalid."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: parse(SourceSet, entry, f"{path.name}: {name}") for name, entry in tree.items()}
