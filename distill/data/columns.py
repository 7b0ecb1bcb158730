"""Which columns of a table are the texts of a corpus.

In this order: the columns that the corpus names, columns named after languages, columns with known names, and the only
text columns among numbers, ids and scores. Anything else is an error that lists the columns.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.text.tabular import TabularFile, is_number, looks_like_names

# (source, target) in the data sets of sentence-transformers, OPUS and others
PAIR_NAMES = (
    ("english", "non_english"),
    ("source", "target"),
    ("src", "tgt"),
    ("src", "trg"),
    ("source_text", "target_text"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("text1", "text2"),
    ("anchor", "positive"),
    ("text", "translation"),
)
TRIPLE_NAMES = (
    ("premise", "entailment", "contradiction"),
    ("sent0", "sent1", "hard_neg"),
    ("query", "pos", "neg"),
    *((query, "positive", name) for query in ("anchor", "query") for name in ("negative", "negative_1")),
)
# (label, premise, hypothesis) of natural language inference
LABELLED_NAMES = tuple(
    (label, *pair)
    for label in ("gold_label", "label")
    for pair in (("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_a", "sentence_b"))
)
TEXT_NAMES = ("text", "sentence", "content")
# These look like language codes.
NO_CODES = frozenset([
    "src", "tgt", "trg", "url", "doc", "key", "row", "num", "pos", "neg", "idx", "uid", "set", "lid", "txt", "tag",
    "non",
])  # fmt: skip
# ISO 639-1 codes by English name, of the languages with the most text on the web.
LANGUAGE_NAMES = {
    "arabic": "ar", "bengali": "bn", "bulgarian": "bg", "catalan": "ca", "chinese": "zh", "croatian": "hr",
    "czech": "cs", "danish": "da", "dutch": "nl", "english": "en", "estonian": "et", "finnish": "fi", "french": "fr",
    "german": "de", "greek": "el", "hebrew": "he", "hindi": "hi", "hungarian": "hu", "indonesian": "id",
    "italian": "it", "japanese": "ja", "korean": "ko", "latvian": "lv", "lithuanian": "lt", "malay": "ms",
    "norwegian": "no", "persian": "fa", "polish": "pl", "portuguese": "pt", "romanian": "ro", "russian": "ru",
    "serbian": "sr", "slovak": "sk", "slovenian": "sl", "spanish": "es", "swahili": "sw", "swedish": "sv",
    "tamil": "ta", "thai": "th", "turkish": "tr", "ukrainian": "uk", "urdu": "ur", "vietnamese": "vi",
}  # fmt: skip
KNOWN_FORMATS = (
    "csv, tab-separated text and parquet with columns named by languages (en, de or english, german), by names such as "
    "source and target, or by `columns: [A, B]`; JSON lines, also with a `translation` object; folders of "
    "datasets.save_to_disk; TMX, gettext; two aligned files (`files: [A, B]`); lines of text (`kind: text`)"
)


def unnamed_language(name: object) -> InputError:
    """The error for pairs whose target language is not given anywhere."""
    return InputError(
        f"{name}: the language of its translations is unknown; add it to the corpus (`languages: [de]`), or name the "
        "file after its languages (NAME.en-de.tsv)"
    )


def base_code(code: str) -> str:
    """A language code in lower case without its region: `zh` of `zh_CN`."""
    return re.split("[_-]", code.strip().lower())[0]


def code_of(name: str) -> str | None:
    """The language code of a column named `de`, `zh_CN`, `translation.de` or `German`, in lower case; or None."""
    last = name.rsplit(".", 1)[-1].strip().lower()
    if last in LANGUAGE_NAMES:
        return LANGUAGE_NAMES[last]
    found = re.fullmatch(r"([a-z]{2,3})([_-][a-z0-9]+)?", last)
    return last if found and found[1] not in NO_CODES else None


def _is_language(code: str, language: str) -> bool:
    return language.lower() in (code, base_code(code))


def is_header(corpus: Corpus, cells: Sequence[str], rows: Sequence[Sequence[str]], any_names: bool = False) -> bool:
    """Whether the first row of a table names its columns; `any_names` accepts anything that looks like names."""
    if corpus.columns and isinstance(corpus.columns[0], str):
        return True
    if not all(re.fullmatch(r"[\w .-]{1,60}", cell) for cell in cells):
        return False
    names = {cell.lower() for cell in cells}
    labelled = LABELLED_NAMES if corpus.kind in ("nli", "nli-pairs") else ()
    if any(set(known) <= names for known in (*PAIR_NAMES, *TRIPLE_NAMES, *labelled)):
        return True
    codes = [code for code in map(code_of, cells) if code is not None]
    if len(codes) >= 2 and (len(codes) == len(cells) or any(_is_language(code, corpus.source) for code in codes)):
        return all(re.fullmatch(r"[\w.-]+", cell) for cell in cells)
    return any_names and (bool(names & set(TEXT_NAMES)) or looks_like_names(cells, rows))


def _text_columns(table: TabularFile) -> list[int]:
    """Columns of text: most of their cells have letters and are not numbers."""

    def is_text(column: int) -> bool:
        cells = [row[column] for row in table.sample if column < len(row) and row[column] not in (None, "")]
        texts = [c for c in cells if isinstance(c, str) and not is_number(c) and any(letter.isalpha() for letter in c)]
        return 2 * len(texts) > len(cells)

    return [column for column in range(table.width) if is_text(column)]


def named_columns(corpus: Corpus, path: Path, names: Sequence[str], width: int, have: str) -> list[int]:
    """The columns, from 0, that the corpus names; `have` describes those of the file for an error."""
    for column in corpus.columns:
        if column not in names and not (isinstance(column, int) and 1 <= column <= width):
            raise InputError(f"{path}: no column {column!r} (have {have})")
    return [names.index(column) if isinstance(column, str) else column - 1 for column in corpus.columns]


def find_columns(table: TabularFile, corpus: Corpus, what: str, known: Sequence[tuple[str, ...]]) -> list[int]:
    """The columns that the corpus names, those with known names, all columns, or all with text.

    `what` describes the columns in errors; plain text may have several.
    """
    wanted = len(known[0])
    if corpus.columns:
        found = named_columns(corpus, table.path, table.names, table.width, table.columns())
        more = corpus.kind == "triples" and len(found) > wanted  # negatives
        if len(found) != wanted and corpus.kind != "text" and not more:
            raise InputError(f"{table.path}: {what} need {wanted} columns, `columns` has {len(found)}")
        return found
    names = [name.lower() for name in table.names]
    lasts = [name.rsplit(".", 1)[-1] for name in names]
    for one in known:
        for have in (names, lasts):
            if set(one) <= set(have):
                found = [have.index(name) for name in one]
                numbered = re.sub(r"_1$", "", one[-1]) + r"_\d+"  # negative_1, negative_2, ... of a triple
                others = [at for at, name in enumerate(have) if at not in found and re.fullmatch(numbered, name)]
                return found + (others if corpus.kind == "triples" else [])
    for columns in (list(range(table.width)), _text_columns(table)):
        if len(columns) == wanted:
            return columns
    hint = f"choose the {what}: `columns: [{', '.join('ABC'[:wanted])}]`"
    raise InputError(f"{table.path}: not in a known format: {table.seen()}; {hint}. Known: {KNOWN_FORMATS}")


def _languages(table: TabularFile, corpus: Corpus) -> list[tuple[int, int, str]] | None:
    """Pairs of columns named after languages; None if there are none."""
    empty = [c for c in range(table.width) if not any(row[c] for row in table.sample if c < len(row))]
    texts = (*_text_columns(table), *empty)
    named = {column: code_of(name) for column, name in enumerate(table.names) if column in texts}
    codes = {column: code for column, code in named.items() if code is not None}
    sources = [column for column, code in codes.items() if _is_language(code, corpus.source)]
    if len(codes) < 2 or (not sources and len(codes) < len(table.names)):
        return None
    if not sources:
        raise InputError(f"{table.path}: no column {corpus.source!r} (have {', '.join(table.names)})")
    pairs = []
    for column, code in codes.items():
        wanted = next((language for language in corpus.languages if _is_language(code, language)), None)
        if column not in sources and (wanted is not None or not corpus.languages):
            pairs.append((sources[0], column, wanted or code))
    return pairs


def find_pairs(table: TabularFile, corpus: Corpus, language: str | None) -> list[tuple[int, int, str]]:
    """(source column, target column, target language) of the pairs to read.

    `language` is the target language if the column's name is not a language.
    """
    if not corpus.columns and (pairs := _languages(table, corpus)) is not None:
        return pairs
    one, two = find_columns(table, corpus, "pairs (source, target)", PAIR_NAMES)
    if table.names and corpus.columns and not corpus.languages:
        language = code_of(table.names[two]) or language
    if language is None:
        raise unnamed_language(table.path)
    return [(one, two, language)]
