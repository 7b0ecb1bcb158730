"""Scores of other models in MTEB's public result files, as CSV files of bench/accuracy/published.

    git clone https://github.com/embeddings-benchmark/results RESULTS
    python benchmarks/published.py --results RESULTS --write bench/accuracy/published/mteb_{sts17,stsb}.csv

RESULTS is a checkout or a bare git directory. The script reads its HEAD, and the first line of each file names that
commit. The name of a file decides its task. A model may have results of several revisions: the script takes the one
with the most columns, and among equals the one measured with the newest version of mteb. The column `revision` names
it (`external`: the scores come from the model's card). A score that the result files lack is an empty cell.
"""

import argparse
import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from msdc.files import write_text

MODELS = (
    "codefuse-ai/F2LLM-v2-80M",
    "ibm-granite/granite-embedding-97m-multilingual-r2",
    "hotchpotch/bekko-embedding-v1-a8m",
    "sentence-transformers/static-similarity-mrl-multilingual-v1",
    "intfloat/multilingual-e5-small",
    "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "shibing624/text2vec-base-multilingual",
    "hotchpotch/bekko-embedding-v1-a25m",
    "minishlab/potion-multilingual-128M",
    "jinaai/jina-embeddings-v5-text-nano",
    "microsoft/harrier-oss-v1-270m",
    "Alibaba-NLP/gte-multilingual-base",
    "google/embeddinggemma-300m",
)


class Task(NamedTuple):
    """A task of mteb, and its subset for each column of our file."""

    name: str
    subsets: dict[str, str]


TASKS = {
    "mteb_sts17": Task("STS17", {"ar-ar": "ar-ar", "es-es": "es-es", "en-en": "en-en", "en-ar": "en-ar",
                                 "en-tr": "en-tr", "en-es": "es-en"}),
    "mteb_stsb": Task("STSBenchmarkMultilingualSTS",
                      {code: code for code in ("de", "en", "es", "fr", "it", "nl", "pl", "pt", "ru", "zh")}),
}  # fmt: skip


def git(results: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", results, *words], check=True, capture_output=True, encoding="utf-8").stdout


def read_revisions(results: Path, model: str, file: str) -> dict[str, dict[str, Any]]:
    """The JSON files of this name of a model, by revision."""
    folder = f"results/{model.replace('/', '__')}"
    paths = git(results, "ls-tree", "-r", "--name-only", "HEAD", f"{folder}/").splitlines()
    revisions = [path.split("/")[2] for path in paths if path.count("/") == 3 and path.endswith(f"/{file}")]
    return {name: json.loads(git(results, "show", f"HEAD:{folder}/{name}/{file}")) for name in revisions}


def task_scores(result: dict[str, Any], task: Task) -> dict[str, float]:
    """Cosine Spearman x 100 of the test split, by column, of the subsets that a result has."""
    by_subset = {row["hf_subset"]: row.get("cosine_spearman") for row in result["scores"].get("test", ())}
    columns = task.subsets.items()
    return {column: 100 * by_subset[subset] for column, subset in columns if by_subset.get(subset) is not None}


def version_key(result: dict[str, Any]) -> list[int]:
    """The version of mteb that measured a result, for comparison; of a range, the start."""
    version = (result.get("mteb_version") or "").partition("-")[0]
    return [int(part) for part in version.split(".") if part.isdigit()]


def model_row(results: Path, model: str, task: Task) -> dict[str, object]:
    """One line of the file; without a result of the task, only name and size."""
    candidates = read_revisions(results, model, f"{task.name}.json")
    meta = read_revisions(results, model, "model_meta.json")
    row: dict[str, object] = {"system": model.partition("/")[2]}
    revision = max(
        candidates,
        key=lambda name: (len(task_scores(candidates[name], task)), version_key(candidates[name])),
        default="",
    )
    if revision:
        row |= {column: f"{score:.1f}" for column, score in task_scores(candidates[revision], task).items()}
    own_meta_first = sorted(meta, key=lambda name: (name != revision, name))
    parameters = [meta[name]["n_parameters"] for name in own_meta_first if meta[name].get("n_parameters")]
    return row | {"parameters_M": round(parameters[0] / 1e6) if parameters else "", "revision": revision}


def document(results: Path, task: Task, models: tuple[str, ...] = MODELS) -> str:
    """A CSV file with its source in the first line."""
    text = io.StringIO()
    commit = git(results, "rev-parse", "HEAD").strip()
    text.write(f"# Public MTEB results, {task.name} (repository embeddings-benchmark/results, commit {commit}), read "
               "by benchmarks/published.py: cosine Spearman x 100 of the test split; parameters in millions; empty: "
               "absent from the result files; revision external: from the model's card\n")  # fmt: skip
    columns = ("system", *task.subsets, "parameters_M", "revision")
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(model_row(results, model, task) for model in models)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, required=True, help="checkout or bare git directory")
    parser.add_argument(
        "--write", type=Path, nargs="+", metavar="FILE", help=", ".join(f"{name}.csv" for name in TASKS)
    )
    options = parser.parse_args()
    for file in options.write or [Path(f"{name}.csv") for name in TASKS]:
        if file.stem not in TASKS:
            parser.error(f"--write: {file.name} is none of {', '.join(f'{name}.csv' for name in TASKS)}")
        text = document(options.results, TASKS[file.stem])
        print(text)
        if options.write:
            write_text(file, text)


if __name__ == "__main__":
    main()
