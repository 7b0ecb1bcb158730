"""The table of attacks: what each test under tests/attacks tried, how often, and how it ended.

    python benchmarks/attacks.py --json records.json           # the default suite's attacks
    python benchmarks/attacks.py --slow --json slow.json       # also the minutes of fuzzing, and the like
    python benchmarks/attacks.py --read records.json --read slow.json --write docs/results/attacks.md

A test says how many inputs it tried with pytest's `record_property("tries", n)`; without it, each case of a
parametrized test counts as one try. Of a test that is in several records the last one counts.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from results_page import ROOT, add_write_option, table, write_page

PATHS = (
    "tests/attacks",
    "tests/export/test_signature.py",
    "tests/bench/devices/test_hostile_device.py",
    "tests/bench/devices/test_hostile_link.py",
    "tests/distill/test_guide.py::test_one_flipped_bit_anywhere_is_made_anew",
    "tests/msdc/commands/test_search.py::test_one_flipped_bit_anywhere_is_made_anew",
    "tests/bench/report/test_page.py::test_markdown_holds_no_markup_of_names",
    "tests/distill/test_resume.py",
)
ENDS = {"passed": "held", "skipped": "not run", "failed": "BROKE"}
Record = dict[str, str | int]


def _first_line(text: str | None) -> str:
    return inspect.cleandoc(text).splitlines()[0].rstrip(".") if text and text.strip() else ""


class Collector:
    """A pytest plugin that keeps one record per test function."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self._texts: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Keep what files and tests say about themselves."""
        for item in items:
            function, module = getattr(item, "function", None), getattr(item, "module", None)
            self._texts[item.nodeid] = (_first_line(module.__doc__), _first_line(function.__doc__))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one case of a test."""
        if report.when != "call" and report.outcome == "passed":
            return
        name = report.nodeid.split("[")[0]
        group, what = self._texts[report.nodeid]
        record = self.records.setdefault(
            name, {"group": group, "what": what, "cases": 0, "tries": 0, "outcome": "skipped"}
        )
        if report.outcome != "skipped":
            tries = sum(int(value) for key, value in report.user_properties if key == "tries")
            record["cases"] = int(record["cases"]) + 1
            record["tries"] = int(record["tries"]) + (tries or 1)
        if record["outcome"] != "failed" and report.outcome != "skipped":
            record["outcome"] = report.outcome


def attack(paths: Sequence[str], slow: bool) -> dict[str, Record]:
    """Run the tests in this process and return their records by test."""
    collector = Collector()
    # Later -m options win over the one of pyproject.toml.
    options = ["-q", "-p", "no:cacheprovider", "-m", "slow or not slow" if slow else "not slow"]
    pytest.main([*options, f"--rootdir={ROOT}", *(str(ROOT / path) for path in paths)], plugins=[collector])
    return collector.records


def page(records: dict[str, Record]) -> str:
    """The Markdown body: one table per file, in the order of the records."""
    parts = []
    tests = sum(1 for record in records.values() if record["cases"])
    tries = sum(int(record["tries"]) for record in records.values())
    broke = sum(record["outcome"] == "failed" for record in records.values())
    parts.append(
        f"{tests:,} attacks, {tries:,} tries, {broke} broke something. What is trusted and checked: "
        "[security](../security.md)."
    )
    for group in dict.fromkeys(str(record["group"]) for record in records.values()):
        rows = []
        for name, record in records.items():
            if record["group"] == group:
                words = name.rpartition("::")[2].removeprefix("test_").replace("_", " ")
                what = f"{words}: {record['what']}" if record["what"] else words
                rows.append((what.replace("|", "\\|"), f"{record['tries']:,}", ENDS[str(record["outcome"])]))
        parts += [f"## {group}", table(("attack", "tries", "outcome"), rows)]
    return "\n\n".join(parts)


def main() -> int:
    """Run attacks, or read their records; write records or the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=PATHS, help=f"tests to run (default: {' '.join(PATHS)})")
    parser.add_argument("--slow", action="store_true", help="also the tests that are marked slow")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the records")
    parser.add_argument(
        "--read", type=Path, metavar="FILE", action="append", default=[], help="records; nothing is run"
    )
    add_write_option(parser, "attacks")
    arguments = parser.parse_args()
    records: dict[str, Record] = {}
    for path in arguments.read:
        records |= json.loads(path.read_text(encoding="utf-8"))
    if not arguments.read:
        records = attack(arguments.paths, arguments.slow)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        libraries = ("executorch", "onnx", "onnxruntime", "tokenizers", "sentencepiece", "safetensors", "pyarrow")
        write_page(
            arguments.write, "Attacks and what they did", "tiny models of the tests", page(records), libraries=libraries
        )
    else:
        print(page(records))
    return 1 if any(record["outcome"] == "failed" for record in records.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
