"""Test sentences that occur in a training corpus: exact duplicates (ignoring case and punctuation) and near ones.

Near duplicates are found by MinHash and confirmed by the exact Jaccard similarity of character 5-grams, so there are no
false positives. Corpora are streamed; memory holds the test sentences, a hash of each distinct sentence, and a batch.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from msdc.distill.catalog import load_recipe, shipped
from msdc.distill.data.corpora import TextSource, open_corpora
from msdc.distill.data.exclusion import read_exclusion
from msdc.errors import InputError
from msdc.files import sha256_file, without_system_files
from msdc.progress import track, warn
from msdc.text.duplicates import NEAR, NearIndex, normalise
from msdc.text.tabular import CORPUS_SUFFIXES, iterate_cells, suffix_of

BATCH = 4096
EXAMPLES = 5


class CorpusText(NamedTuple):
    """One corpus: its name in the result, its sha256 where it is one file, and (line or row number, sentence) pairs."""

    name: str
    sha256: str | None
    sentences: Callable[[], Iterator[tuple[int, str]]]


def corpus_streams(words: Iterable[str | Path], data: Path | None = None) -> list[CorpusText]:
    """Streams of files, of all files of text in folders, and of recipes (a .yaml file, or the name of a shipped one).

    A recipe yields the rows that it trains on: its languages, limits, longest sentence and `exclude` apply. `data` is
    the folder that replaces {data} in a recipe.
    """
    streams: dict[str, CorpusText] = {}
    for word in words:
        path = Path(word)
        if path.suffix in (".yaml", ".yml") or str(word) in shipped():
            recipe = load_recipe(str(word), data=data)
            for source in open_corpora(recipe.corpora, read_exclusion(recipe.exclude), recipe.languages):
                # the last two parts of a path: a result names no folder of this machine
                name = "/".join(Path(source.name).parts[-2:])
                streams.setdefault(name, CorpusText(name, None, partial(_row_sentences, source)))
            continue
        if not path.exists():
            raise InputError(f"{path}: no such training corpus, and no shipped recipe of that name")
        files = [path] if path.is_file() else without_system_files(p for p in path.rglob("*") if p.is_file())
        others = [file for file in files if file != path and suffix_of(file) not in CORPUS_SUFFIXES]
        files = [file for file in files if file not in others]
        if not files:
            raise InputError(f"{path}: no file of a training corpus ({', '.join(CORPUS_SUFFIXES)})")
        if others:
            names = ", ".join(file.name for file in others[:5]) + (", ..." if len(others) > 5 else "")
            warn(f"{path}: {len(others)} files are not searched, they are no text by their names: {names}")
        for file in files:
            # with the folder's name: many corpora are called train.en-de.tsv
            name = "/".join(part for part in (file.parent.name, file.name) if part)
            if name not in streams:
                streams[name] = CorpusText(name, sha256_file(file), partial(iterate_cells, file, strict=False))
    return list(streams.values())


def _row_sentences(source: TextSource) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(source.read(), start=1):
        yield from ((number, text) for text in (row.source, row.target, *row.negatives) if text)


class Findings(NamedTuple):
    """Results of a check, per test set and per corpus; `matched_sentences` are in normal form."""

    by_set: dict[str, dict[str, Any]]
    corpora: list[dict[str, Any]]
    matched_sentences: dict[str, set[str]]


class _Matcher:
    """Matches of corpus sentences with test sentences, all in normal form; each distinct one is looked up once."""

    def __init__(self, tests: Iterable[str], near: float | None) -> None:
        self.tests = set(tests)
        self.index = NearIndex(list(tests), near) if near is not None else None
        self._keys: set[bytes] = set()
        self._matches: dict[bytes, list[tuple[str, float]]] = {}

    def __call__(self, normals: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Per sentence, the test sentences that equal it or are near it, with the similarity."""
        keys = [hashlib.blake2b(n.encode("utf-8", "surrogatepass"), digest_size=8).digest() for n in normals]
        fresh = {key: n for key, n in zip(keys, normals, strict=True) if key not in self._keys}
        near = self.index.matches(list(fresh.values())) if self.index is not None else [[] for _ in fresh]
        for (key, normal), similar in zip(fresh.items(), near, strict=True):
            matches = [(normal, 1.0)] if normal in self.tests else []
            matches += [match for match in similar if match[0] != normal]
            if matches:
                self._matches[key] = matches
        self._keys.update(fresh)
        return [self._matches.get(key, []) for key in keys]


def check(
    tests: dict[str, list[str]],
    corpora: Iterable[str | Path],
    *,
    near: float | None = NEAR,
    progress: bool = False,
    data: Path | None = None,
) -> Findings:
    """Search every corpus for the sentences of every test set.

    `tests` maps a set's name to its sentences. Counts are of distinct test sentences by normal form: `exact`, and
    `near` (similar at or above `near` and not exact). near=None searches for exact ones only. `data` is the folder
    that replaces {data} in a recipe.
    """
    if near is not None and not 0 < near <= 1:
        raise InputError(f"the near-duplicate similarity {near} is not between 0 and 1")
    places: dict[str, list[tuple[str, int]]] = {}  # normal form -> (set, text number) of its occurrences
    for name, texts in tests.items():
        for number, text in enumerate(texts, start=1):
            if normal := normalise(text):
                places.setdefault(normal, []).append((name, number))
    matcher = _Matcher(places, near)
    kinds: dict[str, set[str]] = {"exact": set(), "near": set()}  # of all corpora
    matched_sentences: dict[str, set[str]] = {name: set() for name in tests}
    examples: dict[str, list[dict[str, Any]]] = {name: [] for name in tests}
    by_corpus = []
    for stream in track(corpus_streams(corpora, data), "contamination", enabled=progress):
        sentences = 0
        normals_by_kind: dict[str, set[str]] = {"exact": set(), "near": set()}
        rows = ((line, normal) for line, text in stream.sentences() if (normal := normalise(text)))
        while batch := list(itertools.islice(rows, BATCH)):
            sentences += len(batch)
            for (line, normal), matches in zip(batch, matcher([normal for _, normal in batch]), strict=True):
                for match, similarity in matches:
                    kind = "exact" if match == normal else "near"
                    normals_by_kind[kind].add(match)
                    for name, number in places[match]:
                        if match not in matched_sentences[name] and len(examples[name]) < EXAMPLES:
                            position = {"kind": kind, "similarity": round(similarity, 3), "test_text": number}
                            examples[name].append(position | {"corpus": stream.name, "line": line})
                        matched_sentences[name].add(match)
        kinds = {kind: kinds[kind] | normals_by_kind[kind] for kind in kinds}
        counts = {
            "sentences": sentences,
            "exact": len(normals_by_kind["exact"]),
            "near": len(normals_by_kind["near"] - normals_by_kind["exact"]),
        }
        by_corpus.append({"file": stream.name, "sha256": stream.sha256, **counts})
    by_set = {
        name: {
            "sentences": len({normal for text in texts if (normal := normalise(text))}),
            "exact": len(matched_sentences[name] & kinds["exact"]),
            "near": len(matched_sentences[name] - kinds["exact"]) if near is not None else None,
            "near_at": near,
            "examples": examples[name],
        }
        for name, texts in tests.items()
    }
    return Findings(by_set, by_corpus, matched_sentences)
