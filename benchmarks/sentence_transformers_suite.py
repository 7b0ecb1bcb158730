"""Sentence Transformers' own tests with msdc's encoder: how many of those that its own classes pass.

    git clone --branch v6.2.0 https://github.com/huggingface/sentence-transformers CHECKOUT
    python benchmarks/sentence_transformers_suite.py CHECKOUT [-o result.json]

The tests open small models of the hub. Here such a model is one student with random weights, opened twice: from a
folder of standard classes (the reference) and from its own folder, whose one module is msdc's. Nothing is downloaded: a
test that needs another model or data set fails both times and does not count. sentence-transformers asks for
`trust_remote_code` for each class outside its package; the tests do not pass it, so it is set for the folders that they
save.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FOLDERS = ("tests/sentence_transformer", "tests/base", "tests/util")
# Models of the hub that most tests open.
STOOD_FOR = (
    "sentence-transformers-testing/stsb-bert-tiny-safetensors",
    "sentence-transformers/paraphrase-distilroberta-base-v1",
    "sentence-transformers/all-MiniLM-L6-v2",
    "sentence-transformers/average_word_embeddings_levy_dependency",
)
MODEL, RESULT = "MSDC_SUITE_MODEL", "MSDC_SUITE_RESULT"
SECONDS = 120  # of one test


def make_models(folder: Path) -> dict[str, Path]:
    """The student's own folder, and that of standard classes."""
    import torch

    from msdc.compress.student.config import StudentConfig
    from msdc.compress.student.io import save_student
    from msdc.compress.student.model import Student
    from msdc.export.exporters import export_sentence_transformers
    from msdc.loading import load_encoder

    torch.manual_seed(0)
    tokenizer = load_encoder("msdc-mini").tokenizer
    config = StudentConfig(
        vocabulary=tokenizer.size, hidden=128, heads=2, intermediate=512, unit=2, repeats=1, bottleneck=32,
        positions=128, pad_id=tokenizer.pad_id, normalize=False,
    )  # fmt: skip
    student_folder = save_student(Student(config).eval(), tokenizer, folder / "own")
    return {"standard": export_sentence_transformers(student_folder, folder / "standard"), "msdc": student_folder}


# The part that runs inside pytest, as a plugin of this name.


def pytest_configure(config: Any) -> None:
    """Open the local model where a test names one of the hub."""
    import datasets
    from sentence_transformers import SentenceTransformer

    from msdc.text.quickstart import GRADED_PAIRS
    from msdc.text.scored_pairs import read_pairs

    begin, load = SentenceTransformer.__init__, datasets.load_dataset

    @functools.wraps(begin)
    def opened(self: Any, model_name_or_path: Any = None, *args: Any, **options: Any) -> None:
        name = str(model_name_or_path)
        if name in STOOD_FOR:
            model_name_or_path = os.environ[MODEL]
            options.pop("revision", None)
        modules = Path(str(model_name_or_path), "modules.json")
        if modules.is_file() and "msdc." in modules.read_text("utf-8"):
            options["trust_remote_code"] = True
        begin(self, model_name_or_path, *args, **options)

    def pairs(path: str, *args: Any, **options: Any) -> Any:
        if path != "sentence-transformers/stsb":
            return load(path, *args, **options)
        graded = read_pairs(GRADED_PAIRS)
        rows = {"sentence1": graded.first, "sentence2": graded.second, "score": (graded.gold_N / 5).tolist()}
        data_set = datasets.Dataset.from_dict(rows)
        splits = datasets.DatasetDict({split: data_set for split in ("train", "validation", "test")})
        return splits[options["split"]] if options.get("split") else splits

    SentenceTransformer.__init__ = opened  # type: ignore[method-assign]
    datasets.load_dataset = pairs


def pytest_runtest_logreport(report: Any) -> None:
    """Append the outcome of a test's call, or of what failed before it."""
    if report.when == "call" or report.outcome != "passed":
        with open(os.environ[RESULT], "a", encoding="utf-8") as handle:
            reason = str(getattr(report.longrepr, "reprcrash", "") or "")[-300:]
            handle.write(json.dumps([report.nodeid, report.outcome, reason]) + "\n")


def run_tests(checkout: Path, model: Path, result: Path, chosen: list[str]) -> dict[str, tuple[str, str]]:
    """Outcome and reason by test."""
    environment = os.environ | {
        MODEL: str(model), RESULT: str(result), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "CI": "",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).resolve().parent), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", Path(__file__).stem, "-p", "no:cacheprovider",
               f"--timeout={SECONDS}", "--tb=line", *chosen]  # fmt: skip
    subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.DEVNULL)
    outcomes: dict[str, tuple[str, str]] = {}
    for line in result.read_text("utf-8").splitlines():
        name, outcome, reason = json.loads(line)
        outcomes[name] = outcome, reason
    return outcomes


def main() -> None:
    """Run both and print the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="folder of a checkout of sentence-transformers")
    parser.add_argument("tests", nargs="*", default=list(FOLDERS), help="test files or folders inside it")
    parser.add_argument("-o", "--output", type=Path, help="JSON with the tests that fail with msdc alone")
    options = parser.parse_args()
    if not (options.checkout / "tests" / "conftest.py").is_file():
        parser.error(f"{options.checkout}: no tests/conftest.py; give a checkout of sentence-transformers")
    with tempfile.TemporaryDirectory(prefix="msdc-suite-") as folder:
        outcomes = {}
        for name, model in make_models(Path(folder)).items():
            outcomes[name] = run_tests(options.checkout.resolve(), model, Path(folder, f"{name}.jsonl"), options.tests)
    counted = [name for name, (outcome, _) in outcomes["standard"].items() if outcome == "passed"]
    missed = {name: outcomes["msdc"].get(name, ("missing", "")) for name in counted}
    reasons = {name: reason for name, (outcome, reason) in missed.items() if outcome != "passed"}
    print(
        f"{len(counted) - len(reasons)} of {len(counted)} tests that pass with standard classes pass with msdc's module"
    )
    for name, reason in reasons.items():
        print(f"  {name}: {reason.splitlines()[0] if reason else ''}")
    if options.output:
        options.output.write_text(json.dumps({"passed": len(counted) - len(reasons), "of": len(counted),
                                              "missed": missed}, indent=1) + "\n", "utf-8")  # fmt: skip


if __name__ == "__main__":
    main()
