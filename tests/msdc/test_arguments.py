"""Wrong arguments of the public functions are refused before any work, and a lone text is a list of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
import tiny_models as tiny

import msdc
from msdc import bench, compress, distill, export
from msdc.arguments import checked
from msdc.errors import InputError

# A model that does not exist: reading it would be another error.
NONE = "no/such/model"
WRONG = {
    "pooling": lambda: msdc.load_encoder(NONE, pooling="x"),
    "head": lambda: msdc.load_encoder(NONE, head="x"),
    "missing": lambda: msdc.open_index("x.sqlite", NONE, missing="x"),
    "place": lambda: compress.plan(NONE, place="x"),
    "place of cut_student": lambda: compress.cut_student(NONE, output="out", place="x"),
    "place of plan_budget": lambda: compress.plan_budget("10MB", NONE, place="x"),
    "runtime": lambda: compress.plan_budget("10MB", NONE, runtime="x"),
    "style": lambda: export.export(NONE, target="linux", style="x"),
    "exporter": lambda: export.export(NONE, target="linux", exporter="x"),
    "margin": lambda: bench.evaluate(NONE, margin="x"),
    "margin of evaluate_all": lambda: bench.evaluate_all(NONE, ["graded-pairs"], margin="x"),
    "trackers": lambda: distill.distill("quickstart", "out", trackers=["x"]),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_unknown_choice_names_the_argument_and_the_choices(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=rf"`{name.split(' ')[0]}` 'x' is unknown \(known: ") as raised:
        WRONG[name]()
    assert "\n" not in str(raised.value)
    assert not any(tmp_path.iterdir())


def test_a_list_is_not_one_text():
    for call in (lambda: bench.evaluate(NONE, ["sts17"]), lambda: compress.quantize([NONE], output="out"),
                 lambda: msdc.load_encoder(3)):  # fmt: skip
        with pytest.raises(InputError, match=r"takes one text or path, not (list|int)"):
            call()


def test_a_lone_value_is_a_list_of_one():
    folder = tiny.student_folder()
    results = bench.evaluate_all(folder, "graded-pairs", resamples=0).results
    assert [result.name for result in results] == ["graded-pairs"]
    with pytest.raises(InputError, match=re.escape("language 'xx' is unknown")):
        compress.trim(folder, output="out", languages="xx")


def test_what_the_annotations_allow_passes():
    def function(
        text: str,
        choice: Literal["x", "y"] | None = None,
        numbers: Sequence[int] = (),
        names: str | Sequence[str] = "",
        path: str | Path = "",
    ) -> tuple:
        return text, choice, numbers, names, path

    call = checked(function)
    assert call("t", "y", 3, "text", Path("p")) == ("t", "y", (3,), "text", Path("p"))
    assert call(text="t", choice=None, numbers=[1, 2], names=["u"]) == ("t", None, [1, 2], ["u"], "")
    with pytest.raises(TypeError, match="unexpected keyword"):
        call("t", z=3)
