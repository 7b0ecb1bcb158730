"""Which columns of a table are the texts of a corpus.

In this order: the columns that the corpus names, columns named after languages, columns with known names, and the only
text columns among numbers, ids and scores. Anything else is an error that lists the columns.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.extras import require
from msdc.text.tabular import is_number
from msdc.text.text_files import TabularFile

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
    ("msgid", "msgstr"),
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


class Pair(NamedTuple):
    """Columns of both sides (the first filled one is read), the target language, and how it was found."""

    sources: list[int]
    targets: list[int]
    language: str
    why: str


def unnamed_language(name: object) -> InputError:
    """The error for pairs whose target language is not given anywhere."""
    return InputError(
        f"{name}: the language of its translations is unknown; add it to the corpus (`languages: [de]`), or name the "
        "file after its languages (NAME.en-de.tsv)"
    )


@functools.cache
def _parsed(code: str) -> Any:
    """A language code as `langcodes.Language`; None if it is none, or not registered."""
    require("langcodes", "the language of a corpus")
    import langcodes

    code = code.strip().replace("_", "-")
    valid = re.fullmatch(r"[A-Za-z]{2,3}(-\w+)*", code) is not None and langcodes.tag_is_valid(code)
    return langcodes.Language.get(code) if valid else None


def is_language(code: str) -> bool:
    """Whether a text is a registered language code."""
    return _parsed(code) is not None


def fits(code: str, asked: str) -> bool:
    """Whether text in `code` is text in the language that was asked for (BCP 47).

    `de-AT` fits `de`, and `en` fits `en-US`; other scripts and regions than those asked for do not fit.
    """
    if code.lower() == asked.lower():
        return True
    locale, asked_locale = _parsed(code), _parsed(asked)
    if locale is None or asked_locale is None or locale.language != asked_locale.language:
        return False
    if (asked_locale.script or asked_locale.territory) and locale.maximize().script != asked_locale.maximize().script:
        return False
    return not (locale.territory and asked_locale.territory) or locale.territory == asked_locale.territory


def code_of(name: str) -> str | None:
    """The language code of a column named "de", "zh_CN", "translation.de" or "German", or None."""
    last = name.rsplit(".", 1)[-1].strip()
    if last.lower() in LANGUAGE_NAMES:
        return LANGUAGE_NAMES[last.lower()]
    match = re.fullmatch(r"([a-z]{2,3})([_-]\w+)*", last)
    return str(_parsed(last)) if match and match[1] not in NO_CODES and is_language(last) else None


def is_header(corpus: Corpus, cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row of a table must be names of columns: those that the corpus or the field uses."""
    if any(isinstance(column, str) for column in (*corpus.columns, *corpus.scores)):
        return True
    names = {cell.lower() for cell in cells}
    labelled = LABELLED_NAMES if corpus.kind in ("nli", "nli-pairs") else ()
    if any(set(names_of_kind) <= names for names_of_kind in (*PAIR_NAMES, *TRIPLE_NAMES, *labelled)):
        return True
    if corpus.kind == "text" and names & {*TEXT_NAMES, corpus.source.lower()}:
        return True
    codes = [code for code in map(code_of, cells) if code is not None]
    # Two short words may be codes of languages by chance, such as `hi` and `ho`.
    return len(codes) >= 2 and (any(fits(code, corpus.source) for code in codes) or 2 < len(cells) == len(codes))


def _text_columns(table: TabularFile) -> list[int]:
    """Columns of text: most of their cells have letters and are not numbers."""

    def is_text(column: int) -> bool:
        cells = [row[column] for row in table.sample if column < len(row) and row[column] not in (None, "")]
        texts = [c for c in cells if isinstance(c, str) and not is_number(c) and any(letter.isalpha() for letter in c)]
        return 2 * len(texts) > len(cells)

    return [column for column in range(table.width) if is_text(column)]


def named_columns(columns: Sequence[int | str], path: Path, names: Sequence[str], width: int, have: str) -> list[int]:
    """The columns, from 0, of some names or numbers from 1; `have` describes those of the file for an error."""
    for column in columns:
        if column not in names and not (isinstance(column, int) and 1 <= column <= width):
            raise InputError(f"{path}: no column {column!r} (have {have})")
    return [names.index(column) if isinstance(column, str) else column - 1 for column in columns]


def find_columns(table: TabularFile, corpus: Corpus, what: str, known_names: Sequence[tuple[str, ...]]) -> list[int]:
    """The columns that the corpus names, those with known names, all columns, or all with text.

    `what` describes the columns in errors; plain text may have several.
    """
    count = len(known_names[0])
    if corpus.columns:
        chosen_columns = named_columns(corpus.columns, table.path, table.names, table.width, table.columns())
        has_negatives = corpus.kind == "triples" and len(chosen_columns) > count  # negatives
        if len(chosen_columns) != count and corpus.kind != "text" and not has_negatives:
            raise InputError(f"{table.path}: {what} need {count} columns, `columns` has {len(chosen_columns)}")
        return chosen_columns
    names = [name.lower() for name in table.names]
    lasts = [name.rsplit(".", 1)[-1] for name in names]
    for name_group in known_names:
        for have in (names, lasts):
            if set(name_group) <= set(have):
                chosen_columns = [have.index(name) for name in name_group]
                numbered = re.sub(r"_1$", "", name_group[-1]) + r"_\d+"  # negative_1, negative_2, ... of a triple
                others = [
                    column
                    for column, name in enumerate(have)
                    if column not in chosen_columns and re.fullmatch(numbered, name)
                ]
                return chosen_columns + (others if corpus.kind == "triples" else [])
    for columns in (list(range(table.width)), _text_columns(table)):
        if len(columns) == count:
            return columns
    hint = f"choose the {what}: `columns: [{', '.join('ABC'[:count])}]`"
    raise InputError(f"{table.path}: not in a known format: {table.summary()}; {hint}. Known: {KNOWN_FORMATS}")


def _matching(codes: Mapping[int, str], asked: str) -> list[int]:
    """The columns in a language, the closest first; those in another script than the closest one are left out."""
    matching = [column for column, code in codes.items() if fits(code, asked)]
    if len(matching) > 1:
        import langcodes

        matching.sort(key=lambda column: langcodes.tag_distance(asked, codes[column]))
        script = _parsed(codes[matching[0]]).maximize().script
        matching = [column for column in matching if _parsed(codes[column]).maximize().script == script]
    return matching


def _by_language(table: TabularFile, codes: Mapping[int, str]) -> dict[str, list[int]]:
    """Columns by language code; variants of a language that no row has both of, such as de-AT and de, are one."""
    columns_by_language: dict[str, list[int]] = {}
    for column, code in codes.items():
        language = _parsed(code)
        like = [index for index, other in codes.items() if _parsed(other).language == language.language]
        apart = any(sum(bool(row[index]) for index in like if index < len(row)) > 1 for row in table.sample)
        columns_by_language.setdefault(code if apart else language.language, []).append(column)
    return columns_by_language


def _languages(table: TabularFile, corpus: Corpus) -> list[Pair] | None:
    """Pairs of columns named after languages; None if there are none."""
    empty = [c for c in range(table.width) if not any(row[c] for row in table.sample if c < len(row))]
    texts = (*_text_columns(table), *empty)
    named = {column: code_of(name) for column, name in enumerate(table.names) if column in texts}
    codes = {column: code for column, code in named.items() if code is not None}
    sources = _matching(codes, corpus.source)
    if not sources and (len(codes) < 2 or len(codes) < len(table.names)):
        return None
    if not sources:
        raise InputError(f"{table.path}: no column {corpus.source!r} (have {', '.join(table.names)})")
    others = {column: code for column, code in codes.items() if column not in sources}
    if not others:
        if table.form == "TMX":
            raise InputError(f"{table.path}: a translation memory with only {corpus.source!r} in its first units")
        return None
    if corpus.languages:
        asked = {language: _matching(others, language) for language in corpus.languages}
        return [Pair(sources, columns, code, "as given") for code, columns in asked.items() if columns]
    return [Pair(sources, columns, code, "by the column") for code, columns in _by_language(table, others).items()]


def find_pairs(table: TabularFile, corpus: Corpus, language: str | None, why: str) -> list[Pair]:
    """The pairs of columns to read.

    `language` is the target language, and `why` its origin, if the column's name is not a language.
    """
    if not corpus.columns and (pairs := _languages(table, corpus)) is not None:
        return pairs
    source, target = find_columns(table, corpus, "pairs (source, target)", PAIR_NAMES)
    if table.names and corpus.columns and not corpus.languages and (code := code_of(table.names[target])) is not None:
        language, why = code, "by the column"
    if language is None:
        raise unnamed_language(table.path)
    return [Pair([source], [target], language, why)]
