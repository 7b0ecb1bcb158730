"""SentEval's transfer tasks, in the files of SentEval's download script: MR CR SUBJ MPQA SST2 TREC MRPC."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msdc.bench.accuracy.readers.labelled import Labelled
from msdc.errors import InputError
from msdc.text.text_files import Lines, SourceFile, read_lines

# task -> file per class (SentEval stores these four as one latin-1 file per class)
BY_CLASS = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.subjective", "subj.objective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}
NAMES = (*BY_CLASS, "SST2", "TREC", "MRPC")


@dataclass(frozen=True)
class Transfer:
    """Labelled texts of one task. `second` holds the second sentence of each row in a pair task.

    Without `test` the task is scored by cross-validation; without `development` the regularisation is chosen on
    training rows.
    """

    name: str
    training: Labelled
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)
    test: Labelled | None = None
    development: Labelled | None = None
    second: dict[str, list[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.test or self.training)

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        parts = [self.training, *(part for part in (self.development, self.test) if part)]
        return [t for part in parts for t in part.texts] + [t for side in self.second.values() for t in side]

    def test_texts(self) -> list[str]:
        """Sentences that are scored."""
        return (self.test or self.training).texts + self.second.get("test", [])


def _labelled(rows: list[tuple[str, str, int]], lines: Lines) -> Labelled:
    for text, _, number in rows:
        if not text:
            raise lines.error(number, "the text is empty")
    return Labelled([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])


def _read_latin(path: Path) -> Lines:
    """SentEval's older files are latin-1; a file in valid UTF-8 is read as UTF-8."""
    try:
        return read_lines(path)
    except InputError as error:
        if "UTF-8" not in str(error):
            raise
        return read_lines(path, "latin-1")


def _by_class(folder: Path, name: str) -> Transfer:
    texts: list[str] = []
    labels: list[str] = []
    numbers: list[int] = []
    read = []
    for label, file in zip(("1", "0"), BY_CLASS[name], strict=True):
        lines = _read_latin(folder / file)
        part = _labelled([(line.strip(), label, n) for n, line in enumerate(lines.lines, start=1)], lines)
        texts += part.texts
        labels += part.labels
        numbers += part.lines
        read.append(lines)
    notes = [f"{one.path.name} {note}" for one in read for note in one.notes]
    return Transfer(name, Labelled(texts, labels, numbers), [one.source for one in read], notes)


def _sst2(folder: Path) -> Transfer:
    parts: dict[str, Labelled] = {}
    sources, notes = [], []
    for part in ("train", "dev", "test"):
        lines = read_lines(folder / f"sentiment-{part}")
        rows = []
        for number, line in enumerate(lines.lines, start=1):
            text, tab, label = line.rpartition("\t")
            if not tab or label.strip() not in ("0", "1"):
                raise lines.error(number, "expected a sentence, a tab and 0 or 1")
            rows.append((text.strip(), label.strip(), number))
        parts[part] = _labelled(rows, lines)
        sources.append(lines.source)
        notes += [f"{lines.path.name} {note}" for note in lines.notes]
    return Transfer("SST2", parts["train"], sources, notes, parts["test"], parts["dev"])


def _trec(folder: Path) -> Transfer:
    parts = {}
    sources, notes = [], []
    for part, file in (("train", "train_5500.label"), ("test", "TREC_10.label")):
        lines = _read_latin(folder / file)
        rows = []
        for number, line in enumerate(lines.lines, start=1):
            head, _, question = line.partition(" ")
            coarse, colon, _ = head.partition(":")
            if not colon or not question.strip():
                raise lines.error(number, "expected COARSE:fine, a space and a question")
            rows.append((question.strip(), coarse, number))
        parts[part] = _labelled(rows, lines)
        sources.append(lines.source)
        notes += [f"{lines.path.name} {note}" for note in lines.notes]
    return Transfer("TREC", parts["train"], sources, notes, parts["test"])


def _mrpc(folder: Path) -> Transfer:
    parts, second = {}, {}
    sources, notes = [], []
    for part, file in (("train", "msr_paraphrase_train.txt"), ("test", "msr_paraphrase_test.txt")):
        lines = read_lines(folder / file)
        rows, others = [], []
        for number, line in enumerate(lines.lines[1:], start=2):
            cells = line.split("\t")
            if len(cells) != 5 or cells[0].strip() not in ("0", "1"):
                raise lines.error(number, "expected 5 tab-separated columns: 0 or 1, two ids, two sentences")
            if not cells[4].strip():
                raise lines.error(number, "the second sentence is empty")
            rows.append((cells[3].strip(), cells[0].strip(), number))
            others.append(cells[4].strip())
        parts[part], second[part] = _labelled(rows, lines), others
        sources.append(lines.source)
        notes += [f"{lines.path.name} {note}" for note in lines.notes]
    return Transfer("MRPC", parts["train"], sources, notes, parts["test"], second=second)


def read_senteval(path: str | Path) -> Transfer:
    """The folder of one task, named as SentEval names it: `.../MR`, `.../SST/binary`, `.../TREC`.

    Raises:
        InputError: files of no known task, or bad lines with their number.
    """
    folder = Path(path)
    for name, files in BY_CLASS.items():
        if (folder / files[0]).is_file():
            return _by_class(folder, name)
    for marker, reader in (
        ("sentiment-train", _sst2),
        ("train_5500.label", _trec),
        ("msr_paraphrase_train.txt", _mrpc),
    ):
        if (folder / marker).is_file():
            return reader(folder)
    raise InputError(f"{folder}: no files of a SentEval task ({', '.join(NAMES)})")
