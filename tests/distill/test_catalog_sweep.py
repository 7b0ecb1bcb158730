"""Variants of recipes, the paper's rows, and sweeps that teach what they share once."""

import csv
import json
from types import SimpleNamespace

import pytest
import tiny_models
import yaml
from click.testing import CliRunner
from paper_rows import msd_students
from torch_processes import together
from weights import same_weights

from msdc.cli import main
from msdc.commands.distill import command
from msdc.compress.size import size_plan
from msdc.compress.student.weights import read_weights
from msdc.distill import distill
from msdc.distill.catalog import RECIPES, load_recipe
from msdc.distill.run import Run
from msdc.distill.run_folder import Metrics
from msdc.distill.sweep import FailedPointsError, point_names, points, run_sweep
from msdc.errors import DiskFullError, InputError
from msdc.text.quickstart import GRADED_PAIRS


def test_the_students_of_a_paper_have_its_shapes():
    """The ten shapes, by the names that their sizes are published under."""
    bases = {"XLM-R": [], "MiniLM": ["minilm"]}
    assert len(msd_students()) == 10
    for student in msd_students():
        wide = {128: [], 256: ["bottleneck-256"], None: ["no-bottleneck"]}[student.bottleneck]
        parts = [*bases[student.base], *wide, *([f"unit-{student.unit}"] if student.unit != 3 else [])]
        recipe = load_recipe(f"msd:{'+'.join(parts or ['ours'])}")
        assert (recipe.student.bottleneck, recipe.student.unit) == (student.bottleneck, student.unit)
        assert recipe.paper["mono"] == float(student.row["mono_avg"])
        assert {"7", "8"} <= set(recipe.paper["tables"])


def test_list_shows_the_papers_rows():
    shown = CliRunner().invoke(command, ["--list"])
    assert shown.exit_code == 0
    assert max(map(len, shown.output.splitlines())) <= 80
    papers = [row.split()[0] for row in shown.output.splitlines()[2:] if row[2:3].strip()]
    assert papers[:3] == ["distilcse", "lightweight", "mkd"]
    assert ":" not in "".join(papers[:-1])
    shown = " ".join(CliRunner().invoke(command, ["--list", "distilcse"]).output.split())
    assert "52m+pkd+stage-1 Tiny-L6, PKD, stage 1 [table 2] avg 82.66" in shown
    assert "msd:" not in shown
    assert shown.count("Differs from the paper (metakd, ") == 1
    rows = json.loads(CliRunner().invoke(command, ["--list", "--json"]).output)
    assert all(set(row) == {"name", "about", "paper", "differs"} for row in rows)
    differs = {row["name"]: row["differs"] for row in rows}
    assert any(
        text.startswith("meta-teacher, own_share: its domains") for text in differs["distilcse:52m+metakd+stage-1"]
    )
    assert any(text.startswith("corpora:") for text in differs["distilcse:kd"])
    assert not differs["distilcse:small"]
    shown = CliRunner().invoke(command, ["--list", "lightweight:small"]).output
    assert shown.count("Differs from the paper (all rows): segmentation: SentencePiece unigram") == 1


def test_variants_combine_in_any_order(tiny_tree, tmp_path):
    first_corpus, second_corpus = (
        tiny_tree["corpora"][0] | {"name": "one"},
        tiny_tree["corpora"][0] | {"name": "two", "languages": ["es"]},
    )
    spare = tiny_tree["stages"][0] | {"name": "zero"}
    tree = tiny_tree | {
        "corpora": [first_corpus], "spare_corpora": [second_corpus], "spare_stages": [spare],
        "variants": {
            "german": {"about": "German", "set": {"corpora.*.languages": ["de"], "stages.zero.steps": 9}},
            "other": {"about": "other text", "corpora": ["two"], "differs": ["corpora: others"]},
            "early": {"stages": ["zero", "four"]}, "no-four": {"without": ["four"]},
            "replaced": {"set": {"stages.four": {"name": "four", "objective": "kd", "steps": 5}}},
            "wrong": {"corpora": ["three"]}, "nowhere": {"set": {"stages.nine.steps": 1}},
        },
        "tables": {"1": {"about": "a table", "columns": ["mono", "cross"],
                         "rows": {"other+german": [1.5, None], "other": 7}},
                   "2": {"about": "why it has none"}},
    }  # fmt: skip
    path = tmp_path / "r.yaml"
    path.write_text(yaml.safe_dump(tree))

    def load(chosen: str):
        return load_recipe(f"{path}:{chosen}")

    for order in ("other+german", "german+other"):
        (corpus,) = load(order).corpora
        assert (corpus.name, corpus.languages) == ("two", ("de",))
        assert load(order).differs == ("corpora: others",)
        assert load(order).paper["tables"] == ["1"]
        assert load(order).paper["mono"] == 1.5
        assert "cross" not in load(order).paper
    assert load("other").paper == {"row": "other text", "tables": ["1"], "mono": 7}
    assert not load("german").paper
    for order in ("german+early+no-four", "no-four+german+early"):
        assert [(s.name, s.steps) for s in load(order).stages][:1] == [("zero", 9)]
    assert [s.name for s in load("early+no-four").stages] == ["zero"]
    (four,) = [s for s in load("replaced").stages if s.name == "four"]
    assert (four.objective[0].name, four.steps) == ("kd", 5)
    assert {s.steps for s in load_recipe(path, ["stages.*.steps=3"]).stages} == {3}
    assert load_recipe(f"{path}:early+replaced").stages[1].steps == 5
    for chosen, message in (("wrong", "corpora has no 'three' .have one, two"), ("nowhere", "no entry 'nine'")):
        with pytest.raises(InputError, match=message):
            load(chosen)
    path.write_text(yaml.safe_dump(tree | {"tables": {"1": {"about": "", "rows": {"other": 1}}}}))
    with pytest.raises(InputError, match=r"tables\.1: row other: more figures than columns"):
        load("other")


@pytest.fixture
def recipe_file(tiny_tree, tmp_path):
    tree = tiny_tree | {
        "variants": {
            "full": {"about": "all stages"},
            "hard": {"about": "hard labels", "set": {
                "stages.four.objective": [{"name": "multilingual_contrastive", "options": {"labels": "hard"}}]}},
            "short": {"stages": ["one", "two"]},
        },
        "tables": {"9": {"about": "labels", "columns": ["cross"], "rows": {"full": 79.4, "hard": 79.0}},
                   # A row of it that has a figure in another table too.
                   "8": {"about": "one language", "columns": ["mono"], "rows": {"full": 82.6}}},
    }  # fmt: skip
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def test_sweep_of_a_table_shares_stages_and_writes_table_and_plot(recipe_file, tmp_path):
    out = tmp_path / "sweep"
    arguments = [str(recipe_file), "--sweep", "table=9", "--programs", "-o", str(out)]
    dry = CliRunner().invoke(command, [*arguments, "--dry-run"], catch_exceptions=False)
    assert dry.stdout.count("point ") == 2
    assert "point hard, recipe tiny-hard" in dry.stdout
    assert not out.exists()
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert done.exit_code == 0
    table = json.loads((out / "table.json").read_text())
    assert [(r["label"], r["paper"]) for r in table["rows"]] == [("full", {"cross": 79.4}), ("hard", {"cross": 79.0})]
    assert all(r["curve"] and r["seconds"] > 0 and "held-out nearest" in r["ours"] for r in table["rows"])
    for row in table["rows"]:
        measured, predicted = row["program"], size_plan("", read_weights(out / row["label"] / "student").config)
        assert measured["ms"] > 0
        assert measured["parameters"] == predicted.parameters
        assert measured["bytes"] == pytest.approx(predicted.bytes["int8"]["onnx"], rel=0.1)
    assert (out / "table.csv").read_text().splitlines()[0].startswith("point,row of the paper,")
    printed = done.stdout.splitlines()
    assert printed[-1] == str(out / "table.md")
    assert any(line.split()[:1] == ["hard"] for line in printed)
    assert "hard labels" in (out / "table.md").read_text()
    assert "<svg" in (out / "report.html").read_text()
    assert "\\toprule" in (out / "table.tex").read_text()
    assert (out / "figure-1.svg").read_text().startswith("<svg")
    for stage in ("0-one", "1-two", "2-three"):
        first, second = (out / label / "stages" / stage / "model" / "model.safetensors" for label in ("full", "hard"))
        assert first.stat().st_ino == second.stat().st_ino
    # What was taken over equals what the point teaches on its own.
    alone = distill(load_recipe(f"{recipe_file}:hard"), tmp_path / "alone")
    assert same_weights(alone.student, out / "hard" / "student")
    before = (out / "full" / "result.json").stat().st_mtime_ns
    assert CliRunner().invoke(command, arguments).exit_code == 0
    assert (out / "full" / "result.json").stat().st_mtime_ns == before


@pytest.fixture
def short_file(tiny_tree, tmp_path):
    """A recipe of one stage."""
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(tiny_tree | {"stages": [tiny_tree["stages"][0] | {"clip": 1e30}]}))
    return path


RATES = "stages.one.learning_rate=1e30,1e-3"


def test_a_point_that_fails_is_a_row_and_the_others_are_trained(short_file, tmp_path):
    out = tmp_path / "sweep"
    arguments = [str(short_file), "--sweep", RATES, "-o", str(out)]
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, FailedPointsError)
    assert done.exception.exit_code == 1
    message = r"1 of 2 points failed: stages.one.learning_rate=1e30 (stage one, step "
    assert str(done.exception).startswith(message)
    assert "the loss is nan" in " ".join(done.stdout.split())
    failed, trained = json.loads((out / "table.json").read_text())["rows"]
    assert "the loss is nan" in failed["failed"]
    assert not failed["ours"]
    assert not trained["failed"]
    assert trained["ours"]
    assert [bool(row["failed"]) for row in csv.DictReader((out / "table.csv").open())] == [True, False]
    for name in ("table.md", "report.html"):
        assert "the loss is nan" in (out / name).read_text()
    assert "2 points, 1 failed;" in (out / "report.html").read_text()
    # The point after the failed one is what it is on its own.
    alone = distill(str(short_file), tmp_path / "alone", overrides=["stages.one.learning_rate=1e-3"])
    assert same_weights(alone.student, out / "stages.one.learning_rate=1e-3" / "student")


def test_the_scores_of_a_point_are_those_of_its_run(short_file, tmp_path):
    """Means over the pairs of one and of two languages, and a curve in epochs."""
    names = ("r.en-en", "r.de-de", "r.en-de")
    for number, name in enumerate(names):
        words = ["the", "train", "leaves", "at", "nine", "my", "sister", "plays", "soup", "needs", "salt", "today"]
        lines = (f"{n % 6}\t{words[n]} {words[n - 5]}\t{words[n * (number + 2) % 12]}\n" for n in range(12))
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    changes = ["stages.one.steps=null", "stages.one.epochs=2", "stages.one.evaluate_every=3"]
    changes.append(f"report=[{', '.join(str(tmp_path / name) + '.tsv' for name in names)}]")
    out = run_sweep(str(short_file), "seed=1", tmp_path / "sweep", overrides=changes)
    (row,) = json.loads((out / "table.json").read_text())["rows"]
    result = json.loads((out / "seed=1" / "result.json").read_text())
    english, german, crossed = (result["report"][name] for name in names)
    expected = {"mono": (english + german) / 2, "cross": crossed, "avg": (english + german + crossed) / 3}
    expected["held-out mse x 1000"] = 1000 * result["stages"]["one"]["heldout_mse"]
    expected["held-out nearest"] = result["stages"]["one"]["heldout_accuracy"]
    assert row["ours"] == pytest.approx(expected, abs=0.006)
    assert len({english, german, crossed}) == 3
    steps = [point["step"] for point in Metrics(out / "seed=1" / "metrics.jsonl").rows() if "evaluation" in point]
    assert [point["x"] for point in row["curve"]] == pytest.approx([2 * step / steps[-1] for step in steps])
    assert (row["unit"], len(steps) > 1) == ("epoch", True)


def test_failed_points_are_tried_again_and_finished_ones_are_not(short_file, tmp_path, monkeypatch):
    out, started, run = tmp_path / "sweep", [], Run.run
    errors = {"1": MemoryError(), "2": RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
              "3": InputError("the corpus is damaged"), "4": KeyError("layers")}  # fmt: skip

    def fail(self):
        started.append(str(self.recipe.seed))
        if started[-1] in errors:
            raise errors[started[-1]]
        return run(self)

    monkeypatch.setattr(Run, "run", fail)
    with pytest.raises(FailedPointsError, match=r"4 of 5 points failed: .*and 1 more"):
        run_sweep(str(short_file), "seed=1,2,3,4,5", out)
    rows = {row["label"]: row["failed"] for row in json.loads((out / "table.json").read_text())["rows"]}
    assert rows["seed=1"] == "training: out of memory"
    assert rows["seed=2"].startswith("training: out of memory ([enforce fail]")
    assert (rows["seed=3"], rows["seed=4"]) == ("the corpus is damaged", "KeyError: 'layers'")
    assert rows["seed=5"] == ""
    errors.clear()
    started.clear()
    run_sweep(str(short_file), "seed=1,2,3,4,5", out)
    assert started == ["1", "2", "3", "4"]
    assert not any(row["failed"] for row in json.loads((out / "table.json").read_text())["rows"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(143), DiskFullError("disk full while writing x")])
def test_a_signal_and_a_full_disk_end_the_sweep_with_the_table_so_far(short_file, tmp_path, monkeypatch, error):
    run = Run.run

    def fail(self):
        if self.recipe.seed == 2:
            raise error
        return run(self)

    monkeypatch.setattr(Run, "run", fail)
    with pytest.raises(type(error)):
        run_sweep(str(short_file), "seed=1,2,3", tmp_path / "sweep")
    (row,) = json.loads((tmp_path / "sweep" / "table.json").read_text())["rows"]
    assert row["label"] == "seed=1"
    assert not (tmp_path / "sweep" / "seed=3").exists()


@pytest.mark.parametrize("name", ["recipe.yaml", "result.json", "metrics.jsonl"])
def test_a_damaged_point_fails_alone(short_file, tmp_path, name):
    out = tmp_path / "sweep"
    run_sweep(str(short_file), "seed=1,2", out)
    (out / "seed=1" / name).write_text("{\n")
    with pytest.raises(FailedPointsError, match=r"1 of 3 points failed: seed=1 .*" + name):
        run_sweep(str(short_file), "seed=1,2,3", out)
    rows = json.loads((out / "table.json").read_text())["rows"]
    assert [bool(row["failed"]) for row in rows] == [True, False, False]


def test_a_folder_of_another_recipe_fails_alone(short_file, tmp_path):
    distill(str(short_file), tmp_path / "sweep" / "seed=1", overrides=["seed=9"])
    with pytest.raises(FailedPointsError, match=r"1 of 2 points failed: seed=1 .*seed: 9 then, 1 now"):
        run_sweep(str(short_file), "seed=1,2", tmp_path / "sweep")


def test_a_program_that_cannot_be_measured_keeps_the_scores(short_file, tmp_path):
    def measure(student):
        if student.parent.name == "seed=1":
            raise InputError("no kernel")
        return {"ms": 1.0, "bytes": 5.0}

    with pytest.raises(FailedPointsError, match=r"1 of 2 points failed: seed=1 \(its program: no kernel\)"):
        run_sweep(str(short_file), "seed=1,2", tmp_path / "sweep", measure=measure)
    first, second = json.loads((tmp_path / "sweep" / "table.json").read_text())["rows"]
    assert first["ours"]
    assert first["failed"] == "its program: no kernel"
    assert second["program"]["ms"] == 1.0


# What one of two processes does; the second runs out of memory alone at the seed in its arguments, if any.
PROCESS = """
import os, sys, torch
from pathlib import Path
from msdc.distill import parallel
from msdc.distill.run import Run
from msdc.distill.run_folder import Metrics
from msdc.distill.sweep import FailedPointsError, run_sweep

torch.set_num_threads(1)
parallel.MEETING_LIMIT = parallel.timedelta(seconds=10)
recipe, over, out, alone = sys.argv[1:]
run = Run.run
def fail(self):
    if alone and self.rank == 1 and self.recipe.seed == int(alone):
        raise MemoryError
    return run(self)
Run.run = fail
try:
    run_sweep(recipe, over, out)
except FailedPointsError as error:
    print(error)
    sys.exit(7)
"""


def test_two_processes_go_on_after_a_point_that_fails(short_file, tmp_path):
    outcomes = together(PROCESS, str(short_file), RATES, str(tmp_path / "sweep"), "")
    for code, output in outcomes:
        assert code == 7, output
        assert "1 of 2 points failed: stages.one.learning_rate=1e30" in output
    failed, trained = json.loads((tmp_path / "sweep" / "table.json").read_text())["rows"]
    assert "the loss is nan" in failed["failed"]
    assert trained["ours"]


def test_a_process_that_fails_alone_ends_the_sweep_with_the_table_so_far(short_file, tmp_path):
    (first, shown), (second, output) = together(PROCESS, str(short_file), "seed=1,2,3", str(tmp_path / "sweep"), "2")
    assert first not in (0, 7), shown
    assert second not in (0, 7)
    assert "MemoryError" in output
    (row,) = json.loads((tmp_path / "sweep" / "table.json").read_text())["rows"]
    assert row["label"] == "seed=1"


def test_equal_points_are_named(recipe_file):
    for over, message in (
        ("seed=1,1", "`over` has the point 'seed=1' twice"),
        (
            "stages.four.learning_rate=1e-3,0.001",
            "learning_rate=1e-3' and 'stages.four.learning_rate=0.001' are the same",
        ),
        ("variant=full,hard,full", "has the point 'full' twice"),
    ):
        with pytest.raises(InputError, match=message):
            points(str(recipe_file), over)


def test_values_of_an_axis_may_be_lists(recipe_file):
    recipes = points(str(recipe_file), "stages.four.dimensions=[2, 4],[4],[]")
    assert [recipe.stages[3].dimensions for recipe in recipes.values()] == [(2, 4), (4,), ()]
    assert len(point_names(recipes)) == 3
    (label, *_) = points(str(recipe_file), "stages.four.teacher={teacher: 2, assistant: 1},assistant")
    assert label == "stages.four.teacher={teacher: 2, assistant: 1}"
    for over in ("seed=1,,2", "seed=1,", "seed=,1", "seed="):
        with pytest.raises(InputError, match="expected table="):
            points(str(recipe_file), over)


def test_a_setting_is_given_once_and_one_without_effect_is_named(recipe_file, monkeypatch):
    with pytest.raises(InputError, match="`overrides` sets seed, which `over` varies"):
        points(str(recipe_file), "seed=1,2", ("seed=3",))
    warned = []
    monkeypatch.setattr("msdc.distill.sweep.warn", warned.append)
    points(str(recipe_file), "stages.four.epochs=1,2")
    points(str(recipe_file), "stages.four.steps=1,2")
    assert warned == [
        "sweep: stages.four.epochs=1 and stages.four.epochs=2 differ only in a setting without effect "
        "(steps replace epochs)"
    ]
    points(str(recipe_file), "stages.four.mine_margin=0.1,0.2")
    assert warned[1].startswith("sweep: stages.four.mine_margin=0.1 and stages.four.mine_margin=0.2 differ only in")


def test_a_point_is_not_continued_with_other_settings(short_file, tmp_path):
    out = tmp_path / "sweep"
    run_sweep(str(short_file), "seed=1", out)
    (out / "seed=1" / "result.json").unlink()
    (out / "seed=1" / "stages" / "0-one" / "done.json").unlink()
    with pytest.raises(FailedPointsError, match=r"other settings: stages\.one\.weight_decay: 0\.01 then, 0\.1 now"):
        run_sweep(str(short_file), "seed=1", out, overrides=["stages.one.weight_decay=0.1"])


def test_the_default_folder_has_the_name_of_the_variant(recipe_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("msdc.distill.run.Run.run", lambda run: None)
    folders = []
    for name in (f"{recipe_file}:short", f"{recipe_file}:hard", str(recipe_file)):
        with pytest.raises(FailedPointsError) as caught:
            run_sweep(name, "seed=1")
        folders.append(str(caught.value.folder))
    assert folders == ["runs/tiny-short-sweep", "runs/tiny-hard-sweep", "runs/tiny-sweep"]


def test_a_report_that_cannot_be_drawn_ends_no_sweep(short_file, tmp_path, monkeypatch):
    warned = []
    monkeypatch.setattr("msdc.distill.sweep.warn", warned.append)
    out = run_sweep(str(short_file), "seed=1", tmp_path / "sweep", draw=lambda folder: 1 / 0)
    assert (out / "table.md").is_file()
    assert warned == [f"{out}: the report was not drawn: ZeroDivisionError: division by zero"]


def test_a_dry_sweep_shows_all_points(short_file, parallel_tsv):
    arguments = [str(short_file), "--sweep", f"corpora.*.path=nowhere.tsv,{parallel_tsv}", "--dry-run"]
    done = CliRunner().invoke(command, arguments)
    assert isinstance(done.exception, InputError)
    assert str(done.exception).startswith("1 of 2 points cannot be trained: corpora.*.path=nowhere.tsv (")
    assert "point corpora.*.path=nowhere.tsv, cannot be trained: " in done.output
    assert "parallel.tsv, recipe tiny" in done.output
    plans = CliRunner().invoke(command, [*arguments, "--json"]).stdout
    assert [list(plan)[:1] for plan in json.loads(plans).values()] == [["failed"], ["name"]]


def test_points_of_a_sweep(recipe_file, tmp_path):
    widths = points(str(recipe_file), "student.bottleneck=4,null")
    assert [r.student.bottleneck for r in widths.values()] == [4, None]
    assert [s.name for s in points(str(recipe_file), "variant=short")["short"].stages] == ["one", "two"]
    assert points("msd:small", "table=5", ("seed=7",), tmp_path)["bool"].seed == 7
    both = points(str(recipe_file), ("student.bottleneck=4,8", "variant=short,hard", "seed=1,2"))
    assert len(both) == 8
    assert both["student.bottleneck=8 short seed=2"].seed == 2
    assert {(r.student.bottleneck, len(r.stages), r.seed) for r in both.values()} == {
        (width, stages, seed) for width in (4, 8) for stages in (2, 4) for seed in (1, 2)
    }
    for words, message in (
        (("seed=1", "seed=2"), "names seed twice"),
        ("nothing", "expected table="),
        ("table=12", "has no table 12; it has tables 8, 9"),
        ("table=9,12", "has no table 12"),
        ("variant=x", "no variant"),
    ):
        with pytest.raises(InputError, match=message):
            points(str(recipe_file), words)


def test_the_folders_of_points_differ_as_their_names_do():
    labels = ["table=5 seed=1", "teacher=模型甲", "teacher=模型乙", "teacher=me/a", "teacher=me_a", "teacher=me a"]
    with pytest.raises(InputError, match=r"`over`: folders of several points would have one name: .*teacher=me a"):
        point_names(labels)
    names = point_names(labels[:-1])
    assert names["table=5 seed=1"] == "table=5_seed=1"
    assert len({name.casefold() for name in names.values()}) == len(names)
    with pytest.raises(InputError, match="one name"):
        point_names(["pooling=Mean", "pooling=mean"])


def test_a_repeated_sweep_option_combines_its_values(recipe_file, monkeypatch, tmp_path):
    taken = []
    monkeypatch.setattr("msdc.distill.sweep.points", lambda recipe, over, *rest: taken.append(over) or {})
    arguments = ["--sweep", "student.bottleneck=4,8", "--sweep", "seed=1,2", "-o", str(tmp_path)]
    CliRunner().invoke(command, [str(recipe_file), *arguments])
    assert taken == [("student.bottleneck=4,8", "seed=1,2")]


def test_the_data_folder_is_an_argument_and_its_absence_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("MSDC_DATA", "/nowhere")
    # The environment is the command line's business: the function never reads it.
    with pytest.raises(InputError, match=r"msdc-mini needs corpora .* pass `data` or set MSDC_DATA") as caught:
        load_recipe("msdc-mini")
    assert "\n" not in str(caught.value)
    assert load_recipe("msdc-mini", data=tmp_path).corpora[0].path == f"{tmp_path}/tatoeba/*.tsv.gz"
    # What is not used need not be there: `small` alone reads the data folder.
    assert load_recipe("msd").corpora[0].opus == "TED2020/v1"
    named = load_recipe("mkd", ('corpora=[{path: "{data}/a.tsv"}]',), data=tmp_path)
    assert named.corpora[0].path == f"{tmp_path}/a.tsv"


@pytest.mark.parametrize("how", ["option", "environment", "none"])
def test_the_command_line_names_the_data_folder(monkeypatch, tmp_path, parallel_tsv, tiny_tree, how):
    monkeypatch.delenv("MSDC_DATA", raising=False)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(yaml.safe_dump(tiny_tree | {"corpora": [{"path": "{data}/" + parallel_tsv.name}]}))
    runs = []
    monkeypatch.setattr("msdc.distill.run.Run.run", lambda run: runs.append(run.recipe) or SimpleNamespace(student="x"))
    if how == "environment":
        monkeypatch.setenv("MSDC_DATA", str(parallel_tsv.parent))
    arguments = ["--data", str(parallel_tsv.parent)] if how == "option" else []
    done = CliRunner().invoke(command, [str(recipe), *arguments])
    if how == "none":
        assert isinstance(done.exception, InputError)
        assert done.exception.exit_code == 2
    else:
        assert [corpus.path for corpus in runs[0].corpora] == [str(parallel_tsv)]


def test_no_recipe_names_a_folder_of_a_checkout():
    for path in RECIPES.glob("*.yaml"):
        assert "../" not in path.read_text(encoding="utf-8"), path.name


def test_a_run_ends_with_its_scores_and_what_comes_next(tiny_tree, tmp_path, capfd):
    stage = tiny_tree["stages"][2] | {"steps": 2, "evaluate_every": 2, "teacher": "teacher"}
    student = str(tiny_models.student_folder())
    recipe = tmp_path / "r.yaml"
    recipe.write_text(yaml.safe_dump(tiny_tree | {"assistant": None, "student": student, "stages": [stage]}))
    with pytest.raises(SystemExit) as ended:
        main(["distill", str(recipe), "-o", str(tmp_path / "run")])
    assert not ended.value.code
    out, err = capfd.readouterr()
    assert out.splitlines() == [str(tmp_path / "run" / "student")]
    accuracy = json.loads((tmp_path / "run" / "result.json").read_text())["stages"]["three"]["heldout_accuracy"]
    assert f"the last stage: held-out pairs found {accuracy:.1f} %" in err
    assert f"next: msdc evaluate {tmp_path / 'run' / 'student'} --against TEACHER" in err
    assert "(the teacher" not in err.partition("the last stage")[2]  # an English one: it does not read the translations


def test_a_run_ends_with_the_scores_of_a_teacher_that_reads_both_sides(tiny_tree, tmp_path, capfd):
    """The teacher is its own student, without a step that changes it much: both have the same scores."""
    student, graded = str(tiny_models.student_folder()), str(GRADED_PAIRS)
    stage = tiny_tree["stages"][2] | {"steps": 1, "evaluate_every": 1, "learning_rate": 1e-9, "teacher": "assistant"}
    changes = {"assistant": student, "student": student, "stages": [stage], "heldout": {"graded": [graded]}}
    recipe = tmp_path / "r.yaml"
    recipe.write_text(yaml.safe_dump(tiny_tree | changes))
    with pytest.raises(SystemExit) as ended:
        main(["distill", str(recipe), "-o", str(tmp_path / "run")])
    assert not ended.value.code
    numbers = json.loads((tmp_path / "run" / "result.json").read_text())["stages"]["three"]
    for key in ("heldout_accuracy", "graded"):
        assert numbers[f"teacher_{key}"] == pytest.approx(numbers[key], abs=0.5)
    line = capfd.readouterr().err.partition("the last stage")[2]
    assert f"found {numbers['heldout_accuracy']:.1f} % (the teacher {numbers['teacher_heldout_accuracy']:.1f})" in line
    assert f"100 {numbers['graded']:.1f} (the teacher {numbers['teacher_graded']:.1f})" in line
