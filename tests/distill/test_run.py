"""A run: killed at any moment and resumed it is the uninterrupted one, bit for bit; where its stages start from; the
finished student's folder, prompts and card.

Children are forked after the imports, so that ten kills cost seconds; nothing of the kill is simulated.
"""

import json
import os
import random
import re
import shutil
import signal
import time
import traceback
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
import yaml
from folder_kinds import PROMPTS, write_folder
from programs import python
from safetensors.torch import load_file
from weights import same_weights

import msdc
from msdc.bench.quickstart import weight_bytes
from msdc.compress.student.io import load_student
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.model_card import license_of
from msdc.distill.run import Run
from msdc.distill.run_folder import RESUMED_STAGE, Metrics, read_recipe
from msdc.distill.teacher import CachedTeacher
from msdc.distill.training.feed import BatchFeed
from msdc.distill.training.trainer import Trainer
from msdc.errors import InputError, MsdcError
from msdc.export.readme import read_card

FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")


def in_child(recipe, folder: Path, kill_after: int | None, resume: bool) -> int:
    """Run the recipe in a forked child; SIGKILL it once metrics.jsonl has `kill_after` lines. Wait status."""
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            distill(recipe, folder, resume)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    metrics = folder / "metrics.jsonl"
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        if kill_after is not None and metrics.is_file() and metrics.read_bytes().count(b"\n") >= kill_after:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.003)


@pytest.fixture
def recipe(tiny_tree, monkeypatch):
    # A checkpoint after every step, so that a kill falls before, inside and after writing them.
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0.0)
    return parse_recipe(tiny_tree, "tiny")


@FORKS
def test_killed_at_random_points_and_resumed_equals_uninterrupted(recipe, tmp_path):
    uninterrupted, broken = tmp_path / "whole", tmp_path / "broken"
    assert in_child(recipe, uninterrupted, None, False) == 0
    lines = (uninterrupted / "metrics.jsonl").read_text().count("\n")
    assert lines > 30
    points = sorted(random.Random(11).sample(range(1, lines - 1), 6))
    for number, point in enumerate(points):
        status = in_child(recipe, broken, point, number > 0)
        assert os.WIFSIGNALED(status) or status == 0
    assert in_child(recipe, broken, None, True) == 0
    stages = sorted(path.name for path in (uninterrupted / "stages").iterdir())
    assert stages == ["0-one", "1-two", "2-three", "3-four"]
    for model in ["student", *(f"stages/{name}/model" for name in stages)]:
        assert same_weights(uninterrupted / model, broken / model), model
    assert not list(broken.rglob("*.partial"))
    result = json.loads((broken / "result.json").read_text())  # the time of every session, not of the last
    assert result["seconds"] == round(sum(stage["seconds"] for stage in result["stages"].values()), 1) > 0


@FORKS
def test_a_coded_table_resumes_to_the_same_bits(tiny_tree, tmp_path, monkeypatch):
    """Assistant and student with the transplant's code; base and weights at their own rates; the end fake-quantized."""
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0.0)
    tiny_tree["assistant"] |= {"nonzeros": 3}
    first, *_, last = tiny_tree["stages"]
    rates = {"table_learning_rate": 3e-3, "code_learning_rate": 2e-3, "steps": 5}
    tiny_tree["stages"] = [first | rates, last | rates | {"quantize": "int8", "start_share": 0.25}]
    recipe = parse_recipe(tiny_tree, "tiny")
    uninterrupted, broken = tmp_path / "whole", tmp_path / "broken"
    assert in_child(recipe, uninterrupted, None, False) == 0
    lines = (uninterrupted / "metrics.jsonl").read_text().count("\n")
    for number, point in enumerate((lines // 3, 2 * lines // 3)):
        in_child(recipe, broken, point, number > 0)
    assert in_child(recipe, broken, None, True) == 0
    start = load_file(uninterrupted / "student-start" / "model.safetensors")
    assert all(same_weights(uninterrupted / model, broken / model) for model in ("student", "stages/0-one/model"))
    # Base and weights were trained, the support was not.
    trained = load_file(uninterrupted / "student" / "model.safetensors")
    assert trained["embedding.code.index"].dtype == torch.int16
    assert torch.equal(trained["embedding.code.index"], start["embedding.code.index"])
    for name in ("embedding.code.weight", "embedding.table.weight"):
        assert not torch.equal(trained[name], start[name])


def test_keys_that_went_are_read_if_they_changed_nothing(tiny_tree, tmp_path):
    recipe = parse_recipe(tiny_tree, "tiny")
    tree = json.loads(recipe.model_dump_json()) | {"compile": False}
    for stage in tree["stages"]:
        stage |= {"accumulate": 1, "average": None}
    (tmp_path / "recipe.yaml").write_text(json.dumps(tree))
    assert read_recipe(tmp_path) == recipe
    tree["stages"][0]["accumulate"] = 4
    (tmp_path / "recipe.yaml").write_text(json.dumps(tree))
    with pytest.raises(InputError, match=r"recipe.yaml cannot be read"):
        read_recipe(tmp_path)


def zero(path: Path) -> None:
    """A power cut leaves a file of zeros; links to it keep their content."""
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(bytes(size))


@FORKS
@pytest.mark.parametrize("suffix", [".pt", ".safetensors", ".json"])
def test_a_damaged_checkpoint_is_named_and_the_older_one_continues(recipe, tmp_path, suffix, capsys):
    """Its state, the best weights so far or its hashes: the run ends as the uninterrupted one."""
    folder = tmp_path / "run"
    in_child(recipe, folder, 7, False)
    older, newer = sorted((folder / "stages" / "0-one" / "checkpoints").glob("step-*.pt"))
    zero(newer.with_suffix(suffix))
    distill(recipe, folder, True)
    message = f"{newer.with_suffix(suffix).name}: this checkpoint is damaged; the stage continues from {older.name}"
    assert message in capsys.readouterr().err
    assert same_weights(folder / "student", distill(recipe, tmp_path / "whole").student)


@FORKS
def test_a_stage_without_a_whole_checkpoint_says_what_to_remove_before_any_step(recipe, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    in_child(recipe, folder, 7, False)
    stage = folder / "stages" / "0-one"
    for path in (stage / "checkpoints").glob("*.safetensors"):
        zero(path)
    steps = []
    original = Trainer._step
    monkeypatch.setattr(Trainer, "_step", lambda self, batches: steps.append(1) or original(self, batches))
    with pytest.raises(MsdcError, match=rf"safetensors: this checkpoint is damaged.* remove {stage} to train") as error:
        distill(recipe, folder, True)
    assert not steps
    # What it advises works.
    shutil.rmtree(Path(re.search(r"remove (\S+) to train", str(error.value))[1]))
    assert same_weights(distill(recipe, folder, True).student, distill(recipe, tmp_path / "whole").student)


@FORKS
def test_damaged_model_folders_of_a_run_are_named_or_written_again(recipe, tmp_path, capsys):
    """The untrained student is cut again; the model of a finished stage must be trained again."""
    folder = tmp_path / "run"
    in_child(recipe, folder, 30, False)
    start, model = folder / "assistant-start" / "model.safetensors", folder / "stages" / "0-one" / "model"
    zero(start)
    zero(model / "model.safetensors")
    with pytest.raises(MsdcError, match=rf"{model}/model.safetensors: damaged; remove {model.parent} to train"):
        distill(recipe, folder, True)
    shutil.rmtree(model.parent)
    distill(recipe, folder, True)
    assert f"{start}: damaged; assistant-start is written again" in capsys.readouterr().err
    assert same_weights(folder / "student", distill(recipe, tmp_path / "whole").student)


@FORKS
def test_a_run_folder_is_never_silently_reused(recipe, tiny_tree, tmp_path):
    folder = tmp_path / "run"
    in_child(recipe, folder, 3, False)
    with pytest.raises(InputError, match="pass `resume`"):
        distill(recipe, folder)
    with pytest.raises(InputError, match=r"started with another recipe: seed: 1 then, 2 now\. Resume with"):
        distill({**tiny_tree, "seed": 2}, folder, True)


def started(tree: dict, folder, start: str, number: int) -> tuple[dict, dict, dict]:
    """Weights of the learner that stage `number` begins with, of the student before it, and of the first cut."""
    first = dict(tree["stages"][2], name="first", teacher="teacher", steps=4, evaluate_every=4)
    stages = [first, dict(tree["stages"][3], name="second", start=start)][1 - number :]
    run = Run(parse_recipe(tree | {"stages": stages}, "tiny"), folder)
    run.prepare()
    for earlier in range(number):
        run.run_stage(run.recipe.plans[earlier])
    learner = run.load_learner(run.recipe.plans[number]).module.state_dict()
    folders = run.folder.trained(run.recipe, "student"), run.folder.untrained("student")
    return learner, *(load_student(path).state_dict() for path in folders)


def equal(first: dict, second: dict, part: str) -> bool:
    names = [name for name in first if name.startswith(part)]
    assert names
    return all(torch.equal(first[name], second[name]) for name in names)


@pytest.mark.parametrize(("start", "number"), [("keep", 1), ("svd", 1), ("random", 1), ("svd", 0)])
def test_what_a_stage_starts_from(tiny_tree, tmp_path, start, number):
    """A later stage goes on from the stage before, a first one from the cut; svd cuts the embedding again."""
    learner, before, cut = started(tiny_tree, tmp_path, start, number)
    assert equal(before, cut, "layers.") == equal(before, cut, "embedding.") == (number == 0)
    assert equal(learner, before, "layers.")
    assert equal(learner, before, "embedding.") == (start == "keep" or number == 0)
    assert equal(learner, cut, "embedding.") == (start == "svd")


def test_texts_that_a_stage_cuts_are_counted(tiny_tree, tmp_path, capsys):
    tiny_tree["stages"] = [tiny_tree["stages"][0] | {"steps": 1, "max_length": 8}]
    distill(parse_recipe(tiny_tree, "tiny"), tmp_path / "run")
    match = re.search(
        r"stage one: ([\d,]+) of ([\d,]+) texts \(([\d.]+) %\) are cut to the stage's max_length of 8 tokens",
        capsys.readouterr().err,
    )
    assert match
    cut, every, share = (float(number.replace(",", "")) for number in match.groups())
    assert 0 < cut <= every
    assert share == pytest.approx(100 * cut / every, abs=0.06)


# --- what may change on resume ----------------------------------------------------------------------------------------


def test_after_a_loss_that_is_no_number_a_lower_rate_continues(tiny_tree, tmp_path):
    """As the message advises, also from a checkpoint whose weights had been ruined."""
    stage = tiny_tree["stages"][3] | {"steps": 8, "evaluate_every": 2, "clip": 1e30, "warmup_steps": 0}
    tree = tiny_tree | {"assistant": None, "student": str(tiny_models.student_folder())}
    folder = tmp_path / "run"
    in_child(tree | {"stages": [stage]}, folder, 7, False)
    with pytest.raises(MsdcError, match=r"Lower learning_rate .*`resume` continues from step [0-9]") as error:
        distill(tree | {"stages": [stage | {"learning_rate": 1e30}]}, folder, True)
    assert "the loss is" in str(error.value)
    again = distill(tree | {"stages": [stage | {"learning_rate": 0.01}]}, folder, True)
    rows = Metrics(folder / "metrics.jsonl").rows()
    rates = {row["step"]: row["learning_rate"] for row in rows if "learning_rate" in row}
    assert max(rates.values()) <= max(stage["learning_rate"], 0.01)
    assert sorted(rates) == list(range(1, 9))
    assert again.stages["four"]["heldout_accuracy"] > 0
    card = (again.student / "README.md").read_text()
    assert "stages.four.learning_rate: 1e+30 then, 0.01 now" in card


@FORKS
@pytest.mark.parametrize("key", RESUMED_STAGE)
def test_each_setting_of_the_list_may_change(tiny_tree, tmp_path, key):
    values = {"schedule": "constant", "steps": 5, "epochs": 2.0, "warmup_steps": 1, "evaluate_every": 1, "patience": 9}
    stage = tiny_tree["stages"][3] | {"steps": 8, "evaluate_every": 2}
    tree = tiny_tree | {"assistant": None, "student": str(tiny_models.student_folder()), "stages": [stage]}
    folder = tmp_path / "run"
    in_child(tree, folder, 3, False)
    distill(tree | {"stages": [stage | {key: values.get(key, 0.01)}]}, folder, True)
    assert yaml.safe_load((folder / "recipe.yaml").read_text())["stages"][0][key] == values.get(key, 0.01)
    assert (folder / "student").is_dir()


@FORKS
def test_text_that_was_moved_is_the_same_and_changed_text_is_not(tiny_tree, tmp_path):
    """A job's folder has another name after each restart: paths of corpora, graded files and caches may change."""
    parts = {"en-de.tsv": "".join(f"the cat {n} sleeps\tdie katze {n} schläft\n" for n in range(80)),
             "dev.tsv": "".join(f"{n % 6}\tcat {n}\tdog {n % 4}\n" for n in range(12))}  # fmt: skip
    for folder in ("job-1", "job-2"):
        (tmp_path / folder).mkdir()
        for name, text in parts.items():
            (tmp_path / folder / name.replace("en-de", f"text-{folder}.en-de")).write_text(text)

    def tree(folder: str) -> dict:
        graded = {"pairs": 5, "share": 0.1, "graded": [str(tmp_path / folder / "dev.tsv")]}
        corpora = [{"path": str(tmp_path / folder / "text-*.tsv"), "languages": ["de"]}]
        stage = tiny_tree["stages"][3] | {"steps": 8, "evaluate_every": 2}
        return tiny_tree | {
            "assistant": None, "student": str(tiny_models.student_folder()), "stages": [stage], "corpora": corpora,
            "heldout": graded, "cache": str(tmp_path / folder / "cache"),
        }  # fmt: skip

    in_child(tree("job-1"), tmp_path / "run", 4, False)
    uninterrupted = distill(tree("job-1"), tmp_path / "whole").student
    shutil.rmtree(tmp_path / "job-1")
    file = tmp_path / "job-2" / "text-job-2.en-de.tsv"
    file.write_text(parts["en-de.tsv"].replace("katze", "Katze"))
    with pytest.raises(InputError, match=r"other inputs: corpus .*text-job-1.*: removed; corpus .*text-job-2.*: added"):
        distill(tree("job-2"), tmp_path / "run", True)
    file.write_text(parts["en-de.tsv"])
    assert same_weights(distill(tree("job-2"), tmp_path / "run", True).student, uninterrupted)


def test_fewer_steps_than_were_taken_end_the_stage(tiny_tree, tmp_path, capsys):
    stage = tiny_tree["stages"][3] | {"steps": 400, "evaluate_every": 4}
    tree = tiny_tree | {"assistant": None, "student": str(tiny_models.student_folder())}
    in_child(tree | {"stages": [stage]}, tmp_path / "run", 9, False)
    result = distill(tree | {"stages": [stage | {"steps": 4}]}, tmp_path / "run", True)
    assert "steps, more than its 4, and ends here" in capsys.readouterr().err
    assert result.stages["four"]["step"] >= 4
    assert (tmp_path / "run" / "student").is_dir()


def test_a_start_without_an_assistant_is_told(tiny_tree, tmp_path, capsys):
    stage = dict(tiny_tree["stages"][0], train="student", start="svd")
    tree = tiny_tree | {"assistant": None, "student": tiny_tree["teacher"], "stages": [stage]}
    run = Run(parse_recipe(tree, "tiny"), tmp_path / "run")
    run.prepare()
    run.load_learner(run.recipe.plans[0])
    assert "start: svd has no effect" in capsys.readouterr().err


TEXTS = ["A cat sleeps.", "Wo ist der Bahnhof?", ""]


@pytest.fixture
def finished(tiny_tree, tmp_path):
    graded = tmp_path / "small-sts.tsv"
    graded.write_text("4.0\tA cat.\tA pet.\n1.0\tA cat.\tThe sky is blue today.\n2.5\tTea.\tCoffee.\n")
    stage = tiny_tree["stages"][3] | {"steps": 4}
    tree = {**tiny_tree, "stages": [stage], "report": [str(graded)], "licenses": ["CC-BY-4.0: sentences"]}
    return distill(tree, tmp_path / "run").student


def test_plain_sentence_transformers_gives_the_same_vectors(finished, tmp_path):
    """In a process where this package cannot be imported."""
    code = (
        "import sys\nsys.modules['msdc'] = None\nimport numpy as np\n"
        "from sentence_transformers import SentenceTransformer\n"
        f"model = SentenceTransformer({str(finished)!r}, device='cpu')\n"
        f"np.save({str(tmp_path / 'v.npy')!r}, model.encode({TEXTS!r}))\n"
    )
    python(code, cwd=tmp_path)
    encoder = msdc.load_encoder(finished)
    assert np.abs(np.load(tmp_path / "v.npy") - encoder.encode(TEXTS)).max() < 1e-5
    # Reports state the student's bytes, without those of its twin.
    assert weight_bytes(finished) == (finished / "model.safetensors").stat().st_size
    # This package reads the student itself: its bottleneck and its recurring unit.
    assert encoder.module.config.repeats == 2
    assert encoder.module.config.bottleneck == 8


def test_the_card_has_what_hubs_read(finished):
    huggingface_hub = pytest.importorskip("huggingface_hub")
    card = huggingface_hub.ModelCard.load(finished / "README.md")
    data = card.data
    assert data.language == ["en", "de", "es"]
    assert data.license == "cc-by-4.0"
    assert data.library_name == "sentence-transformers"
    assert data.pipeline_tag == "sentence-similarity"
    results = {(entry.dataset_name, entry.dataset_config): entry.metric_value for entry in data.eval_results}
    numbers = yaml.safe_load((finished.parent / "result.json").read_text())
    assert results["small-sts", None] == round(numbers["report"]["small-sts"], 2)
    for code in ("de", "es"):
        accuracy = numbers["stages"]["four"][f"accuracy_{code}"]
        assert results["held-out pairs of the training text", code] == round(accuracy, 2)
    assert "| four | student | teacher | multilingual_contrastive + multilingual_mse | 4 steps | 8 | 0.001" in card.text
    assert "parallel.tsv (en with de, es)" in card.text
    assert str(finished.parent) not in card.content


def test_the_card_has_scores_limits_and_a_warning_after_few_steps(finished):
    text = (finished / "README.md").read_text("utf-8")
    numbers = yaml.safe_load((finished.parent / "result.json").read_text())
    chosen = numbers["stages"]["four"]["step"]
    assert f"> **Warning:** trained for {chosen:.0f} step" in text
    assert "not fit for use" in text
    assert f"| small-sts | Spearman x 100 | {numbers['report']['small-sts']:.1f} |" in text
    accuracy = numbers["stages"]["four"]["accuracy_de"]
    assert f"| held-out pairs, de | nearest translation found, % | {accuracy:.1f} |" in text
    assert "* Trained on en, de, es only." in text
    assert "No test set was scored" not in text
    assert not re.search(r"\b1 \w+s\b|\b0 minutes", text)
    assert "applied 1" not in text
    # A bundle repeats what the card lists as data.
    assert read_card(finished).data_sources[0].startswith("parallel.tsv (en with de, es)")


def test_licenses_that_agree_are_named():
    tree = {"name": "r", "corpora": [{"path": "x"}], "stages": [{"name": "a", "objective": "kd"}]}
    for lines, expected in ((["CC-BY-4.0", "text B: cc-by-4.0"], "cc-by-4.0"), (["CC-BY-4.0", "Apache-2.0"], "other"),
                            (["unknown"], "other"), ([], "other")):  # fmt: skip
        assert license_of(parse_recipe({**tree, "licenses": lines}, "r")) == expected


def test_without_a_twin_only_this_package_opens_it(tiny_tree, tmp_path):
    stage = tiny_tree["stages"][3] | {"steps": 2}
    student = distill({**tiny_tree, "stages": [stage], "stock_twin": False}, tmp_path / "run").student
    assert not (student / "stock").exists()
    assert "SentenceTransformer" not in (student / "README.md").read_text()
    assert msdc.load_encoder(student).encode(["x"]).shape[0] == 1


def test_prompts_stay_with_the_student(tiny_tree, tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "prompted", "default prompt")
    stage = dict(tiny_tree["stages"][0], train="student", steps=2, evaluate_every=2)
    recipe = parse_recipe(tiny_tree | {"assistant": None, "student": str(folder), "stages": [stage]}, "tiny")
    encoded_rows: list[list[int]] = []
    original = BatchFeed.batches

    def batches(self):
        for batch in original(self):
            texts = [self.prompts[0] + row.source for row in batch.read()]
            ids, mask = batch.source
            rows = [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
            assert rows == self.tokenizer.encode(texts, self.stage.max_length)
            encoded_rows.extend(rows)
            yield batch

    monkeypatch.setattr(BatchFeed, "batches", batches)
    run = Run(recipe, tmp_path / "run")
    result = run.run()
    student = msdc.load_encoder(result.student)
    assert student.defaults.default_prompt == "query"
    assert student.defaults.prompts["query"] == PROMPTS["query"]
    first = student.tokenize([PROMPTS["query"]])[0][:-1]
    assert encoded_rows
    assert all(row[: len(first)] == first for row in encoded_rows)
    assert not np.array_equal(student.encode(["a cat"]), student.encode(["a cat"], prompt=""))


@pytest.mark.parametrize(
    ("prompts", "named", "default"),
    [
        (["", ""], {}, None),
        (["find: ", "find: "], {"query": "find: ", "passage": "find: "}, "query"),
        (["ask: ", ""], {"query": "ask: "}, None),
    ],
)
def test_prompts_of_a_stage_replace_those_that_the_student_began_with(tiny_tree, tmp_path, prompts, named, default):
    folder = write_folder(tmp_path / "prompted", "default prompt")
    stage = dict(tiny_tree["stages"][0], train="student", steps=1, evaluate_every=1, prompts=prompts)
    recipe = parse_recipe(tiny_tree | {"assistant": None, "student": str(folder), "stages": [stage]}, "tiny")
    student = msdc.load_encoder(Run(recipe, tmp_path / "run").run().student)
    assert (dict(student.defaults.prompts), student.defaults.default_prompt) == (named, default)


def test_a_teacher_of_states_uses_its_default_prompt(tmp_path):
    folder = write_folder(tmp_path / "prompted", "default prompt")
    vectors = msdc.load_encoder(folder).encode(["the cat sleeps"])
    for layers in ((), (1, 2)):
        teacher = CachedTeacher(msdc.load_encoder(folder), tmp_path / f"cache{len(layers)}", 24, layers=layers)
        # Stored in half precision.
        assert np.abs(teacher.vectors(["the cat sleeps"]) - vectors).max() < 2e-3
