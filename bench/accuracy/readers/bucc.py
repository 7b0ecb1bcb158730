"""BUCC's bitext mining files: `de-en.training.de` and `.en` (id, tab, sentence), `.gold` (id, tab, id)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from msdc.errors import InputError
from msdc.text.text_files import Lines, SourceFile, read_lines


@dataclass(frozen=True)
class Split:
    """Two unaligned collections and the positions of their translations; `gold` is None where it is not published."""

    source: list[str]
    target: list[str]
    gold: set[tuple[int, int]] | None

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return self.source + self.target


@dataclass(frozen=True)
class Mining:
    """A training split, for the threshold, and a test split where there is one."""

    name: str
    training: Split
    test: Split | None
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        split = self.test or self.training
        return len(split.gold or ())

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return self.training.texts() + (self.test.texts() if self.test else [])

    def test_texts(self) -> list[str]:
        """Sentences that are scored."""
        return (self.test or self.training).texts()


def _sentences(lines: Lines) -> tuple[list[str], dict[str, int]]:
    texts: list[str] = []
    index: dict[str, int] = {}
    for number, line in enumerate(lines.lines, start=1):
        cells = line.split("\t")
        if len(cells) != 2:
            raise lines.error(number, f"{len(cells)} tab-separated columns, expected 2: id and sentence")
        identifier, text = cells[0].strip(), cells[1].strip()
        if not text:
            raise lines.error(number, "the sentence is empty")
        if identifier in index:
            raise lines.error(number, f"the id {identifier!r} is a duplicate of line {index[identifier] + 1}")
        index[identifier] = len(texts)
        texts.append(text)
    return texts, index


def read_split(prefix: Path) -> tuple[Split, list[Lines]]:
    """One split from `prefix.LANGUAGE` (two files) and `prefix.gold` where it exists.

    Raises:
        InputError: not exactly two languages, a wrong column count, or a gold id that no file holds; with the line.
    """
    files = sorted(p for p in prefix.parent.glob(f"{prefix.name}.*") if p.is_file())
    languages = [p for p in files if p.name.removesuffix(".gz").rsplit(".", 1)[1] != "gold"]
    gold_file = next((p for p in files if p not in languages), None)
    if len(languages) != 2:
        raise InputError(f"{prefix}.*: {len(languages)} language files, expected two, as de-en.training.de and .en")
    # BUCC names the split by its pair, de-en.training: the first language is the source
    order = prefix.name.split(".")[0].split("-")
    languages.sort(key=lambda p: order.index(code) if (code := p.name.split(".")[-1]) in order else 9)
    read = [read_lines(p) for p in languages]
    (source, source_index), (target, target_index) = (_sentences(lines) for lines in read)
    gold: set[tuple[int, int]] | None = None
    if gold_file is not None:
        gold_lines = read_lines(gold_file)
        gold = set()
        for number, line in enumerate(gold_lines.lines, start=1):
            cells = [cell.strip() for cell in line.split("\t")]
            if len(cells) != 2:
                raise gold_lines.error(number, f"{len(cells)} tab-separated columns, expected 2 ids")
            if cells[0] not in source_index or cells[1] not in target_index:
                missing = cells[0] if cells[0] not in source_index else cells[1]
                raise gold_lines.error(number, f"the id {missing!r} is in no sentence file")
            gold.add((source_index[cells[0]], target_index[cells[1]]))
        read.append(gold_lines)
    return Split(source, target, gold), read


def read_bucc(path: str | Path) -> Mining:
    """A folder with `XX-en.training.*` and, where published, `XX-en.test.*`; or the prefix of one pair in it.

    Raises:
        InputError: no training split with gold pairs, several pairs in one folder, or bad lines.
    """
    path = Path(path)
    folder = path if path.is_dir() else path.parent
    pattern = "*.training.gold*" if path.is_dir() else f"{path.name.split('.')[0]}.training.gold*"
    golds = sorted(folder.glob(pattern))
    if len(golds) != 1:
        found = ", ".join(p.name for p in golds) or "none"
        raise InputError(f"{path}: expected one XX-en.training.gold, found {found}; name one pair as FOLDER/de-en")
    pair = golds[0].name.split(".training.gold")[0]
    training, lines = read_split(folder / f"{pair}.training")
    test = None
    if list(folder.glob(f"{pair}.test.*")):
        test, more = read_split(folder / f"{pair}.test")
        lines += more
    notes = [f"{one.path.name} {note}" for one in lines for note in one.notes]
    if test is not None and test.gold is None:
        notes.append("the test split has no gold file: scored on the training split only")
        test = None
    return Mining(pair, training, test, [one.source for one in lines], notes)
