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

MAX_REASONS = 20  # counted apart
TEST_SET_IN_NAME = re.compile(r"test|sts-?20\d\d|sts1[2-6]")
LANGUAGE_IN_NAME = re.compile(r"(?:^|[._-])([a-z]{2,3})-([a-z]{2,3})(?=[._]|$)")
LANGUAGE_AT_END = re.compile(r"(?:^|[._-])(?!po\b|gz\b)([a-z]{2})(?:\.(?:txt|po|gz))*$")


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
    are sentences whose rows are left out. `form` says as what the file was read. `reasons` counts bad lines by what is
    wrong with them, with the first line of each.
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
    form: str = ""
    too_long: int = field(default=0, repr=False)
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def kept_rows(self) -> Iterator[Row]:
        """Rows as the format reads them, without those that hold an excluded sentence."""
        return self.rows() if self.without is None else self.without.keep(self)

    def read(self) -> Iterator[Row]:
        """Rows cleaned and filtered by the corpus' limits; bad ones are counted.

        Raises:
            InputError: no usable row in the whole source.
        """
        taken = 0
        self.bad, self.first_bad, self.too_long, self.reasons = 0, "", 0, {}
        longest, limit = self.corpus.max_characters, self.corpus.limit
        for source, target, language, third, _, label in self.kept_rows():
            source, target = clean(source), clean(target)
            if len(source) > longest or len(target) > longest:
                self.too_long += 1
                continue
            taken += 1
            yield Row(source, target, language, clean(third) if third else "", self.domain, label)
            if taken == limit:
                break
        self.seen = taken
        if not taken:
            reason = " (empty)" if self.without is None else " (empty, or every sentence is excluded)"
            if self.first_bad or self.too_long:
                long = f"{self.too_long} of more than {longest} characters (max_characters)" if self.too_long else ""
                reason = "; " + "; ".join(filter(None, (self.first_bad, long)))
            form = f"; read as {self.form}" if self.form else ""
            raise InputError(f"{self.name}: no usable sentence{reason}{form}")

    def complain(self, line: int, why: str) -> None:
        """Count a bad line; remember the first."""
        self.bad += 1
        if not self.first_bad:
            self.first_bad = f"line {line}: {why}"
        why = why if why in self.reasons or len(self.reasons) < MAX_REASONS else "other reasons"
        count, first = self.reasons.get(why, (0, line))
        self.reasons[why] = (count + 1, first)


def refuse_test_set(path: Path, what: str) -> None:
    """Graded pairs of a test set neither train nor choose; `what` says what the file was named for.

    Raises:
        InputError: the file's name says that it is a test set.
    """
    if TEST_SET_IN_NAME.search(path.name.lower()):
        raise InputError(f"{path}: a test set must not {what}")


def language_of(path: Path, corpus: Corpus, at_end: bool = False) -> str | None:
    """Target language from a name like `x.en-de.tsv.gz` or the corpus' only language; None when nothing tells.

    `at_end`: a name like `x.de` tells it too (one of two aligned files, a catalogue).
    """
    found = [match.groups() for match in LANGUAGE_IN_NAME.finditer(path.name)]
    if found:
        # A set's own name may look like a pair of languages (osm-id.en-de.tsv): the pair with the source counts.
        one, two = next((pair for pair in found if corpus.source in pair), found[0])
        return two if one == corpus.source else one
    if len(corpus.languages) == 1:
        return corpus.languages[0]
    match = LANGUAGE_AT_END.search(path.name) if at_end else None
    return None if match is None else match[1]


def _read(path: Path, corpus: Corpus) -> list[Source]:
    from msdc.distill.data.formats import find_format

    form = find_format(path, corpus.kind)
    sources = form.read(path, corpus, language_of(path, corpus))
    for source in sources:
        source.form = source.form or form.kind
    return sources


def _wanted(path: Path, corpus: Corpus) -> bool:
    from msdc.distill.data.formats import has_target

    if not corpus.languages or not has_target(corpus.kind):
        return True
    language = language_of(path, corpus)
    return language in corpus.languages or language is None


def _hub_sources(corpus: Corpus) -> list[Source]:
    """A data set of the hub: its files where they are named by language pair, else what the library makes of it."""
    from msdc.distill.data.download import fetch_hub
    from msdc.distill.data.saved import hub_tables, read_table

    files = fetch_hub(corpus)
    if files:
        return [source for path in files for source in _read(path, corpus) if _wanted(path, corpus)]
    return [source for table, language in hub_tables(corpus) for source in read_table(table, corpus, language)]


def open_corpus(corpus: Corpus) -> list[Source]:
    """The sources of one corpus entry.

    Raises:
        InputError: nothing is there, nothing in the wanted languages, or a language that nothing tells.
    """
    # Imported here: formats are made of the sources above.
    from msdc.distill.data.columns import unnamed_language
    from msdc.distill.data.formats import aligned_files, is_corpus_file
    from msdc.distill.data.saved import is_saved, read_saved

    if corpus.files is not None:
        first, second = (Path(name).expanduser() for name in corpus.files)
        for path in (first, second):
            if not path.is_file():
                raise InputError(f"{path}: no such corpus file")
        language = corpus.languages[0] if corpus.languages else language_of(second, corpus, at_end=True)
        if language is None:
            raise unnamed_language(second)
        return aligned_files(first, second, corpus, language)
    if corpus.hub is not None:
        return _hub_sources(corpus)
    if corpus.opus is not None:
        from msdc.distill.data.download import fetch_opus

        return [s for one, two, code in fetch_opus(corpus) for s in aligned_files(one, two, corpus, code)]
    pattern = str(Path(str(corpus.path)).expanduser())
    if is_saved(Path(pattern)):
        return read_saved(Path(pattern), corpus, language_of(Path(pattern), corpus))
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
    if Path(pattern).is_dir():
        paths = sorted(p for p in Path(pattern).iterdir() if is_corpus_file(p))
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
