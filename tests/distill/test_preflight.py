"""Mistakes in a recipe are met by --dry-run and at the start of a run, which leaves no folder behind."""

import gzip
import json
import re

import pytest
import tiny_models
import yaml
from click.testing import CliRunner
from places import data_folder

from msdc.commands.distill import command
from msdc.compress.student.io import save_student
from msdc.distill import distill
from msdc.distill.catalog import load_recipe, parse_recipe, read_file, set_value, shipped
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.tables import open_source_table
from msdc.distill.data.text import StageText
from msdc.distill.dry_run import dry_run, plan_text
from msdc.distill.preflight import check_recipe
from msdc.errors import InputError
from msdc.text.quickstart import PARALLEL

WRONG = {
    "unknown objective": ("stages.one.objective", "mse", "unknown objective 'mse'"),
    "unknown option": ("stages.three.objective", {"name": "kd", "options": {"tau": 1}}, "unknown option tau"),
    "bad option": ("stages.four.objective", {"name": "kd", "options": {"reduction": "max"}}, "max. is unknown"),
    "bad value": ("stages.four.objective", {"name": "contrastive_cross_entropy", "options": {"temperature": 0}},
        "above 0"),
    "no teacher": ("stages.four.teacher", None, "needs a teacher"),
    "tokens": ("stages.three.objective", "embedding_alignment", "needs train: student.embedding"),
    "no triples": ("stages.four.objective", "supervised_contrastive", "needs negatives: set `kind: triples`"),
    "first numbers of tokens": ("stages.two.dimensions", [2], "dimensions is for objectives on sentence vectors only"),
    "mined without a teacher": ("stages.four", {"name": "four", "teacher": None, "mined_negatives": 2, "objective":
        "supervised_contrastive", "max_length": 20}, "mined_negatives needs a teacher to find the negatives"),
    "missing corpus": ("stages.four.corpora", [{"path": "nowhere.tsv"}], "nowhere.tsv: no such corpus file"),
    "no columns": ("corpora", [{"path": "FOLDER/three.tsv", "languages": ["de"]}], "of 3 columns, first row"),
    "no such column": ("corpora", [{"path": "FOLDER/three.tsv", "kind": "text", "columns": ["text"]}],
        "no column 'text'"),
    "unreadable corpus": ("corpora", [{"path": "FOLDER/broken.tsv.gz", "languages": ["de"]}], "broken.tsv.gz"),
    "no such teacher": ("teacher", "./no-such-model", "no such model folder"),
    "no such teacher of a stage": ("stages.three.teacher", "./no-such-model", "no such model folder"),
    "too long": ("stages.three.max_length", 21, "max_length 21 is more than the student's 20 positions"),
    "longer than its body": ("assistant.max_length", 2048, "2048 is more than the [0-9]+ positions of its body"),
    "too deep": ("student.unit", 9, "layers has 8"),
    "no graded file": ("heldout.graded", ["nowhere-dev.tsv"], "nowhere-dev.tsv"),
    "a test set": ("heldout.graded", ["sts-test.tsv"], "must not choose checkpoints"),
    "no report file": ("report", ["nowhere.tsv"], "nowhere.tsv"),
    "a frozen name of another architecture": ("stages.four.freeze", ["embedding", "encoder.layer.0"],
        "freeze: no parameter's name begins with 'encoder.layer.0'; they begin with embedding, layers.NUMBER"),
    "no vocabulary file": ("student", {"scratch": {"vocabulary": {"file": "nowhere.model"}}, "max_length": 20},
        "student.scratch.vocabulary.file: .*nowhere.model: no such file"),
    "a language without text": ("languages", ["de", "tr"], "languages: no corpus has text in tr; they have"),
    "unknown precision": ("stages.four.quantize", "int3", "int3"),
    "cache": ("cache", "FOLDER/three.tsv/outputs", "not a writable folder"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_met_before_any_work(tiny_tree, tmp_path, case, monkeypatch):
    key, value, message = WRONG[case]
    (tmp_path / "three.tsv").write_text("a\tb\tc\n" * 20)
    (tmp_path / "broken.tsv.gz").write_bytes(b"\x1f\x8b\x08\x00garbage")
    monkeypatch.chdir(tmp_path)
    if case == "no teacher":
        tiny_tree["stages"][3]["source_share"] = 1.0
    set_value(tiny_tree, key, json.loads(json.dumps(value).replace("FOLDER", str(tmp_path))))
    recipe = parse_recipe(tiny_tree, "tiny")
    for attempt in (lambda: dry_run(recipe), lambda: distill(recipe, tmp_path / "run")):
        with pytest.raises(InputError, match=message) as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert caught.value.exit_code == 2
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"warmup_steps": 6}, "the warm-up never ends: warmup_steps is 6, the stage has 6 steps"),
        ({"mine_margin": 0.1}, "mine_margin has no effect without mine"),
        ({"choose": "graded"}, "choose: graded has no effect without heldout.graded"),
        ({"steps": None, "epochs": 2, "patience": 2}, "patience has no effect"),
        ({"evaluate_every": 3, "patience": 2}, "patience has no effect: the stage has 2 validations"),
        ({"evaluate_every": 7}, "evaluate_every has no effect: the stage has 6 steps"),
        ({"batch": 16, "batch_tokens": 100}, "batch has no effect: batch_tokens cuts the batches"),
        ({"warmup_steps": 2, "warmup_ratio": 0.5}, "warmup_ratio has no effect with warmup_steps"),
        ({"mini_batch": 20}, "mini_batch has no effect: a batch has"),
        (
            {"freeze": ["embedding"], "table_learning_rate": 0.1},
            "table_learning_rate has no effect: the table is frozen",
        ),
        (
            {"objective": [{"name": "kd"}, {"name": "multilingual_mse", "weight": 0}]},
            "an objective of weight 0 has no effect",
        ),
        ({"warmup_steps": 5, "patience": 1}, ""),
    ],
)
def test_settings_without_effect_are_named(tiny_tree, settings, message, capsys):
    tree = tiny_tree | {"stages": [tiny_tree["stages"][3] | {"steps": 6} | settings]}
    check_recipe(parse_recipe(tree | {"heldout": {"share": 0.1}}, "tiny"))
    messages = capsys.readouterr().err
    assert f"stage four: {message}" in messages if message else "has no effect" not in messages


def test_a_student_by_name_has_its_own_positions(tiny_tree, tmp_path):
    save_student(tiny_models.student(positions=16), tiny_models.tokenizer().path, tmp_path / "short")
    tree = tiny_tree | {"assistant": None, "student": str(tmp_path / "short"), "stages": tiny_tree["stages"][3:]}
    with pytest.raises(InputError, match="max_length 20 is more than the student's 16 positions"):
        check_recipe(parse_recipe(tree, "tiny"))


@pytest.fixture
def nothing_happens(monkeypatch):
    """Whatever trains, makes a vocabulary, opens a connection or writes fails."""

    def refuse(*words, **options):
        raise AssertionError("a dry run is dry")

    for name in ("torch.Tensor.backward", "sentencepiece.SentencePieceTrainer.train", "msdc.distill.run.Run.run",
                 "socket.socket.connect", "msdc.files.atomic_path", "pathlib.Path.mkdir"):  # fmt: skip
        monkeypatch.setattr(name, refuse)


def test_a_dry_run_counts_and_trains_nothing(tiny_tree, tmp_path, nothing_happens, monkeypatch):
    tiny_tree["stages"][0] |= {"steps": None, "epochs": 3, "balance": "proportional"}
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(tiny_tree))
    done = CliRunner().invoke(command, [str(file), "--dry-run", "--json", "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout.splitlines()[-1])
    # The corpus has seven languages; two are read, 60 rows of each.
    assert [source["rows"] for source in plan["sources"]] == [60, 60]
    recipe = load_recipe(str(file))
    monkeypatch.undo()
    text = StageText(
        [open_source_table(source) for source in open_corpora(recipe.corpora)], 1, recipe.heldout, "proportional"
    )
    exact = 3 * text.order.epoch_rows / 8
    stages = {stage["name"]: stage["steps"] for stage in plan["stages"]}
    assert stages["one"] == pytest.approx(exact, rel=0.1)
    assert stages["two"] == 6
    assert plan["facts"]["stages.two.objective"] == "embedding_alignment"
    assert plan["needs"] == []


@pytest.mark.parametrize("epochs", [None, 1.0])
def test_a_dry_run_states_what_balancing_repeats(tiny_tree, tmp_path, epochs):
    """A small language next to a large one; the run itself warns of the same number."""
    for name, rows in (("small.en-de", 64), ("large.en-es", 6400)):
        (tmp_path / f"{name}.tsv").write_text("".join(f"few {n}\tsatz {n}\n" for n in range(rows)))
    length = {"epochs": 1.0, "steps": None} if epochs else {"steps": 400}
    tree = tiny_tree | {"corpora": [{"path": f"{tmp_path}/*.tsv"}], "heldout": {"share": 1e-6}}
    tree["stages"][0] |= {"balance": "equal", "batch": 64, **length}
    plan = dry_run(parse_recipe(tree, "tiny"))
    (warning,) = plan["stages"][0]["warnings"]
    passes = (6464 if epochs else 400 * 64) / 2 / 64
    match = re.search(r"the (\d+) rows of small.en-de.tsv \[de\] are read (\d+) times", warning)
    assert match is not None, warning
    assert 55 <= int(match[1]) <= 64
    assert int(match[2]) == pytest.approx(passes, rel=0.1)
    assert f"    warning: {warning}" in plan_text(plan)
    tree["stages"][0]["balance"] = "proportional"
    assert dry_run(parse_recipe(tree, "tiny"))["stages"][0]["warnings"] == []


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_long_files_are_counted_by_their_lines(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr("msdc.distill.dry_run.COUNTED_ROWS", 100)
    path = tmp_path / f"long.en-de.tsv{suffix}"
    with (gzip.open if suffix else open)(path, "wt", encoding="utf-8") as handle:
        # Every fifth row is too long.
        handle.writelines(
            f"a sentence, {n}\tein Satz{' und noch einer' * (20 * (n % 5 == 0))}, {n}\n" for n in range(5000)
        )

    def rows(**options) -> int:
        recipe = {"corpora": [{"path": str(path)} | options], "stages": [{"name": "a", "objective": "kd"}]}
        return dry_run(load_recipe({"name": "long", "assistant": None, "student": None} | recipe))["sources"][0]["rows"]

    monkeypatch.setattr("msdc.distill.preflight.check_recipe", lambda recipe, download: [])
    assert rows() == pytest.approx(4000, rel=0.02)
    assert rows(limit=700) == 700
    assert rows(limit=70) == 70


def test_dry_run_without_a_network_says_what_it_needs(nothing_happens):
    shown = plan_text(dry_run(load_recipe("msd")))
    assert "TED2020/v1 [ar, de, es, fr, it, nl, tr]: not here" in shown
    assert "steps unknown" in shown
    assert "needs FacebookAI/xlm-roberta-base (network)" in shown
    assert "needs TED2020/v1 (network)" in shown
    assert "differs: start: the bottleneck" in shown


@pytest.mark.slow
def test_a_row_of_every_table_can_be_dry_run_with_the_data_folder(nothing_happens):
    if (data := data_folder()) is None:
        pytest.skip("the data folder is not here: set MSDC_DATA")
    firsts = [
        f"{name}:{next(iter(of.rows))}" for name in shipped() for of in read_file(name).tables.values() if of.rows
    ]
    rows = {*firsts, "shared-data", "distilcse:52m+kd", "sbert:xlmr"}
    plans = {row: dry_run(load_recipe(row, data=data)) for row in rows}
    assert all(plan["stages"] for plan in plans.values())
    assert any(need.startswith("news-5m.txt: five million") for need in plans["distilcse:52m+kd"]["needs"])
    assert any(need.startswith("snli.train.tsv: SNLI") for need in plans["sbert:xlmr"]["needs"])


def test_text_that_is_left_to_the_user_is_missed_by_the_run_alone(tiny_tree, tmp_path):
    tree = tiny_tree | {"corpora": [{"path": "news.txt", "kind": "text", "manual_download": "sentences of news"}]}
    recipe = parse_recipe(tree, "tiny")
    assert dry_run(recipe)["needs"] == ["news.txt: sentences of news"]
    with pytest.raises(InputError, match=r"news.txt: no such corpus file; you must provide it: sentences"):
        distill(recipe, tmp_path / "run")


def test_max_steps_tries_every_stage(tiny_tree, tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(tiny_tree))
    done = CliRunner().invoke(command, [str(file), "--max-steps", "2", "--json", "-o", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    stages = json.loads(done.stdout.splitlines()[-1])["stages"]
    shares = {k.removeprefix("share_"): v for k, v in stages["four"].items() if k.startswith("share_")}
    assert set(shares) == {"multilingual_contrastive", "multilingual_mse", "target_only"}
    assert sum(shares.values()) == pytest.approx(1, abs=1e-4)
    assert stages["one"]["share_multilingual_mse"] == 1
    assert all(numbers["minutes_per_10000_steps"] > 0 for numbers in stages.values())
    assert {stage.steps for stage in load_recipe(str(tmp_path / "run" / "recipe.yaml")).stages} == {2}


def test_graded_pairs_of_one_score_are_refused_before_any_work(tiny_tree, tmp_path):
    """It was the first validation, after the text was read and the vocabulary trained."""
    (tmp_path / "my-dev.tsv").write_text("".join(f"3\ta cat {n}\ta dog {n}\n" for n in range(9)))
    tree = tiny_tree | {"heldout": {"graded": [str(tmp_path / "my-dev.tsv")]}}
    for attempt in (lambda: dry_run(parse_recipe(tree, "tiny")), lambda: distill(tree, tmp_path / "run")):
        with pytest.raises(InputError, match="all 9 pairs have the score 3, which ranks nothing"):
            attempt()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("key", ["source", "languages"])
def test_language_codes_are_lower_case(tiny_tree, key):
    tiny_tree["corpora"][0][key] = "EN" if key == "source" else ["DE"]
    with pytest.raises(InputError, match=r"language codes are lower case, such as '(en|de)'"):
        parse_recipe(tiny_tree, "tiny")
    tiny_tree["corpora"][0][key] = "zh_TW" if key == "source" else ["pt_BR"]
    parse_recipe(tiny_tree, "tiny")


def test_a_teacher_that_reads_less_of_a_text_is_named(tiny_tree, tmp_path, capsys):
    save_student(tiny_models.student(positions=16), tiny_models.tokenizer().path, tmp_path / "short")
    stage = tiny_tree["stages"][3] | {"teacher": str(tmp_path / "short")}
    check_recipe(parse_recipe(tiny_tree | {"stages": [stage]}, "tiny"))
    assert "short reads the first 16 tokens of a text, the stage's max_length is 20" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heldout": {"graded_pairs": 9}}, "heldout.graded_pairs has no effect without heldout.graded"),
        ({"threads": 1000}, "threads: 1000: this machine grants"),
        ({"corpora": [{"path": str(PARALLEL), "languages": ["de"], "weight": 3}]}, "weight has no effect on the only"),
        ({"corpora": [{"path": str(PARALLEL), "kind": "text", "columns": [2], "languages": ["de"]}]},
         "parallel: languages has no effect with kind: text: `source` is its language"),
    ],
)  # fmt: skip
def test_settings_of_the_recipe_without_effect_are_named(tiny_tree, changes, message, capsys):
    tree = tiny_tree | {"stages": [tiny_tree["stages"][3] | {"source_share": 1.0}]}
    check_recipe(parse_recipe(tree, "tiny"))
    assert message not in capsys.readouterr().err
    check_recipe(parse_recipe(tree | changes, "tiny"))
    assert message in capsys.readouterr().err


def test_dimensions_do_not_repeat(tiny_tree):
    with pytest.raises(InputError, match="dimensions repeat"):
        parse_recipe(tiny_tree | {"stages": [tiny_tree["stages"][3] | {"dimensions": [8, 8]}]}, "tiny")
