"""A release runs packages by hash without rights; what has rights runs none of them. Bounds are above advisories."""

import re
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from places import ROOT

if not (ROOT / ".github").is_dir():
    pytest.skip("an unpacked source archive without workflows", allow_module_level=True)
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = [ROOT / ".ci/lock-build.txt", ROOT / ".ci/lock.txt"]
ENTRY = re.compile(r"([\w.-]+)==([\w.+]+) --hash=sha256:[0-9a-f]{64}")


def locked() -> dict[str, Version]:
    lines = [line for path in LOCKS for line in path.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
    entries = [ENTRY.fullmatch(line) for line in lines]
    assert all(entries), lines
    return {canonicalize_name(entry[1]): Version(entry[2]) for entry in entries}


def required(*extras: str) -> list[Requirement]:
    """The requirements of the package and its extras, with those that an extra names."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        lines += PROJECT["optional-dependencies"][extra]
    for line in lines:  # grows by the extras of our own
        requirement = Requirement(line)
        if requirement.name == "msdc":
            lines += [inner for extra in requirement.extras for inner in PROJECT["optional-dependencies"][extra]]
    return [requirement for requirement in map(Requirement, lines) if requirement.name != "msdc"]


def test_a_job_has_rights_or_runs_packages_never_both():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    privileged = set()
    for name, job in WORKFLOW["jobs"].items():
        if "write" in (job.get("permissions") or {}).values():
            privileged.add(name)
            uses = [step["uses"].partition("@")[0] for step in job["steps"] if "uses" in step]
            commands = " ".join(step.get("run", "") for step in job["steps"])
            assert not {"actions/checkout", "actions/setup-python"} & set(uses), name
            assert not re.search(r"\b(pip|python|npm|make|gradle)\b|\.ci/", commands), name
            assert job["needs"], name
    assert privileged == {"release", "publish"}
    steps = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]) for step in steps if "uses" in step)


def test_every_package_of_a_release_is_named_by_hash():
    installs = [
        line
        for job in WORKFLOW["jobs"].values()
        for step in job["steps"]
        for line in step.get("run", "").replace("\\\n", " ").splitlines()
        if "pip" in line and " install " in line
    ]
    assert installs
    for line in installs:
        assert ("--require-hashes" in line and "-r .ci/lock" in line) or "--no-deps" in line, line
    versions = locked()
    missing = [
        str(requirement) for requirement in required("all")
        if not requirement.specifier.contains(versions.get(canonicalize_name(requirement.name), Version("0")), True)
    ]  # fmt: skip
    assert missing == [], "run .ci/lock"


@pytest.mark.parametrize(
    ("package", "vulnerable"),
    [
        ("filelock", ["3.20.0", "3.20.2"]),  # CVE-2025-68146, CVE-2026-22701
        ("protobuf", ["4.25.7", "5.29.4", "5.29.5", "6.31.0", "6.33.4"]),  # CVE-2025-4565, CVE-2026-0994
    ],
)
def test_bounds_leave_out_releases_with_known_advisories(package, vulnerable):
    (requirement,) = [requirement for requirement in required() if requirement.name == package]
    assert not any(requirement.specifier.contains(version) for version in vulnerable)
    assert requirement.specifier.contains(locked()[package])
