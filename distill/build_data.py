"""`msdc build-data`: build the files that a recipe reads from their public sources."""

from __future__ import annotations

import fnmatch
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from msdc.command_options import json_option, quiet_option
from msdc.distill.catalog import load_recipe
from msdc.distill.data.sources import SourceSet, TextRow, read_sources
from msdc.distill.recipe import Corpus, Recipe
from msdc.errors import InputError, MsdcError, printable
from msdc.files import atomic_path
from msdc.progress import say
from msdc.tables import Column, Table, to_text
from msdc.text.tokenizer import clean

SHOWN = 110  # characters of a reason


@dataclass(frozen=True)
class FileOutcome:
    """The outcome for one file; `state` is built, present, planned, training or missing."""

    file: str
    set: str
    state: str
    rows: int | None = None
    origin: str = ""
    why: str = ""


def _languages(recipe: Recipe, corpus: Corpus) -> tuple[str, ...]:
    """The languages that are read of a corpus; empty: all of its files."""
    trained = recipe.languages or corpus.languages
    return tuple(code for code in corpus.languages or recipe.languages if code in trained)


def wanted_files(recipe: Recipe, data: Path, sets: dict[str, SourceSet]) -> tuple[dict[str, str], list[str], list[str]]:
    """The set of each file that a recipe reads, patterns without a known source, and corpora of the hub or OPUS."""
    corpora = dict.fromkeys(recipe.all_corpora)
    patterns: list[tuple[str, tuple[str, ...]]] = [
        (path, () if corpus.kind == "text" else _languages(recipe, corpus))
        for corpus in corpora for path in (corpus.path, *(corpus.files or ())) if path is not None
    ]  # fmt: skip
    patterns += [(path, ()) for path in (*recipe.exclude, *recipe.heldout.graded)]
    files = [(file, name, code) for name, entry in sets.items() for file, (code, _) in entry.targets.items()]
    set_of_file: dict[str, str] = {}
    unknown: dict[str, None] = {}
    for path, languages in patterns:
        if not Path(path).is_relative_to(data):
            continue
        pattern = Path(path).relative_to(data).as_posix()
        hits = [listed_file for listed_file in files if fnmatch.fnmatchcase(listed_file[0], pattern)]
        set_of_file |= {file: name for file, name, code in hits if not languages or not code or code in languages}
        if not hits:
            unknown[pattern] = None
    remote = [f"hub {corpus.hub}" if corpus.hub else f"opus {corpus.opus}" for corpus in corpora if corpus.is_remote]
    return set_of_file, list(unknown), remote


def cleaned(rows: Iterable[TextRow]) -> Iterable[TextRow]:
    """Rows with their texts cleaned as in training, without empty or undecodable sides and exact duplicates."""
    texts = (tuple(map(clean, row)) for row in rows)
    return dict.fromkeys(row for row in texts if all(row) and not any("\ufffd" in text for text in row))


def write_rows(rows: Iterable[TextRow], file: Path) -> int:
    """Write rows as tab-separated lines and return their number; a `.gz` file stores no name and no time."""
    lines = ["\t".join(row) + "\n" for row in rows]
    if not lines:
        raise InputError(f"{file.name}: the source contains no such text")
    raw = "".join(lines).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(file) as part:
        part.write_bytes(gzip.compress(raw, 9, mtime=0) if file.suffix == ".gz" else raw)
    return len(lines)


def build_data(
    recipe: Recipe | None,
    data: Path,
    sets: dict[str, SourceSet],
    *,
    only: Sequence[str] = (),
    copies: Path | None = None,
    dry_run: bool = False,
    evaluation: bool = False,
) -> list[FileOutcome]:
    """Build the files that a recipe reads in `data`, the folder it was loaded with; existing files are kept.

    Args:
        recipe: None builds the sets of `evaluation` only.
        sets: all sets by name, as of `read_sources`.
        evaluation: also all test and development sets, retrieval included.
        only: names of the sets to build; empty: all.
        copies: a folder with copies of the sources, instead of downloads.

    Raises:
        InputError: `only` names a set that the recipe does not read.
    """
    set_of_file, unknown, remote = ({}, [], []) if recipe is None else wanted_files(recipe, data, sets)
    if evaluation:
        set_of_file |= {file: name for name, entry in sets.items() if entry.test for file in entry.targets}
    if strange := [name for name in only if name not in set_of_file.values()]:
        reader = "the evaluation" if recipe is None else recipe.name
        raise InputError(f"`only` {strange[0]}: {reader} reads {', '.join(dict.fromkeys(set_of_file.values()))}")
    results = [FileOutcome(name, "", "training", why="downloaded by training") for name in remote if not only]
    for file, name in set_of_file.items():
        if only and name not in only:
            continue
        entry = sets[name]
        origin = ", ".join(map(str, entry.origins.values()))
        if (present := (data / file).is_file()) or dry_run:
            results.append(FileOutcome(file, name, "present" if present else "planned", origin=origin))
            continue
        say(f"{name}: {file}")
        try:
            rows = entry.rows(file, copies)
            unchanged = any(part.verbatim for part in entry.targets[file][1])
            count = write_rows(rows if unchanged else cleaned(rows), data / file)
            results.append(FileOutcome(file, name, "built", count, origin))
        except InputError as error:
            results.append(FileOutcome(file, name, "missing", origin=origin, why=str(error)))
    states = {pattern: "present" if any(data.glob(pattern)) else "missing" for pattern in unknown if not only}
    return results + [FileOutcome(pattern, "", state, why="no known source") for pattern, state in states.items()]


def to_table(outcomes: Sequence[FileOutcome], sets: dict[str, SourceSet]) -> str:
    """One row per set and outcome: files, rows, the license, and the source or why it is unavailable."""
    groups: dict[tuple[str, str, str], list[FileOutcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.set or outcome.file, outcome.state, outcome.why or outcome.origin), []).append(
            outcome
        )
    rows = []
    for (name, state, reason), files in groups.items():
        count = sum(outcome.rows or 0 for outcome in files)
        license = sets[name].license if name in sets else ""
        rows.append((name, state, str(len(files)), f"{count:,}" if count else "", license, reason[:SHOWN]))
    names = ("set", "state", "files", "rows", "license", "source, or why it is missing")
    columns = tuple(Column(name, align="right" if name in ("files", "rows") else "left") for name in names)
    missing = sum(outcome.state == "missing" for outcome in outcomes)
    caption = f"{len(outcomes) - missing} files of {len(outcomes)}, {missing} missing"
    return to_text(Table(caption, columns, tuple(rows)))


@click.command()
@click.argument("recipe", required=False)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path, file_okay=False),
              help="Folder to write to: {data} of the recipe.")  # fmt: skip
@click.option("--evaluation", is_flag=True,
              help="Also build the sets of `msdc evaluate`; without RECIPE only these.")  # fmt: skip
@click.option("--only", multiple=True, metavar="SET", help="Build only this set; repeatable.")
@click.option("--sources", "copies", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Folder with copies of the sources (checkouts named OWNER+NAME), instead of downloads.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would be built; build nothing.")
@click.option("--allow-missing", is_flag=True, help="Exit with 0 even if something is unavailable.")
@json_option
@quiet_option
@click.pass_context
def command(
    context: click.Context,
    recipe: str | None,
    output: Path,
    evaluation: bool,
    only: tuple[str, ...],
    copies: Path | None,
    dry_run: bool,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Build the files that RECIPE reads in {data} from their public sources.

    Existing files are kept. Prints what was downloaded and what was unavailable; exit code 1 if anything was
    unavailable.
    """
    if recipe is None and not evaluation:
        raise click.UsageError("name a recipe, or pass --evaluation for the sets of `msdc evaluate`")
    output, sets = output.resolve(), read_sources()
    resolved = None if recipe is None else load_recipe(recipe, data=output)
    outcomes = build_data(resolved, output, sets, only=only, copies=copies, dry_run=dry_run, evaluation=evaluation)
    text = (
        json.dumps([asdict(outcome) for outcome in outcomes], ensure_ascii=False)
        if as_json
        else to_table(outcomes, sets)
    )
    click.echo(printable(text))
    if any(outcome.state == "missing" for outcome in outcomes) and not allow_missing:
        context.exit(MsdcError.exit_code)
