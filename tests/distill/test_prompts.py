"""A student of a model with prompts is trained on what its `encode` will see, and keeps the prompts."""

from __future__ import annotations

import numpy as np
from folder_kinds import PROMPTS, write_folder

import msdc
from msdc.distill.catalog import parse_recipe
from msdc.distill.data.batches import BatchFeed
from msdc.distill.run import Run
from msdc.distill.teacher_cache import CachedTeacher


def test_prompts_stay_with_the_student(tiny_tree, tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "prompted", "default prompt")
    stage = dict(tiny_tree["stages"][0], train="student", steps=2, evaluate_every=2)
    recipe = parse_recipe(tiny_tree | {"assistant": None, "student": str(folder), "stages": [stage]}, "tiny")
    seen: list[list[int]] = []
    original = BatchFeed.chunk

    def chunk(self, rows, epoch, number):
        made = original(self, rows, epoch, number)
        texts = [self.prompt + row.source for row in made.rows]
        assert made.source_ids == self.tokenizer.encode(texts, self.stage.max_length)
        seen.extend(made.source_ids)
        return made

    monkeypatch.setattr(BatchFeed, "chunk", chunk)
    run = Run(recipe, tmp_path / "run")
    result = run.run()
    student = msdc.load_encoder(result.student)
    assert student.defaults.default_prompt == "query" and student.defaults.prompts["query"] == PROMPTS["query"]
    first = student.tokenize([PROMPTS["query"]])[0][:-1]
    assert seen and all(row[: len(first)] == first for row in seen)
    assert not np.array_equal(student.encode(["a cat"]), student.encode(["a cat"], prompt=""))


def test_a_guide_of_states_uses_its_default_prompt(tmp_path):
    folder = write_folder(tmp_path / "prompted", "default prompt")
    vectors = msdc.load_encoder(folder).encode(["the cat sleeps"])
    for layers in ((), (1, 2)):
        guide = CachedTeacher(msdc.load_encoder(folder), tmp_path / f"cache{len(layers)}", 24, layers=layers)
        # Stored in half precision.
        assert np.abs(guide.vectors(["the cat sleeps"]) - vectors).max() < 2e-3
