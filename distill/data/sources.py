"""Corpora as streams of rows, whatever their format: files, folders, hub data sets, OPUS.

A row is (source, target, language); plain text has an empty target, a triple has its third sentence in `third`. Bad
lines are counted, and the first one of each file is reported with its number; a file of nothing but bad lines is an
error.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.text.tokenizer import clean

if TYPE_CHECKING:
    from msdc.distill.data.exclusion import Exclusion

MAX_LINE_BYTES = 1_000_000
TEST_SET_IN_NAME = re.compile(r"test|sts-?20\d\d|sts1[2-6]")
LANGUAGE_IN_NAME = re.compile(r"(?:^|[._-])([a-z]{2,3})-([a-z]{2,3})(?=[._]|$)")


class Row(NamedTuple):
    """One training example; `third` only in triples (premise, entailment, contradiction).

    `domain` is the number of its corpus in the recipe. `label` is given in labelled pairs only: a class 0, 1, 2
    (NLI), or a similarity 0 .. 1.
    """

    source: str
    target: str
    language: str
    third: str = ""
    domain: int = 0
    label: float | None = None


@dataclass
class Source:
    """One readable part of a corpus: a name for messages, an estimate of its size, and how to read it.

    `made` marks targets that no person wrote: they are never held out and no vocabulary is trained on them. `without`
    are sentences whose rows are left out.
    """

    name: str
    language: str
    bytes: int
    corpus: Corpus
    rows: Callable[[], Iterator[Row]]
    bad: int = 0
    first_bad: str = ""
    domain: int = 0
    seen: int = field(default=0, repr=False)
    made: bool = False
    without: Exclusion | None = None

    def kept_rows(self) -> Iterator[Row]:
        """Rows as the format reads them, without those that hold an excluded sentence."""
        return self.rows() if self.without is None else self.without.keep(self)

    def read(self) -> Iterator[Row]:
        """Rows cleaned and filtered by the corpus' limits; bad ones are counted.

        Raises:
            InputError: no usable row in the whole source.
        """
        taken = 0
        self.bad, self.first_bad = 0, ""
        longest, limit = self.corpus.max_characters, self.corpus.limit
        for source, target, language, third, _, label in self.kept_rows():
            source, target = clean(source), clean(target)
            if len(source) > longest or len(target) > longest:
                continue
            taken += 1
            yield Row(source, target, language, clean(third) if third else "", self.domain, label)
            if taken == limit:
                break
        self.seen = taken
        if not taken:
            reason = f"; {self.first_bad}" if self.first_bad else " (empty, or every sentence is too long or excluded)"
            raise InputError(f"{self.name}: no usable sentence{reason}")

    def complain(self, line: int, why: str) -> None:
        """Count a bad line; remember the first."""
        self.bad += 1
        if not self.first_bad:
            self.first_bad = f"line {line}: {why}"


def refuse_test_set(path: Path, what: str) -> None:
    """Graded pairs of a test set neither train nor choose; `what` says what the file was named for.

    Raises:
        InputError: the file's name says that it is a test set.
    """
    if TEST_SET_IN_NAME.search(path.name.lower()):
        raise InputError(f"{path}: a test set must not {what}")


def language_of(path: Path, corpus: Corpus) -> str:
    """Target language from the corpus' settings or a name like `x.en-de.tsv.gz`; `xx` when nothing tells."""
    match = LANGUAGE_IN_NAME.search(path.name)
    if match:
        return match[2] if match[1] == corpus.source else match[1]
    return corpus.languages[0] if len(corpus.languages) == 1 else "xx"


def _read(path: Path, corpus: Corpus) -> list[Source]:
    from msdc.distill.data.formats import find_format

    return find_format(path, corpus.kind).read(path, corpus, language_of(path, corpus))


def _wanted(path: Path, corpus: Corpus) -> bool:
    from msdc.distill.data.formats import has_target

    if not corpus.languages or not has_target(corpus.kind):
        return True
    language = language_of(path, corpus)
    return language in corpus.languages or language == "xx"


def open_corpus(corpus: Corpus) -> list[Source]:
    """The sources of one corpus entry.

    Raises:
        InputError: nothing is there, or nothing in the wanted languages.
    """
    # Imported here: formats are made of the sources above.
    from msdc.distill.data.formats import aligned_files

    if corpus.files is not None:
        first, second = (Path(name).expanduser() for name in corpus.files)
        for path in (first, second):
            if not path.is_file():
                raise InputError(f"{path}: no such corpus file")
        return aligned_files(
            first, second, corpus, corpus.languages[0] if corpus.languages else language_of(second, corpus)
        )
    if corpus.hub is not None or corpus.opus is not None:
        from msdc.distill.data.download import fetch_hub, fetch_opus

        if corpus.hub is not None:
            return [s for path in fetch_hub(corpus) for s in _read(path, corpus) if _wanted(path, corpus)]
        return [s for one, two, code in fetch_opus(corpus) for s in aligned_files(one, two, corpus, code)]
    pattern = str(Path(str(corpus.path)).expanduser())
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
    if Path(pattern).is_dir():
        paths = sorted(p for p in Path(pattern).iterdir() if re.search(r"\.(tsv|txt|parquet|po)(\.gz)?$", p.name))
    if not paths:
        raise InputError(f"{corpus.path}: no such corpus file")
    sources = [source for path in paths if _wanted(path, corpus) for source in _read(path, corpus)]
    if not sources:
        raise InputError(f"{corpus.path}: nothing in the wanted languages ({', '.join(corpus.languages)})")
    return sources


def open_corpora(corpora: tuple[Corpus, ...], without: Exclusion | None = None) -> list[Source]:
    """All sources of a recipe, `without` the rows that hold an excluded sentence."""
    sources = []
    for domain, corpus in enumerate(corpora):
        for source in open_corpus(corpus):
            source.domain, source.without = domain, without
            sources.append(source)
    return sources
