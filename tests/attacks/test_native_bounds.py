"""Every native parser: an input of n bytes costs at most n times a constant, and mutated inputs find no defect.

Work is counted in basic blocks and memory in bytes held at once, by hooks: the same on every machine. The constants are
in tests/fuzz/bounds.json and stated in docs/security.md.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from native_bombs import BOMBS, JSON
from native_fuzz import FUZZ, TARGETS, costs, libfuzzer, limits, loop
from places import ROOT
from small_tokenizers import KINDS
from tiny_models import train_pieces

from msdc.export.tokenizer.compile import compile_tokenizer

CORPUS = FUZZ / "corpus"
EXECUTIONS = {"json": 4000, "manifest": 1500, "golden": 2000, "request": 2000, "pieces": 600, "compiled": 600,
              "text": 150, "search": 150}  # fmt: skip
REFUSED = {
    "pieces": ["one-long", "fields-in-a-piece", "fields-between", "equal-hashes"],
    "compiled": ["one-pattern-many-times", "long-replacement", "long-mark", "long-prefix", "rules", "steps"],
    "manifest": ["long-seal"],
}


def written(folder: Path, target: str, size: int) -> dict[str, Path]:
    out = {}
    for name, make in BOMBS[target].items():
        out[name] = folder / f"{target}-{name}"
        out[name].write_bytes(make(size))
    return out


def assert_bounded(target: str, files: list[Path]) -> list[int]:
    """Statuses of the files, each of which cost no more than the target's limits."""
    blocks_per_byte, blocks, bytes_per_byte, held_bytes = limits(target)
    measured = costs(target, files)
    assert len(measured) == len(files)
    for file, (_, size, worked, held) in zip(files, measured, strict=True):
        assert worked <= blocks_per_byte * size + blocks, (file.name, size, worked)
        assert held <= bytes_per_byte * size + held_bytes, (file.name, size, held)
    return [status for status, *_ in measured]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory) -> dict[str, list[Path]]:
    """Whole files of each kind, from which mutation starts, and the committed ones that once broke something."""
    folder = tmp_path_factory.mktemp("seeds")
    out = {target: list(written(folder, target, 300).values()) for target in TARGETS}
    out["pieces"].append(train_pieces(folder / "unigram", byte_fallback=True, user_defined_symbols=["<mask>", "ba"]))
    out["pieces"].append(train_pieces(folder / "bpe", model_type="bpe"))
    for number, kind in enumerate(("mpnet", "xlm-r, e5")):
        source = folder / f"{number}.json"
        KINDS[kind](folder).save(str(source))
        path = folder / f"compiled-{number}"
        path.write_bytes(compile_tokenizer(source))
        out["compiled"].append(path)
    for target in TARGETS:
        out[target] += sorted((CORPUS / target).glob("*"))
    return out


def test_the_security_page_states_the_limits():
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    stated = page.split("<!-- bounds -->")[1].split("<!-- /bounds -->")[0].strip().splitlines()[2:]
    assert stated == [f"| {target} | " + " | ".join(f"{n:,}" for n in limits(target)) + " |" for target in TARGETS]


def test_the_bombs_are_json():
    for make in JSON.values():
        json.loads(make(5000))


@pytest.mark.parametrize("target", TARGETS)
def test_costs_grow_with_the_file_alone(target, tmp_path):
    """Small and larger files of every shape that once cost too much, or is made to."""
    for size in (1000, 40_000):
        files = written(tmp_path, target, size)
        statuses = dict(zip(files, assert_bounded(target, list(files.values())), strict=True))
    assert [name for name in REFUSED.get(target, []) if statuses[name] != 2] == []
    assert statuses.get("small", 0) == 0


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_once_broke_a_parser(target):
    files = sorted((CORPUS / target).glob("*"))
    assert files
    assert_bounded(target, files)


@pytest.mark.parametrize("target", TARGETS)
def test_mutated_inputs(target, seeds, tmp_path):
    """A sample of the mutation loop, with sanitizers: no defect, and no input past the limits."""
    statistics = loop(target, tmp_path, seeds[target], executions=EXECUTIONS[target])
    assert statistics["executions"] == EXECUTIONS[target]
    assert statistics["accepted"] > 0
    assert statistics["inputs"] > len(seeds[target])


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory) -> Path | None:
    return libfuzzer(tmp_path_factory.mktemp("fuzzer"))


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_a_minute_of_fuzzing(target, fuzzer, seeds, tmp_path):
    """libFuzzer where clang's runtime is installed (apt-get install clang-14 libclang-rt-14-dev), else our loop."""
    if fuzzer is None:
        statistics = loop(target, tmp_path, seeds[target], seconds=60)
        assert statistics["executions"] > len(seeds[target])
        return
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds[target]):
        (corpus / str(number)).write_bytes(seed.read_bytes())
    done = subprocess.run(
        [str(fuzzer), str(corpus), "-max_total_time=60", "-print_final_stats=1", "-max_len=65536", "-seed=7",
         "-rss_limit_mb=2048", "-timeout=120", f"-artifact_prefix={tmp_path}/broke-"],
        capture_output=True, text=True, check=False, env={**os.environ, "MSDC_FUZZ_TARGET": target},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [line.removeprefix("stat::") for line in done.stderr.splitlines() if line.startswith("stat::")]
    stats = dict(line.split(":", 1) for line in lines)
    assert int(stats["number_of_executed_units"]) > len(seeds[target])
