"""`msdc build-data`: make the files that a recipe reads from their public sources; say what cannot be made, and why."""

from __future__ import annotations

import fnmatch
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from msdc.commands import quiet_option
from msdc.distill.catalog import load_recipe
from msdc.distill.data.sources import SourceSet, TextRow, read_sources
from msdc.distill.recipe import Recipe
from msdc.errors import InputError, MsdcError, printable
from msdc.files import atomic_path
from msdc.progress import say
from msdc.tables import Column, Table, to_text
from msdc.text.tokenizer import clean

SHOWN = 110  # characters of a reason


@dataclass(frozen=True)
class Made:
    """What became of one file; `state` is made, there, planned, training or missing."""

    file: str
    set: str
    state: str
    rows: int | None = None
    origin: str = ""
    why: str = ""


def wanted_files(recipe: Recipe, data: Path, sets: dict[str, SourceSet]) -> tuple[dict[str, str], list[str], list[str]]:
    """What a recipe reads: the set of each file, patterns without a source; corpora by hub or OPUS name."""
    patterns: list[tuple[str, tuple[str, ...]]] = []
    elsewhere: list[str] = []
    for corpus in dict.fromkeys(recipe.all_corpora):
        if corpus.is_remote:
            elsewhere.append(f"hub {corpus.hub}" if corpus.hub else f"opus {corpus.opus}")
        languages = corpus.languages if corpus.kind != "text" else ()
        patterns += [(path, languages) for path in (corpus.path, *(corpus.files or ())) if path is not None]
    graded = recipe.heldout.graded if recipe.heldout is not None else ()
    patterns += [(path, ()) for path in (*recipe.exclude, *graded)]
    found: dict[str, str] = {}
    unknown: dict[str, None] = {}
    for path, languages in patterns:
        if not Path(path).is_relative_to(data):
            continue
        pattern = Path(path).relative_to(data).as_posix()
        files = ((file, name, code) for name, entry in sets.items() for file, (code, _) in entry.targets.items())
        hits = [one for one in files if fnmatch.fnmatchcase(one[0], pattern)]
        found |= {file: name for file, name, code in hits if not languages or not code or code in languages}
        if not hits:
            unknown[pattern] = None
    return found, list(unknown), elsewhere


def cleaned(rows: Iterable[TextRow]) -> Iterable[TextRow]:
    """Rows as training cleans their texts, without empty and undecodable sides and exact duplicates."""
    texts = (tuple(map(clean, row)) for row in rows)
    return dict.fromkeys(row for row in texts if all(row) and not any("\ufffd" in text for text in row))


def write_rows(rows: Iterable[TextRow], file: Path) -> int:
    """Write rows as tab-separated lines, gzip without a name and a time where the file's name says so; their number."""
    lines = ["\t".join(row) + "\n" for row in rows]
    if not lines:
        raise InputError(f"{file.name}: nothing of the source is text of this kind")
    raw = "".join(lines).encode()
    with atomic_path(file) as part:
        part.write_bytes(gzip.compress(raw, 9, mtime=0) if file.suffix == ".gz" else raw)
    return len(lines)


def build(
    recipe: Recipe,
    data: Path,
    sets: dict[str, SourceSet],
    only: Sequence[str] = (),
    copies: Path | None = None,
    dry_run: bool = False,
) -> list[Made]:
    """Make what a recipe reads below `data`, the folder it was loaded with, and say what became of each file.

    `only` names sets, the others are left alone; `copies` is a folder with the sources, instead of downloads; `dry_run`
    makes nothing. Raises InputError where `only` names a set that the recipe does not read.
    """
    wanted, unknown, elsewhere = wanted_files(recipe, data, sets)
    if strange := [name for name in only if name not in wanted.values()]:
        raise InputError(f"`only` {strange[0]}: {recipe.name} reads {', '.join(dict.fromkeys(wanted.values()))}")
    made = [Made(name, "", "training", why="downloaded by training") for name in elsewhere if not only]
    for file, name in wanted.items():
        entry = sets[name]
        origin = ", ".join(map(str, entry.origins.values()))
        if only and name not in only:
            continue
        if (there := (data / file).is_file()) or dry_run:
            made.append(Made(file, name, "there" if there else "planned", origin=origin))
            continue
        say(f"{name}: {file}")
        try:
            rows = entry.rows(file, copies)
            as_they_are = any(part.paste for part in entry.targets[file][1])
            count = write_rows(rows if as_they_are else cleaned(rows), data / file)
            made.append(Made(file, name, "made", count, origin))
        except InputError as error:
            made.append(Made(file, name, "missing", origin=origin, why=str(error)))
    states = {pattern: "there" if any(data.glob(pattern)) else "missing" for pattern in unknown if not only}
    return made + [Made(pattern, "", state, why="no source is known for it") for pattern, state in states.items()]


def to_table(made: Sequence[Made], sets: dict[str, SourceSet]) -> str:
    """One row per set and outcome: files, rows, the license, and the source or why it could not be had."""
    groups: dict[tuple[str, str, str], list[Made]] = {}
    for one in made:
        groups.setdefault((one.set or one.file, one.state, one.why or one.origin), []).append(one)
    rows = []
    for (name, state, said), files in groups.items():
        count = sum(one.rows or 0 for one in files)
        license = sets[name].license if name in sets else ""
        rows.append((name, state, str(len(files)), f"{count:,}" if count else "", license, said[:SHOWN]))
    names = ("set", "state", "files", "rows", "license", "source, or why it is missing")
    columns = tuple(Column(name, align="right" if name in ("files", "rows") else "left") for name in names)
    missing = sum(one.state == "missing" for one in made)
    return to_text(Table(f"{len(made) - missing} files of {len(made)}, {missing} missing", columns, tuple(rows)))


@click.command()
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    "output",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder to make: what the recipe calls {data}.",
)
@click.option("--only", multiple=True, metavar="SET", help="Make this set only; may be repeated.")
@click.option(
    "--sources",
    "copies",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with copies of the sources (OWNER+NAME: a checkout): no downloads.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be made from what; make nothing.")
@click.option("--allow-missing", is_flag=True, help="Exit with 0 although something could not be had.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@quiet_option
@click.pass_context
def command(
    context: click.Context,
    recipe: str,
    output: Path,
    only: tuple[str, ...],
    copies: Path | None,
    dry_run: bool,
    allow_missing: bool,
    as_json: bool,
) -> None:
    """Make the files that RECIPE reads below {data} from their public sources.

    Files that are there are kept. Ends with a table of what was made and what could not be had; exit code 1 if anything
    could not be had.
    """
    output, sets = output.resolve(), read_sources()
    made = build(load_recipe(recipe, data=output), output, sets, only, copies, dry_run)
    text = json.dumps([asdict(one) for one in made], ensure_ascii=False) if as_json else to_table(made, sets)
    click.echo(printable(text))
    if any(one.state == "missing" for one in made) and not allow_missing:
        context.exit(MsdcError.exit_code)
