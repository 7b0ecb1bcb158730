"""One number changed to something absurd is one line: in recipes, in our configs and in those of stock models."""

import json
import shutil

import pytest
import tiny_models as tiny
import yaml
from refusals import one_line
from stock_models import write_stock
from write_events import verb

from msdc.compress import cut_student, plan
from msdc.compress.student.config import StudentConfig
from msdc.compress.student.io import load_student, save_student
from msdc.distill.catalog import parse_recipe, set_value
from msdc.distill.preflight import check_recipe
from msdc.distill.recipe import Recipe
from msdc.errors import InputError
from msdc.limits import LAYERS
from msdc.loading import load_encoder

ABSURD = 999_999_999_999_999
RECIPE = {
    "stages.four.batch": 65536, "stages.four.batch_tokens": 16777216, "stages.four.steps": 100000000,
    "stages.four.epochs": 100000, "stages.four.max_length": 32768, "student.unit": LAYERS, "student.repeats": LAYERS,
    "student.bottleneck": 16384, "student.max_length": 32768, "assistant.vocabulary.train": 4194304,
    "stages.four.objective": 2**20, "heldout.pairs": 10**12,
}  # fmt: skip


@pytest.mark.parametrize("key", RECIPE)
def test_a_recipe(key, tiny_tree, tmp_path):
    bank = {"name": "contrastive_distillation", "options": {"bank": ABSURD}}
    set_value(tiny_tree, key, bank if key.endswith("objective") else ABSURD)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_tree))
    for words in (["--dry-run"], ["-o", tmp_path / "run"]):
        message = one_line(lambda words=words: verb("distill", tmp_path / "tiny.yaml", *words))
        assert str(RECIPE[key]) in message
        assert key.split(".")[-1] in message
    assert not (tmp_path / "run").exists()


def without_bound(schema: dict, where: str = "") -> list[str]:
    """Places of integers without an upper bound in a JSON schema."""
    unbounded = []
    for name, part in {**schema.get("$defs", {}), **schema.get("properties", {})}.items():
        members = [part, *part.get("anyOf", ())]
        if any(m.get("type") == "integer" and not {"maximum", "exclusiveMaximum"} & m.keys() for m in members):
            unbounded.append(f"{where}{name}")
        unbounded += without_bound(part, f"{name}.") if "properties" in part else []
    return unbounded


def test_every_count_has_an_upper_bound():
    assert without_bound(Recipe.model_json_schema()) == []
    # Ids are compared with the vocabulary.
    assert without_bound(StudentConfig.model_json_schema()) == ["pad_id"]
    assert without_bound({"properties": {"a": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}}) == ["a"]


@pytest.mark.parametrize("key", ["vocabulary", "hidden", "heads", "intermediate", "unit", "repeats", "positions"])
def test_a_student(key, tiny_student, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny_student, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {key: ABSURD}))
    assert f"config.json: student: {key}: Input should be less than" in one_line(lambda: load_student(folder))


def test_layers_times_repeats(tiny_tree, tmp_path):
    """Each within its bound, the product not."""
    two = save_student(tiny.student(unit=2), tiny.tokenizer().path, tmp_path / "two")
    message = f"2 layers x {LAYERS} repeats are more than the {LAYERS} allowed"
    for attempt in (
        lambda: tiny.student(unit=2, repeats=LAYERS),
        lambda: plan(str(two), unit=2, repeats=LAYERS),
        lambda: cut_student(str(two), output=tmp_path / "out", unit=2, repeats=LAYERS),
    ):
        assert message in one_line(attempt)
    for changes in ({"unit": 2}, {"layers": [0, 1]}, {"scratch": {"layers": 2}}):
        set_value(tiny_tree, "student", {"repeats": LAYERS, "max_length": 20, **changes})
        recipe = parse_recipe(tiny_tree, "tiny")
        assert message in one_line(lambda recipe=recipe: check_recipe(recipe))
    assert list(tmp_path.iterdir()) == [two]


@pytest.mark.parametrize(
    ("kind", "key"),
    [("bert", "num_hidden_layers"), ("distilbert", "n_layers"), ("albert", "num_hidden_groups"),
     ("albert", "inner_group_num"), ("bert", "text_config")],
)  # fmt: skip
def test_a_stock_model(kind, key, tmp_path):
    folder = write_stock(tmp_path / kind, kind)
    config = json.loads((folder / "config.json").read_text())
    nested = key == "text_config"
    assert nested or key in config
    value = {"num_hidden_layers": 100_000} if nested else 100_000
    (folder / "config.json").write_text(json.dumps(config | {key: value}))
    key = "num_hidden_layers" if nested else key
    for attempt in (lambda: load_encoder(folder), lambda: verb("export", folder, "--target", "linux")):
        with pytest.raises(InputError, match=f"config.json: {key}: 100000 is more than the {LAYERS} allowed"):
            attempt()


def test_modules_of_a_stock_model(tmp_path):
    folder = write_stock(tmp_path / "bert", "bert")
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, dense]))
    (folder / "2_Dense").mkdir()
    shutil.copy(folder / "model.safetensors", folder / "2_Dense")
    # 40 GB, most of which a module would fill before it reads its weights.
    sizes = {"in_features": 100_000, "out_features": 100_000, "activation_function": "torch.nn.Identity"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(sizes))
    assert "in_features: 100000 is more than the 16384 allowed" in one_line(lambda: load_encoder(folder))
    (folder / "modules.json").write_text(json.dumps(modules * 200))
    assert "modules.json: no modules, or more than 256" in one_line(lambda: load_encoder(folder))
