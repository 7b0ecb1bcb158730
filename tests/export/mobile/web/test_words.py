"""The words of the search index in the web module: stored, looked for and highlighted as by the Python package."""

import json

import pytest
from hostile_inputs import utf16
from programs import node, run
from words import expected, shown_cases, texts

from msdc.export.mobile.web.write import TEMPLATE, filled

CHECK = """
import { readFileSync } from "node:fs";
import { findTerms, merged, passageToShow } from "./matches.js";
import { indexWords, parseQuery } from "./words.js";
const { texts, cases } = JSON.parse(readFileSync("request.json", "utf8"));
const plans = (text) => [parseQuery(text), parseQuery(text, "plain")].map((plan) => JSON.parse(plan));
const words = texts.map(([text, queried]) => [indexWords(text), ...(queried ? plans(text) : [])]);
const shown = cases.map(({ text, terms, passages, cosines }) => {
  const places = findTerms(text, terms);
  return { spans: merged(places.flat()), best: passageToShow(passages, cosines, terms, places) };
});
console.log(JSON.stringify({ words, shown }));
"""
HALF = "a\ud83d b\udc00c"  # halves of surrogate pairs, which only JavaScript lets in


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    """What the module answers about all texts, and about what is shown of them."""
    folder = tmp_path_factory.mktemp("words")
    for name in ("words.js", "matches.js"):
        (folder / name).write_text(filled(TEMPLATE / name), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}')
    cases = [case | {"passages": units(case["text"], case["passages"])} for case in shown_cases()]
    asked = [[text, len(plans) == 2] for text, (_, *plans) in zip(texts(), expected(), strict=True)]
    request = {"texts": [*asked, [HALF, True]], "cases": cases}
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    (folder / "check.js").write_text(CHECK)
    return json.loads(run(node(), "check.js", cwd=folder))


def units(text: str, spans: list) -> list[list[int]]:
    """Spans in characters as spans in UTF-16 units."""
    return [[len(utf16(text[:end])) // 4 for end in span] for span in spans]


def test_words_and_plans_are_those_of_the_python_package(web):
    *answers, half = web["words"]
    assert half[0] == "a b c"
    assert half[1]["words"] == [[0, '"a"', 1], [1, '"b"', 1], [2, '"c"', 1]]
    for text, answer, expected_answer in zip(texts(), answers, expected(), strict=True):
        assert answer == expected_answer, ascii(text)


def test_highlights_and_shown_passages_are_those_of_the_python_package(web):
    cases = shown_cases()
    assert len(cases) > 4000
    for case, answer in zip(cases, web["shown"], strict=True):
        expected_answer = {"spans": units(case["text"], case["spans"]), "best": case["best"]}
        assert answer == expected_answer, (ascii(case["text"]), ascii(case["terms"]))
