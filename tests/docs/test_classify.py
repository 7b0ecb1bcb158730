"""docs/guides/classify.md: its JavaScript gives scikit-learn's probabilities, from the table that the page writes."""

import json

import pytest
from markdown import blocks
from page_code import call_python
from places import ROOT
from programs import node, run

PAGE = ROOT / "docs/guides/classify.md"


def test_the_app_has_the_probabilities_of_the_desktop(tmp_path):
    program = node()
    expected = """
vectors_ND = encoder.encode(messages)
Path("expected.json").write_text(json.dumps([vectors_ND.tolist(), head.predict_proba(vectors_ND).tolist()]))
"""
    call_python("".join(block.text for block in blocks(PAGE, "python")) + expected, tmp_path)
    (function,) = (block.text for block in blocks(PAGE, "js"))
    script = tmp_path / "classify.mjs"
    script.write_text(
        f"""import fs from "node:fs";
{function}
const [head, [vectors]] = ["head.json", "expected.json"].map((file) => JSON.parse(fs.readFileSync(file, "utf8")));
console.log(JSON.stringify(vectors.map((vector) => classify(head, vector))));
""",
        encoding="utf-8",
    )
    classes_NK = json.loads(run(program, script, cwd=tmp_path))
    _, probabilities_NK = json.loads((tmp_path / "expected.json").read_text())
    assert len(classes_NK) == len(probabilities_NK) == 3
    for classes_K, probabilities_K in zip(classes_NK, probabilities_NK, strict=True):
        assert [entry["probability"] for entry in classes_K] == pytest.approx(probabilities_K, abs=1e-3)
    best = [max(classes_K, key=lambda entry: entry["probability"])["name"] for classes_K in classes_NK]
    assert best == ["delivery", "payment", "account"]
    assert (tmp_path / "head.json").stat().st_size < 12_000
