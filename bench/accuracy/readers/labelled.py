"""Labelled sentences: MLDoc's files, FLORES with topics, and SentEval's transfer tasks."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from msdc.errors import InputError
from msdc.text.text_files import Lines, SourceFile, read_lines

MLDOC_LANGUAGES = {
    "english": "en", "german": "de", "french": "fr", "spanish": "es",
    "italian": "it", "japanese": "ja", "russian": "ru", "chinese": "zh",
}  # fmt: skip
# FLORES has hundreds of free-text topics; the first rule that matches gives the class.
FLORES_CLASSES = (
    ("sports", r"sport|golf|fencing|runner|skates"),
    ("travel", r"travel|touris|antar|sailing|hiking|accomod"),
    ("politics", r"politic|crime|law|conflict|econom|business|society"),
    ("disasters", r"disaster|accident|weather|climate|trag"),
    ("culture", r"entert|television|culture and|^culture$|video|accordion|origami|photo|interactive"),
    ("history", r"histor|war|revolution|civili|england|english|geograph|heritage|wonders of|roman|paleo|castle"),
    ("science", r"scien|technolog|biolog|how.things|solar|element|discover|disease|health|psyco|environ|dinosaur"),
)
TEST_SHARE = 0.3


@dataclass(frozen=True)
class Labelled:
    """Texts with one label each, and their line numbers."""

    texts: list[str]
    labels: list[str]
    lines: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class CrossLingual:
    """Training texts in one language, test texts by language; `development` chooses the regularisation if given."""

    name: str
    source_language: str
    training: Labelled
    tests: dict[str, Labelled]
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)
    development: Labelled | None = None

    def __len__(self) -> int:
        return sum(len(test) for test in self.tests.values())

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        development = self.development.texts if self.development else []
        return self.training.texts + development + self.test_texts()

    def test_texts(self) -> list[str]:
        """Sentences that are scored."""
        return [text for test in self.tests.values() for text in test.texts]


def read_labelled(path: Path, encoding: str = "utf-8") -> tuple[Labelled, Lines]:
    """`label, tab, text` on every line (MLDoc).

    Raises:
        InputError: no tab, or an empty label or text; with the line.
    """
    lines = read_lines(path, encoding)
    texts, labels = [], []
    for number, line in enumerate(lines.lines, start=1):
        label, tab, text = line.partition("\t")
        if not tab:
            raise lines.error(number, "no tab: expected a label, a tab and a text")
        if not label.strip() or not text.strip():
            raise lines.error(number, "the label is empty" if not label.strip() else "the text is empty")
        labels.append(label.strip())
        texts.append(text.strip())
    return Labelled(texts, labels, list(range(1, len(texts) + 1))), lines


def read_mldoc(path: str | Path, source: str = "en", size: int = 1000) -> CrossLingual:
    """A folder as MLDoc writes it: `english.train.1000`, `english.dev`, `german.test`, ...

    Raises:
        InputError: no training file of the source language or no test file, or bad lines.
    """
    folder = Path(path)
    word = {code: name for name, code in MLDOC_LANGUAGES.items()}.get(source)
    training_file = folder / f"{word}.train.{size}"
    tests_found = {code: folder / f"{name}.test" for name, code in MLDOC_LANGUAGES.items()}
    tests_found = {code: file for code, file in tests_found.items() if file.is_file()}
    if word is None or not training_file.is_file() or not tests_found:
        raise InputError(f"{folder}: expected {word}.train.{size} and at least one LANGUAGE.test, as MLDoc writes them")
    training, lines = read_labelled(training_file)
    read = [lines]
    tests: dict[str, Labelled] = {}
    for code, file in tests_found.items():
        tests[code], lines = read_labelled(file)
        read.append(lines)
    development = None
    if (folder / f"{word}.dev").is_file():
        development, lines = read_labelled(folder / f"{word}.dev")
        read.append(lines)
    notes = [f"{one.path.name} {note}" for one in read for note in one.notes]
    return CrossLingual(f"mldoc/{source}", source, training, tests, [one.source for one in read], notes, development)


def flores_class(domain: str, topic: str) -> str | None:
    """Our class of a FLORES row: everything of Wikivoyage is travel unless sports; None when no rule applies."""
    topic = topic.strip().lower()
    for name, words in FLORES_CLASSES:
        if re.search(words, topic):
            return name
    return "travel" if domain == "wikivoyage" else None


def read_flores_topics(folder: str | Path, languages: list[str], source: str = "eng_Latn") -> CrossLingual:
    """FLORES dev with the topics of `metadata_dev.tsv`: train on the source language, test on each language.

    Rows of one document stay on one side: 30 % of each class's documents, in the order of their address's hash, are the
    test rows, the same rows in every language.

    Raises:
        InputError: missing files, unequal line counts, or a bad metadata line.
    """
    folder = Path(folder)
    metadata = read_lines(folder / "metadata_dev.tsv")
    header = metadata.lines[0].split("\t")
    try:
        address, domain, topic = (header.index(name) for name in ("URL", "domain", "topic"))
    except ValueError:
        raise metadata.error(1, "expected a header with URL, domain and topic") from None
    rows: list[tuple[str, str | None]] = []
    for number, line in enumerate(metadata.lines[1:], start=2):
        cells = line.split("\t")
        if len(cells) != len(header):
            raise metadata.error(number, f"{len(cells)} tab-separated columns, expected {len(header)}")
        rows.append((cells[address], flores_class(cells[domain], cells[topic])))
    test_documents = _test_documents(rows)
    files = {language: read_lines(folder / "dev" / f"{language}.dev.gz") for language in {source, *languages}}
    for lines in files.values():
        if len(lines.lines) != len(rows):
            raise InputError(f"{lines.path} has {len(lines.lines)} lines and metadata_dev.tsv {len(rows)} rows")

    def rows_of(language: str, test: bool) -> Labelled:
        chosen = [i for i, (document, label) in enumerate(rows) if label and (document in test_documents) == test]
        lines = [files[language].lines[i].strip() for i in chosen]
        return Labelled(lines, [str(rows[i][1]) for i in chosen], [i + 1 for i in chosen])

    left_out = sum(label is None for _, label in rows)
    notes = [f"{left_out} of {len(rows)} rows have a topic outside the {len(FLORES_CLASSES)} classes and are left out"]
    return CrossLingual(
        f"flores-topics/{source.split('_')[0]}",
        source,
        rows_of(source, test=False),
        {language: rows_of(language, test=True) for language in dict.fromkeys([source, *languages])},
        [metadata.source, *(lines.source for lines in files.values())],
        notes,
    )


def _test_documents(rows: list[tuple[str, str | None]]) -> set[str]:
    by_class: dict[str, list[str]] = {}
    for document, label in dict(rows).items():
        if label is not None:
            by_class.setdefault(label, []).append(document)
    chosen: set[str] = set()
    for documents in by_class.values():
        documents.sort(key=lambda document: hashlib.sha256(document.encode()).hexdigest())
        chosen.update(documents[: max(1, round(TEST_SHARE * len(documents)))])
    return chosen
