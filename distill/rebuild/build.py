"""Make the files that a recipe names from their sources; what cannot be made is said, with the reason."""

from __future__ import annotations

import fnmatch
import gzip
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from msdc.distill.rebuild.clean import cleaned
from msdc.distill.rebuild.origins import find_files, take_files
from msdc.distill.rebuild.reader import TextRow
from msdc.distill.rebuild.source_list import SourceSet, Target
from msdc.distill.recipe import Corpus, Recipe
from msdc.errors import InputError
from msdc.files import atomic_path
from msdc.progress import say


@dataclass(frozen=True)
class Wanted:
    """What a recipe reads below its data folder: a pattern, and of a pair's files only these languages."""

    pattern: str
    languages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Made:
    """What became of one file; `state` is made, there, planned, training or missing."""

    file: str
    set: str
    state: str
    rows: int | None = None
    origin: str = ""
    why: str = ""


def wanted_of(recipe: Recipe, data: Path) -> tuple[list[Wanted], list[str]]:
    """What a recipe reads below `data`, and the corpora that training downloads itself."""
    root = data.as_posix().rstrip("/") + "/"
    corpora = list(dict.fromkeys([*recipe.corpora, *(c for stage in recipe.stages for c in stage.corpora or ())]))
    found: dict[Wanted, None] = {}
    elsewhere: list[str] = []

    def languages(corpus: Corpus) -> tuple[str, ...]:
        return tuple(corpus.languages) if corpus.kind != "text" else ()

    for corpus in corpora:
        if corpus.hub is not None or corpus.opus is not None:
            elsewhere.append(f"hub {corpus.hub}" if corpus.hub is not None else f"opus {corpus.opus}")
        for path in (corpus.path, *(corpus.files or ())):
            if path is not None and Path(path).as_posix().startswith(root):
                found[Wanted(Path(path).as_posix().removeprefix(root), languages(corpus))] = None
    graded = recipe.heldout.graded if recipe.heldout is not None else ()
    for path in (*recipe.exclude, *graded):
        if Path(path).as_posix().startswith(root):
            found[Wanted(Path(path).as_posix().removeprefix(root))] = None
    return list(found), elsewhere


def choose(wanted: Sequence[Wanted], sets: dict[str, SourceSet]) -> tuple[dict[str, list[Target]], list[str]]:
    """The targets of each set that are wanted, and the patterns for which no source is known."""
    chosen: dict[str, dict[str, Target]] = {}
    unknown: list[str] = []
    for one in wanted:
        hit = False
        for name, entry in sets.items():
            for target in entry.targets:
                if not fnmatch.fnmatchcase(target.file, one.pattern):
                    continue
                hit = True
                if not one.languages or not target.language or target.language in one.languages:
                    chosen.setdefault(name, {})[target.file] = target
        if not hit:
            unknown.append(one.pattern)
    return {name: list(targets.values()) for name, targets in chosen.items()}, unknown


def write_rows(rows: Iterable[TextRow], file: Path) -> int:
    """Write rows as lines of tab-separated cells, gzip without a name and a time where the file's name says so."""
    count = 0
    with atomic_path(file) as temporary:
        with open(temporary, "wb") as raw:
            packed = gzip.GzipFile("", "wb", 9, raw, mtime=0) if file.suffix == ".gz" else None
            out = packed or raw
            for row in rows:
                out.write("\t".join(text.replace("\t", " ") if len(row) > 1 else text for text in row).encode() + b"\n")
                count += 1
            if packed is not None:
                packed.close()
        if not count:
            raise InputError(f"{file.name}: nothing of the source is text of this kind")
    return count


def build_set(name: str, entry: SourceSet, targets: Sequence[Target], out: Path, sources: Path | None) -> list[Made]:
    """Make the files of one set; a file that cannot be made has the reason, the others are made."""
    by_origin: dict[str, list[str]] = {key: [] for key in entry.origins}
    for target in entry.targets:
        for path in (path for reader in target.readers for path in reader.paths()):
            key, inside = entry.place(path)
            by_origin[key].append(inside)

    @cache
    def folder_of(key: str) -> Path:
        # All files of the set, not only the wanted ones: its sha256 is that of all.
        return take_files(entry.origins[key], by_origin[key], sources)

    def find(path: str) -> list[Path]:
        key, inside = entry.place(path)
        return find_files(folder_of(key), inside)

    result = []
    for target in targets:
        keys = dict.fromkeys(entry.place(p)[0] for r in target.readers for p in r.paths()) if not entry.cannot else {}
        said = ", ".join(str(entry.origins[key]) for key in keys)
        if entry.cannot:
            result.append(Made(target.file, name, "missing", why=entry.cannot))
            continue
        try:
            rows = (row for reader in target.readers for row in reader.rows(find))
            count = write_rows(cleaned(rows, target.clean), out / target.file)
            result.append(Made(target.file, name, "made", count, said))
        except InputError as error:
            result.append(Made(target.file, name, "missing", origin=said, why=str(error)))
    return result


def build(
    recipe: Recipe,
    data: Path,
    sets: dict[str, SourceSet],
    only: Sequence[str] = (),
    sources: Path | None = None,
    dry_run: bool = False,
) -> list[Made]:
    """Make what a recipe reads below `data`, and say what became of each file.

    Args:
        recipe: loaded with `data` as its data folder.
        data: the folder to make.
        sets: the list of sources.
        only: names of sets; the others are left alone.
        sources: a folder with local copies, instead of downloads.
        dry_run: make nothing.

    Raises:
        InputError: `only` names a set that the recipe does not read.
    """
    wanted, elsewhere = wanted_of(recipe, data)
    chosen, unknown = choose(wanted, sets)
    if strange := [name for name in only if name not in chosen]:
        raise InputError(f"--only {strange[0]}: {recipe.name} reads no such set (it reads {', '.join(chosen)})")
    made = [Made(name, "", "training", why="downloaded by training") for name in elsewhere if not only]
    for name, targets in chosen.items():
        if only and name not in only:
            continue
        there = [target for target in targets if (data / target.file).is_file()]
        todo = [target for target in targets if target not in there]
        made += [Made(target.file, name, "there") for target in there]
        if dry_run:
            origins = ", ".join(map(str, sets[name].origins.values()))
            state = "missing" if sets[name].cannot else "planned"
            made += [Made(target.file, name, state, origin=origins, why=sets[name].cannot) for target in todo]
        elif todo:
            say(f"{name}: {len(todo)} files")
            made += build_set(name, sets[name], todo, data, sources)
    if not only:
        made += [
            Made(pattern, "", "there" if any(data.glob(pattern)) else "missing", why="no source is known for it")
            for pattern in unknown
        ]
    return made
