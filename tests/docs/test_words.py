"""The docs stay short: words of each kind of page, as `wc -w` counts them, without comments, which no reader sees."""

import re
import subprocess

import pytest
from places import ROOT


def tracked() -> list[str]:
    """The Markdown files of the repository; of an unpacked source archive, those of the tree."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md"], capture_output=True)
    if listed.returncode:
        paths = [path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.parts)]
        names = {str(path.resolve().relative_to(ROOT)) for path in paths}
    else:
        names = set(listed.stdout.decode().splitlines())
    return sorted(name for name in names if (ROOT / name).is_file())


LIMITS = {
    "README.md": 1_515,
    "CONTRIBUTING.md": 900,
    "CHANGELOG.md": 2_500,
    "docs/guides/": 15_900,
    "docs/reference/": 7_150,
    "docs/results/": 12_500,
    "docs/decisions.md": 1_600,
    "docs/architecture.md": 2_700,
    "docs/security.md": 1_600,
    "export/mobile/": 2_900,
    "": 45_000,  # all of the repository
}


@pytest.mark.parametrize("kind", LIMITS)
def test_words(kind):
    pages = [name for name in tracked() if name.startswith(kind)]
    words = {
        name: len(re.sub(r"<!--.*?-->", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL).split())
        for name in pages
    }
    longest = sorted(words, key=words.__getitem__)[-3:]
    assert sum(words.values()) <= LIMITS[kind], (
        f"{sum(words.values())} words, of which {[(n, words[n]) for n in longest]}"
    )
