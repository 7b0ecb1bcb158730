"""The words of the search index in the web module: those of the Python package."""

import json

from programs import node, run
from words import expected, texts

from msdc.export.mobile.web.write import TEMPLATE, filled


def test_words_are_those_of_the_python_package(tmp_path):
    (tmp_path / "words.mjs").write_text(filled(TEMPLATE / "words.js"), encoding="utf-8")
    (tmp_path / "texts.json").write_text(json.dumps([*texts(), "a\ud83d b\udc00c"]), encoding="utf-8")
    (tmp_path / "check.mjs").write_text("""
        import { readFileSync } from "node:fs";
        import { indexWords, matchExpression } from "./words.mjs";
        const texts = JSON.parse(readFileSync("texts.json", "utf8"));
        console.log(JSON.stringify(texts.map((text) => [indexWords(text), matchExpression(text)])));
    """)
    *found, half = json.loads(run(node(), "check.mjs", cwd=tmp_path))
    assert half == ["a b c", '"a" OR "b" OR "c"']
    for text, one, both in zip(texts(), found, expected(), strict=True):
        assert one == both, ascii(text)
