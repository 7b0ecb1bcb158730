"""The notes app of examples/web, built with its own commands and used in Chromium."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import devtools
import pytest
from browser import chromium_or_skip
from example_apps import copy_example, npm_run
from web_pages import Reply, Site, site

from msdc.errors import MsdcError
from msdc.export import export
from msdc.export.mobile.web import npm

NOTES = [
    "The car is on level 2 of the parking garage",
    "La reunión del lunes empieza a las nueve",
    "Apfelkuchen: fünfzig Minuten backen",
    "Le chat doit aller chez le vétérinaire mardi",
]
SEARCH_BOX = "document.querySelector('[type=search]')"
TEXTS = "[...document.querySelectorAll('li p')].map((line) => line.textContent)"


def build(app: Path, model: str) -> Path:
    """The app's `dist` with a shipped model."""
    export(model, target="web", output=app / "public/model", with_runtime=True, force=True)
    npm_run(app, "ci", "--no-audit", "--no-fund")
    npm_run(app, "run", "build")
    return app / "dist"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The app with msdc-mini, built."""
    try:
        npm.runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))
    app = copy_example("web", tmp_path_factory.mktemp("app"))
    build(app, "msdc-mini")
    return app


@contextlib.contextmanager
def served(dist: Path) -> Iterator[Site]:
    with site(app=dist) as opened:
        html = {"Content-Type": "text/html; charset=utf-8"}
        opened.reply = lambda name, query, headers: (
            Reply(200, (opened.folders["app"] / "index.html").read_bytes(), html) if name == "app/" else None
        )
        yield opened


@pytest.fixture
def chromium() -> Iterator[devtools.Browser]:
    with chromium_or_skip() as opened:
        yield opened


class App:
    """A tab with the app, used as a person would."""

    def __init__(self, browser: devtools.Browser, url: str) -> None:
        self.page = browser.open(url)
        self.wait(SEARCH_BOX)

    def wait(self, script: str) -> None:
        self.page.wait(f"!!({script})", 120)

    def write(self, field: str, text: str) -> None:
        """Type into a field, in place of what it has."""
        self.page.run(f"(() => {{ const field = document.querySelector({json.dumps(field)}); field.focus(); "
                      "field.select(); })()")  # fmt: skip
        if text:
            self.page.call("Input.insertText", text=text)
        else:
            self.page.run("document.execCommand('delete')")

    def press(self, label: str, number: int = 0) -> None:
        self.page.run(f"[...document.querySelectorAll('button')].filter((button) => "
                      f"button.textContent === {json.dumps(label)})[{number}].click()")  # fmt: skip

    def add(self, text: str) -> None:
        self.write("[aria-label='New note']", text)
        self.press("Save")
        self.wait(f"{TEXTS}.includes({json.dumps(text)})")

    def first_is(self, text: str) -> None:
        self.wait(f"{TEXTS}[0] === {json.dumps(text)}")

    def reload(self) -> None:
        # By way of another page: none of the former one is left that could be taken for the new one.
        url = self.page.run("location.href")
        for address, condition in (("about:blank", "location.href === 'about:blank'"), (url, SEARCH_BOX)):
            self.page.call("Page.navigate", url=address)
            self.wait(condition)


def test_notes(folder, chromium):
    with served(folder / "dist") as opened:
        app = App(chromium, opened.url("app/"))
        app.wait("document.querySelector('[role=status]').textContent === 'No notes yet'")
        for note in NOTES:
            app.add(note)
        assert app.page.run(TEXTS) == NOTES[::-1]
        # As one types, and in another language than the note.
        app.write("[type=search]", "Wo habe ich das Auto geparkt?")
        app.first_is(NOTES[0])
        app.write("[type=search]", "chat vét")
        app.first_is(NOTES[3])
        assert app.page.run("[...document.querySelectorAll('mark')].map((mark) => mark.textContent)") == [
            "chat", "vétérinaire"]  # fmt: skip
        app.write("[type=search]", "lattice quantum chromodynamics")
        app.wait("document.querySelector('[role=status]')?.textContent === 'Nothing relevant'")
        app.write("[type=search]", "")
        app.first_is(NOTES[3])
        app.press("Edit", 2)
        changed = NOTES[1].replace("nueve", "diez")
        app.write("[aria-label=Note]", changed)
        app.press("Save", 1)
        app.wait(f"{TEXTS}.includes({json.dumps(changed)}) && !{TEXTS}.includes({json.dumps(NOTES[1])})")
        app.page.run("navigator.serviceWorker.ready.then(() => true)")
        app.reload()
        app.write("[type=search]", "When does the meeting start?")
        app.first_is(changed)
    # The server has ended.
    app.reload()
    app.write("[type=search]", "Wo habe ich das Auto geparkt?")
    app.first_is(NOTES[0])
    app.press("Delete")
    app.wait(f"!{TEXTS}.includes({json.dumps(NOTES[0])})")
    app.reload()
    app.wait(f"{TEXTS}.length === 3")
    assert app.page.run("document.querySelector('[role=alert]')") is None
    assert app.page.run("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert app.page.run("document.querySelector('[type=search]').offsetWidth") > 300  # styled


def test_a_build_with_another_model(folder, chromium, tmp_path):
    """Notes are encoded again, once the former build's tabs are closed."""
    other = shutil.copytree(folder, tmp_path / "other", symlinks=True)
    with served(folder / "dist") as opened:
        app = App(chromium, opened.url("app/"))
        for note in NOTES:
            app.add(note)
        app.page.run("navigator.serviceWorker.ready.then(() => true)")
        opened.folders["app"] = build(other, "msdc-nano")
        app.reload()
        app.page.wait("navigator.serviceWorker.ready.then((registration) => !!registration.waiting)")
        app.write("[type=search]", "Wo habe ich das Auto geparkt?")
        app.first_is(NOTES[0])
        # The browser may take a moment after the last page of the former build.
        for _ in range(20):
            app.reload()
            if (downloads := opened.asked.count("app/model/model.onnx.data")) == 2:
                break
        assert downloads == 2
        app.write("[type=search]", "Apfelkuchen")
        app.first_is(NOTES[2])
    app.reload()
    app.write("[type=search]", "Apfelkuchen")
    app.first_is(NOTES[2])
    assert app.page.run("document.querySelector('[role=alert]')") is None
