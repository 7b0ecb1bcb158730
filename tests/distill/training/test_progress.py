"""Watching a run: lines and bars on standard error, metrics.jsonl, trackers, curves, snapshots, more steps later."""

import io
import json
import re
import shutil
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner
from refusals import one_line
from safetensors.torch import load_file
from weights import same_weights

import msdc
from msdc.bench.report.cli import command as report
from msdc.compress import plan
from msdc.compress.loading import find_model, load_torch_encoder
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.recipe import HeldOut
from msdc.distill.run_folder import Metrics
from msdc.distill.training.progress import MOST_FAILURES, TRACKERS, StageProgress, Trackers, flat_numbers
from msdc.distill.training.trainer import Trainer
from msdc.errors import InputError, MsdcError


@pytest.fixture
def clock(monkeypatch):
    """The clock of the progress: `now` in seconds, which a test sets."""
    fake_time = SimpleNamespace(now=0.0)
    monkeypatch.setattr("msdc.distill.training.progress.monotonic", lambda: fake_time.now)
    return fake_time


def test_one_line_every_thirty_seconds(capsys, clock):
    """Losses are means since the last line; speed and time left are counted from the first step."""
    with StageProgress("train", 100) as progress:
        for step in range(1, 41):
            clock.now = 60 + step
            progress.step(step, 1.0 if step <= 20 else 0.5, 2e-5, 64, {})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("train: step 31/100, ")
    loss, rate, speed = re.fullmatch(r".* loss (\S+), lr (\S+), (\d+) sentences/s, .*", line).groups()
    assert float(loss) == pytest.approx((19 + 11 / 2) / 30, rel=0.02)
    assert float(rate) == pytest.approx(2e-5)
    assert speed == "64"
    assert line.endswith(" 1 min left")


def test_other_processes_are_silent(capsys, clock):
    with StageProgress("train", 10, enabled=False) as progress:
        for step in range(1, 10):
            clock.now += 100
            progress.step(step, 1.0, 1e-3, 8, {})
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch, clock):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with StageProgress("train", 10) as progress:
        for step in range(1, 8):
            clock.now += 1
            progress.step(step, 0.25, 1e-3, 8, {})
        progress._bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert re.search(r"train .* 7/10 loss 0\.25, .* left", shown)


def test_a_run_shows_loss_and_speed(monkeypatch, capsys, tiny_tree, tmp_path):
    monkeypatch.setattr("msdc.distill.training.progress.LINE_SECONDS", 0.0)
    distill(tiny_tree | {"stages": tiny_tree["stages"][3:]}, tmp_path / "run")
    # A step of the target side alone has one part, which is not shown.
    shown = [line for line in capsys.readouterr().err.splitlines() if "four: step " in line]
    assert any("multilingual_contrastive" in line and "multilingual_mse" in line for line in shown)
    for part in ("loss", "lr", "sentences/s", "left"):
        assert part in shown[-2]
    steps = [row for row in Metrics(tmp_path / "run" / "metrics.jsonl").rows() if "loss" in row]
    assert len(steps) == 9
    assert all(0 < row["learning_rate"] <= 1e-3 for row in steps)


def rows(*steps, stage="one"):
    return [{"stage": stage, "step": step, "loss": 1.0} for step in steps]


@pytest.fixture
def metrics(tmp_path):
    log = Metrics(tmp_path / "metrics.jsonl")
    for row in rows(1, 2, 3):
        log.append(row)
    return log


@pytest.mark.parametrize("torn", [b'{"stage": "one", "st', b"{", b'{"stage": "\xc3'])
def test_torn_last_line(metrics, torn):
    with open(metrics.path, "ab") as handle:
        handle.write(torn)
    assert metrics.rows() == rows(1, 2, 3)
    metrics.mend()
    metrics.append(rows(4)[0])
    assert metrics.rows() == rows(1, 2, 3, 4)


def test_rewind_forgets_what_a_stage_says_again(metrics):
    metrics.append({"stage": "one", "done": {"step": 3.0}})
    metrics.append(rows(1, stage="two")[0])
    metrics.rewind("one", 2)
    assert metrics.rows() == [*rows(1, 2), *rows(1, stage="two")]
    metrics.rewind("one", -1)
    assert metrics.rows() == rows(1, stage="two")


@pytest.mark.parametrize("line", ["no json", "[1]", "{" * 100_000, '"\\udcff'])
def test_damaged_line_is_named(metrics, line):
    with open(metrics.path, "a") as handle:
        handle.write(line + "\n")
    metrics.append(rows(5)[0])
    assert "metrics.jsonl, line 4" in one_line(metrics.rows)


class Stop(Exception):
    """Ends a run like a kill would."""


def short(tree, steps=9, **changes):
    """The last stage of the tiny recipe, on the untrained student."""
    stage = tree["stages"][3] | {"steps": steps, "schedule": "constant", "warmup_steps": 1} | changes
    return parse_recipe({**tree, "stages": [stage]}, "tiny")


@pytest.fixture
def stopped(tiny_tree, tmp_path, monkeypatch):
    """A run that was stopped in its second half, after a validation, and its recipe."""
    recipe = short(tiny_tree)
    original = Trainer._step

    def step(self, batch):
        if self.position.step == 6:
            raise Stop
        return original(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(Stop):
            distill(recipe, tmp_path / "run")
    return recipe, tmp_path / "run"


def test_curves_and_best_weights_of_a_run_that_goes_on(stopped):
    recipe, folder = stopped
    for _ in range(2):  # drawn again as it goes on, without --force
        done = CliRunner().invoke(report, [str(folder)])
        assert done.exit_code == 0
        assert done.stdout.strip() == str(folder / "report.html")
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Training loss of stage four" in page
    assert "The run is not finished" in page
    encoder = msdc.load_encoder(folder)
    best = load_file(folder / "stages" / "0-four" / "checkpoints" / "best.safetensors")
    state = encoder.module.state_dict()
    assert all(torch.equal(state[name], value) for name, value in best.items())
    assert encoder.encode(["hello"]).shape == (1, encoder.width)
    (snapshot,) = (folder / "snapshot").iterdir()
    stamp = (snapshot / "model.safetensors").stat().st_mtime_ns
    msdc.load_encoder(folder)
    assert (snapshot / "model.safetensors").stat().st_mtime_ns == stamp
    # Verbs of lower packages take a run too.
    assert find_model(folder) == load_torch_encoder(str(folder)).folder == snapshot
    assert plan(folder).parameters == sum(value.numel() for value in best.values())
    finished = distill(recipe, folder, True)
    assert msdc.load_encoder(folder).folder == finished.student


def test_a_run_without_a_validation_has_no_weights(tiny_tree, tmp_path, monkeypatch):
    def step(self, batch):
        raise Stop

    monkeypatch.setattr(Trainer, "_step", step)
    with pytest.raises(Stop):
        distill(short(tiny_tree), tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").touch()
    with pytest.raises(InputError, match="no stage of this run has been validated yet"):
        msdc.load_encoder(tmp_path / "run")


def test_a_stopped_run_goes_on_to_more_steps_and_a_finished_one_if_it_kept_its_state(stopped, tiny_tree, tmp_path):
    """With a constant rate the longer run is the one that had so many steps from the start."""
    extendable, dropped, longer = tmp_path / "kept", tmp_path / "dropped", short(tiny_tree, 12)
    distill(short(tiny_tree), extendable, extendable=True)
    shutil.copytree(extendable, dropped)
    (dropped / "stages" / "0-four" / "checkpoints" / "end-00000009.json").unlink()
    with pytest.raises(InputError, match=r"stage four is finished and its optimizer state was dropped.*`extendable`"):
        distill(longer, dropped, True)
    assert (dropped / "student").is_dir()
    with pytest.raises(InputError, match=r"stage four is finished, its steps cannot change any more"):
        distill(short(tiny_tree, 5), extendable, True)
    distill(longer, extendable, True)
    assert "steps: 12" in (extendable / "recipe.yaml").read_text()
    uninterrupted = distill(longer, tmp_path / "whole").student
    assert same_weights(uninterrupted, extendable / "student")
    assert same_weights(uninterrupted, distill(longer, stopped[1], True).student)
    assert max(row.get("step", 0) for row in Metrics(extendable / "metrics.jsonl").rows()) == 12
    # The same command again changes nothing.
    assert distill(longer, extendable, True).stages == json.loads((extendable / "result.json").read_text())["stages"]


def chosen_at(monkeypatch, scores):
    """Validations choose by these scores, by step; everything else is measured."""
    validate = Trainer._validate

    def scored(self):
        measure = self.validate
        self.validate = lambda encoder: {**measure(encoder), "choice": scores[self.position.step]}
        try:
            return validate(self)
        finally:
            self.validate = measure

    monkeypatch.setattr(Trainer, "_validate", scored)


def test_the_best_weights_are_those_of_the_state_that_a_stage_goes_on_from(tiny_tree, tmp_path, monkeypatch):
    """Not those of steps that were taken back: they are better by a score that the new steps do not reach."""
    folder = tmp_path / "run"
    with monkeypatch.context() as patch:
        chosen_at(patch, {3: 1, 6: 0})
        distill(short(tiny_tree, 6, evaluate_every=3), folder, extendable=True)
    shutil.copytree(folder / "stages" / "0-four" / "model", tmp_path / "third")
    with monkeypatch.context() as patch:
        chosen_at(patch, {9: 5})
        assert distill(short(tiny_tree, 9, evaluate_every=3), folder, True).stages["four"]["step"] == 9
    assert not same_weights(folder / "student", tmp_path / "third")
    with monkeypatch.context() as patch:
        chosen_at(patch, {9: 0, 12: 0})
        assert distill(short(tiny_tree, 12, evaluate_every=3), folder, True).stages["four"]["step"] == 3
    assert same_weights(folder / "student", tmp_path / "third")


@pytest.mark.parametrize("share", [1e-9, 0.1])
def test_validations_that_cannot_decide_keep_the_last_weights_and_say_so(
    tiny_tree, tmp_path, share, monkeypatch, capsys
):
    """Without a held-out pair, and with equal scores."""
    tree = short(tiny_tree, 9, evaluate_every=3).model_copy(
        update={"heldout": HeldOut(share=share, min_pairs_per_language=0)}
    )
    if share > 0.01:
        chosen_at(monkeypatch, {3: 0.5, 6: 0.5, 9: 0.5})
    assert distill(tree, tmp_path / "run").stages["four"]["step"] == 9
    messages = capsys.readouterr().err
    assert "four: all 3 validations score the same: the last weights are kept" in messages
    assert ("stage four: no held-out pair (" in messages) == (share < 0.01)


def test_a_plateau_is_no_gain(tiny_tree, tmp_path, monkeypatch, capsys):
    """Patience counts from the first of equal scores; the weights are those of the last."""
    chosen_at(monkeypatch, {step: min(step, 8) for step in range(0, 400, 4)})
    run = distill(short(tiny_tree, epochs=6, steps=None, patience=1, evaluate_every=4), tmp_path / "run")
    assert 8 < run.stages["four"]["step"] < 50
    assert "four: stopped early, no gain" in capsys.readouterr().err


def test_a_run_that_stopped_early_stays_stopped_and_says_so(tiny_tree, tmp_path, monkeypatch, capsys):
    """Also when it is asked for more epochs: one that was asked for them at first would have stopped there."""
    asked = {"steps": None, "patience": 1, "evaluate_every": 4}
    chosen_at(monkeypatch, {step: -step for step in range(0, 400, 4)})
    folder = tmp_path / "run"
    first = distill(short(tiny_tree, epochs=6, **asked), folder, extendable=True)
    message = "four: stopped early, no gain since step 4 (patience 1)"
    assert message in capsys.readouterr().err
    rows = (folder / "metrics.jsonl").read_text().splitlines()
    again = distill(short(tiny_tree, epochs=9, **asked), folder, True)
    assert message in capsys.readouterr().err
    assert again.stages["four"]["step"] == first.stages["four"]["step"] == 4
    steps = [json.loads(row).get("step", 0) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == max(json.loads(row).get("step", 0) for row in rows)
    with pytest.raises(InputError, match=r"stage four is finished, its epochs, patience cannot change"):
        distill(short(tiny_tree, epochs=12, **asked | {"patience": 3}), folder, True)


def test_rows_become_flat_numbers_at_steps_that_go_on(tmp_path, monkeypatch):
    logged = []

    def memory(folder, name, settings, ident):
        return lambda numbers, step: logged.append((ident, step, numbers)), lambda: logged.append("closed")

    monkeypatch.setitem(TRACKERS, "memory", memory)
    trackers = Trackers(["memory"], tmp_path, "run", {})
    trackers.log({"stage": "one", "step": 3, "loss": 0.5, "shares": {"mse": 1.0}, "text": "x", "bad": float("nan")})
    trackers.log({"stage": "one", "done": {"seconds": 2}})
    trackers.log({"stage": "two", "step": 1, "loss": 0.25})
    trackers.close()
    again = Trackers(["memory"], tmp_path, "run", {})
    again.skip(3)
    again.log({"stage": "two", "step": 2, "loss": 0.2})
    ident = logged[0][0]
    assert logged == [
        (ident, 3, {"one/loss": 0.5, "one/shares/mse": 1.0}),
        (ident, 3, {"one/done/seconds": 2.0}),
        (ident, 4, {"two/loss": 0.25}),
        "closed",
        (ident, 5, {"two/loss": 0.2}),
    ]
    assert flat_numbers({"a": True, "b": 2}) == {"b": 2.0}


@pytest.mark.parametrize("failures", [3, 10**6])
def test_a_tracker_whose_server_is_away_ends_no_run(tiny_tree, tmp_path, monkeypatch, capsys, failures):
    """Its rows are sent when it is back; one that stays away is dropped; both are said once."""
    taken, calls = [], []

    def log(numbers, step):
        calls.append(step)
        if 2 < len(calls) <= 2 + failures:
            raise ConnectionError("reset by peer\nat the server")
        taken.append((step, numbers))

    monkeypatch.setitem(TRACKERS, "memory", lambda *facts: (log, lambda: None))
    monkeypatch.setattr("msdc.distill.training.progress.require_trackers", lambda names: None)
    monkeypatch.setattr("msdc.distill.run.require_trackers", lambda names: None)
    distill(short(tiny_tree, 30), tmp_path / "run", trackers=["memory"])
    messages = capsys.readouterr().err
    rows = Metrics(tmp_path / "run" / "metrics.jsonl").rows()
    assert messages.count("tracker memory: reset by peer at the server: its rows wait") == 1
    if failures == 3:
        assert [step for step, _ in taken] == [row.get("step", 30) for row in rows]
    else:
        assert len(taken) == 2
        assert len(calls) == 2 + MOST_FAILURES
        assert messages.count(f"no more rows are sent to it after {MOST_FAILURES} errors in a row") == 1


def test_tensorboard_has_the_rows_of_the_metrics(tiny_tree, tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = tmp_path / "run"
    distill(short(tiny_tree), folder, trackers=["tensorboard"])
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    rows = Metrics(folder / "metrics.jsonl").rows()
    for name in ("loss", "learning_rate", "multilingual_mse"):
        shown = [(event.step, event.value) for event in events.Scalars(f"four/{name}")]
        assert shown == [(row["step"], pytest.approx(row[name], rel=1e-6)) for row in rows if name in row]
    assert events.Scalars("four/evaluation/heldout_accuracy")


def test_a_tracker_that_cannot_open_a_run_is_one_line(tmp_path, monkeypatch):
    def refuse(*facts):
        raise OSError("no login\nfor this place")

    closed = []
    monkeypatch.setitem(TRACKERS, "first", lambda *facts: (None, lambda: closed.append(True)))
    monkeypatch.setitem(TRACKERS, "refusing", refuse)
    with pytest.raises(MsdcError, match=r"^`trackers` refusing: no login for this place$"):
        Trackers(["first", "refusing"], tmp_path, "run", {})
    assert closed == [True]


def test_a_tracker_that_is_not_installed_is_met_before_any_work(tiny_tree, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="`trackers` 'no_such_package' is unknown"):
        distill(short(tiny_tree), tmp_path / "run", trackers=["no_such_package"])
    absent = next(name for name in TRACKERS if find_spec(name) is None)
    with pytest.raises(InputError, match=f"`trackers` {absent}: not installed; pip install {absent}"):
        distill(short(tiny_tree), tmp_path / "run", trackers=[absent])
    assert not (tmp_path / "run").exists()
