"""The examples of docs/guides/integrations.md, each where its library is installed: it finds what the vectors say."""

import importlib.util
import re

import pytest
from markdown import blocks
from places import ROOT

FIRST, *EXAMPLES = blocks(ROOT / "docs/guides/integrations.md", "python")
LATE, CLOSED = "Der Zug hat Verspätung.", "The station is closed."


def libraries(text: str) -> list[str]:
    """The packages that an example imports."""
    return re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)


@pytest.fixture(scope="module")
def start() -> dict:
    names: dict = {}
    exec(FIRST.text, names)
    return names


def flat(value) -> str:
    """Everything in a result as one text, for results of any shape."""
    if isinstance(value, dict):
        return " ".join(map(flat, value.values()))
    if isinstance(value, (list, tuple)):
        return " ".join(map(flat, value))
    return str(getattr(value, "page_content", getattr(value, "content", value)))


@pytest.mark.parametrize(
    "example", EXAMPLES, ids=[libraries(example.text)[0] + f"-{example.line}" for example in EXAMPLES]
)
def test_an_example_finds_the_late_train(example, start, tmp_path, monkeypatch):
    """Of two results the nearest is the German sentence on a late train."""
    for name in libraries(example.text):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    monkeypatch.chdir(tmp_path)
    names = dict(start)
    exec(example.text, names)
    texts, vectors = start["texts"], start["vectors"]
    ranked = (vectors @ start["query"]).argsort()[::-1]
    best = texts[ranked[0]]
    assert best == LATE
    if "keywords" in names:
        assert {word for word, _ in names["keywords"]} <= {"station", "closed", "is", "the"}
        assert names["keywords"]
    elif "topics" in names:
        assert len(names["topics"]) == len(texts)
        assert len(set(names["topics"])) == 2
    elif "labels" in names:
        assert names["labels"].tolist() == ["travel"]
    elif "folder" in names:
        assert pytest.approx(vectors[0].tolist(), abs=0.05) == list(names["hits"][0])
    elif "scores" in names:
        assert names["numbers"][0][0] == ranked[0]
    elif "database" in names and "rows" in names:
        assert names["rows"][0][0] == ranked[0] + 1
    else:
        hits = flat(names["hits"])
        assert LATE in hits
        assert CLOSED not in hits or hits.index(LATE) < hits.index(CLOSED)
