"""`msdc push`: what is uploaded as one commit, and what a hub that refuses says; the client library is stubbed."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError
from huggingface_hub.utils import filter_repo_objects

from msdc.cli import msdc as cli

CARD = "# mine\n"


class Hub:
    """Keeps what it is sent; `refuses` is raised by an upload."""

    def __init__(self):
        self.created, self.files, self.refuses = [], {}, None

    def create_repo(self, name, *, private, exist_ok):
        self.created.append((name, private))

    def upload_folder(self, *, repo_id, folder_path, commit_message, ignore_patterns):
        if self.refuses is not None:
            raise self.refuses
        names = [path.relative_to(folder_path).as_posix() for path in folder_path.rglob("*") if path.is_file()]
        self.files = {name: (folder_path / name).read_text() for name in filter_repo_objects(
            names, ignore_patterns=ignore_patterns)}  # fmt: skip
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


@pytest.fixture
def hub(monkeypatch):
    made = Hub()
    monkeypatch.setattr("msdc.commands.push.HfApi", lambda: made)
    return made


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "runs" / "first" / "student"
    (folder / "stock").mkdir(parents=True)
    files = {"config.json": "{}", "README.md": CARD, "stock/model.safetensors": "w", ".x.partial": ""}
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def push(*words):
    return CliRunner().invoke(cli, ["push", *map(str, words)])


def test_a_model_is_one_commit_of_its_files(hub, model):
    planned = json.loads(push(model, "me/mine", "--dry-run", "--json").stdout)["files"]
    assert planned == {"README.md": 7, "config.json": 2, "stock/model.safetensors": 1} and not hub.created
    done = push(model, "me/mine", "--private")
    assert done.stdout.strip() == "https://hub/me/mine/commit/1" and hub.created == [("me/mine", True)]
    assert hub.files.keys() == planned.keys() and hub.files["README.md"] == CARD
    (model.parent / "recipe.yaml").write_text("")
    assert push(model.parent, "me/mine").exit_code == 0 and hub.files.keys() == planned.keys()  # of a run its student


def answer(status):
    return SimpleNamespace(status_code=status, headers={}, request=None)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (HfHubHTTPError("no", response=answer(403)), "run `hf auth login`"),
        (HfHubHTTPError("full", response=answer(500)), "refuses: full"),
        (LocalTokenNotFoundError("no"), "not logged in"),
        (OSError("no\nroute"), "cannot be reached (no route)"),
    ],
)
def test_a_hub_that_refuses_is_one_line(hub, model, error, said):
    hub.refuses = error
    found = str(push(model, "me/mine").exception)
    assert said in found and "\n" not in found


def test_what_is_no_model_is_not_pushed(hub, model, tmp_path):
    assert "neither a model nor a bundle" in str(push(tmp_path, "me/mine").exception)
    (model / "README.md").unlink()
    assert "no README.md" in str(push(model, "me/mine").exception) and not hub.created
