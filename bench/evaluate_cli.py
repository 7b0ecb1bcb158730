"""`msdc evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from msdc.bench.option_types import Numbers
from msdc.commands import prompt_options, quiet_option
from msdc.export.runtimes import RUNTIMES


def _words(text: str | None) -> tuple[str, ...] | None:
    return tuple(word.strip() for word in text.split(",") if word.strip()) if text else None


def _listing() -> str:
    from msdc.bench.accuracy.registry import TASKS
    from msdc.bench.accuracy.sets.registry import SETS, SUITES

    lines = ["Tasks (score a file or folder of your own with TASK=PATH):"]
    lines += [f"  {task.name:15} {task.summary}" for task in TASKS.values()]
    lines += ["Sets (found under --data; SET/PART names one part):"]
    lines += [f"  {one.name:15} {one.summary}" for one in SETS.values()]
    lines += ["Suites:"] + [f"  {name:15} {', '.join(members)}" for name, members in SUITES.items()]
    return "\n".join(lines)


@click.command("evaluate")
@click.argument("model", default="msdc-mini")
@click.option("--tasks", "-t", help="Comma-separated sets, suites, or TASK=PATH. --list shows them.")
@click.option("--list", "listing", is_flag=True, help="List tasks, sets and suites, then exit.")
@click.option("--against", metavar="MODEL", help="Also score this model, with a paired test on the same items.")
@click.option(
    "--artifact",
    "artifacts",
    multiple=True,
    metavar="BUNDLE",
    help="A bundle of MODEL: same scores on each of its runtimes, drift, paired test. Repeatable.",
)
@click.option(
    "--truncate-dim",
    "truncate_dims",
    type=Numbers(),
    default="",
    help="Also score vectors truncated to their first N dimensions.",
)
@click.option(
    "--vectors",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Also score vectors of another encoder (LASER, mUSE): a folder of NAME.txt, one text per line, with NAME.npy "
    "[N, D]. Repeatable.",
)
@click.option(
    "--reference", metavar="MODEL", help="Float model for drift, teacher for mse.  [default: the model of --against]"
)
@click.option("--runtime", type=click.Choice(RUNTIMES.names()), help="Runtime when MODEL is a bundle.")
@prompt_options
@click.option(
    "--data", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Data folder.  [env: MSDC_DATA]"
)
@click.option("--languages", help="Comma-separated two-letter codes.  [default: those of the set or the model]")
@click.option(
    "--corpus",
    "corpora",
    multiple=True,
    metavar="TEXT",
    help="Training text of the model (file, folder or recipe) to search for test sentences. Repeatable.",
)
@click.option(
    "--near",
    type=float,
    default=0.7,
    show_default=True,
    help="Jaccard similarity of near duplicates; 0 searches for exact ones only.",
)
@click.option(
    "--margin",
    type=click.Choice(["ratio", "distance", "absolute"]),
    default="ratio",
    show_default=True,
    help="Margin of bitext mining.",
)
@click.option(
    "--neighbours", type=click.IntRange(1, 100), default=4, show_default=True, help="k of the margin, in bitext mining."
)
@click.option(
    "--candidates", type=click.IntRange(2), default=200_000, show_default=True, help="Pool of the retrieval task."
)
@click.option(
    "--resamples",
    type=click.IntRange(0),
    default=1000,
    show_default=True,
    help="Bootstrap resamples; 0 skips intervals and tests.",
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Threads of artifacts and of the neighbour search.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Folder to cache vectors in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False, path_type=Path), help="Also write this file: .json, .md or .html."
)
@click.option("--force", is_flag=True, help="Overwrite the output file.")
@quiet_option
def command(
    model: str,
    tasks: str | None,
    listing: bool,
    against: str | None,
    artifacts: tuple[str, ...],
    truncate_dims: tuple[int, ...],
    vectors: tuple[Path, ...],
    reference: str | None,
    runtime: str | None,
    prompt_name: str | None,
    prompt: str | None,
    data: Path | None,
    languages: str | None,
    corpora: tuple[str, ...],
    near: float,
    margin: str,
    neighbours: int,
    candidates: int,
    resamples: int,
    seed: int,
    threads: int | None,
    cache: Path | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Measure the accuracy of MODEL: a shipped name, a folder, a hub id, or an exported bundle, run as it is.

    msdc evaluate msdc-mini --tasks sts17,stsb --data DATA

    msdc evaluate BUNDLE --runtime onnx --tasks sts=pairs.tsv

    msdc evaluate msdc-mini --tasks card --data DATA -o card.md

    `card` exports MODEL for both runtimes and searches its recipe's corpora for test sentences.
    """
    if listing:
        click.echo(_listing())
        return
    if not tasks:
        raise click.UsageError("give --tasks; `msdc evaluate --list` shows what there is")
    from msdc.bench.accuracy.config import EvaluateConfig
    from msdc.bench.accuracy.run import run
    from msdc.bench.accuracy.sets.registry import CARD
    from msdc.bench.accuracy.task import Options
    from msdc.bench.model_card import evaluate_card
    from msdc.bench.report.page import check_output, evaluation_report, to_markdown, write_report

    if output is not None:
        check_output(output, force)
    options = Options(
        resamples=resamples,
        seed=seed,
        neighbours=neighbours,
        margin=margin,
        candidates=candidates,
        threads=threads,
        progress=True,
    )
    config = EvaluateConfig(
        model=model,
        tasks=_words(tasks) or (),
        against=against,
        artifacts=artifacts,
        truncate_dims=truncate_dims,
        vectors=vectors,
        reference=reference,
        runtime=runtime,
        prompt_name=prompt_name,
        prompt=prompt,
        data=data,
        languages=_words(languages),
        corpora=corpora,
        near=near or None,
        cache=cache,
        options=options,
    )
    document = evaluate_card(config) if CARD in config.tasks else run(config)
    if output is not None:
        write_report(evaluation_report(document), output, force)
    if as_json:
        click.echo(json.dumps(document.as_json(), ensure_ascii=False, indent=2, allow_nan=False))
    else:
        click.echo(to_markdown(evaluation_report(document)))
