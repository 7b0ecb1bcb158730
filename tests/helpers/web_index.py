"""The search index of the web module in Node, with the methods of the Python package's: for the same tests.

It is in memory there: before each call it is opened again if its file has changed, and what it writes goes into the
file. Texts are encoded by a model of the Python package.
"""

import base64
import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

from native_core import write_piece_bundle
from native_index import as_hit
from programs import node

from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError, OtherModel
from msdc.export.mobile.web.wasm import SEARCH, core_wasm
from msdc.export.mobile.web.write import TEMPLATE, module_source
from msdc.search.documents import Document, SearchResult

SCRIPT = Path(__file__).resolve().parents[1] / "export/mobile/web/index.mjs"


def for_page(value: Any) -> Any:
    """A filter as JavaScript takes it: an object for bounds."""
    if isinstance(value, dict):
        return {name: for_page(member) for name, member in value.items()}
    if isinstance(value, tuple):
        return dict(zip(("least", "most"), value, strict=True))
    return [for_page(member) for member in value] if isinstance(value, list) else value


def content_of(path: Path) -> bytes:
    """What a file and its log hold; nothing where there is no file."""
    if not path.exists() or not path.stat().st_size:
        return b""
    try:
        with closing(sqlite3.connect(path)) as db:
            return db.serialize()
    except sqlite3.OperationalError:  # damaged
        return path.read_bytes()


class NodeModule:
    """The module's files in a folder, and a Node process that runs them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(TEMPLATE / "search.js", folder / "search.js")
        shutil.copyfile(core_wasm(SEARCH), folder / SEARCH)
        (folder / "msdc.js").write_text(module_source(), encoding="utf-8")
        (folder / "package.json").write_text('{"type": "module"}')
        self.folder, self.numbers, self.models = folder, count(), dict[str, tuple[SentenceEncoder, dict]]()
        self.process = subprocess.Popen(
            [node(), str(SCRIPT), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        self.process.communicate()

    def model(self, model: SentenceEncoder | None) -> dict | None:
        """A model as the script takes it: its source, and the folder of its manifest and tokenizer."""
        if model is None:
            return None
        if model.source not in self.models:
            cosines = model.cosines()
            folder = self.folder / model.source[:12]
            write_piece_bundle(
                folder, model.tokenizer.path.read_bytes(), width=model.width, max_length=model.max_length,
                name=model.name, model={"source_sha256": model.source},
                cosines=None if cosines is None else dict(zip(("mean", "deviation"), cosines, strict=True)),
            )  # fmt: skip
            files = [path.name for path in folder.iterdir()]
            self.models[model.source] = model, {"source": model.source, "folder": str(folder), "files": files}
        return self.models[model.source][1]

    def call(self, *request: object, progress: Callable[[int, int], None] | None = None) -> Any:
        """The value of a request; an interruption by `progress` ends it at the next texts."""
        message, interruption = {}, None
        self._tell(request)
        while "value" not in message and "error" not in message:
            message = json.loads(self.process.stdout.readline())
            if "encode" in message:
                rows = [] if interruption else self.models[message["source"]][0].encode(message["encode"]).tolist()
                self._tell(None if interruption else rows)
            elif "progress" in message and progress is not None:
                try:
                    progress(**message["progress"])
                except KeyboardInterrupt as error:
                    interruption = error
        if interruption:
            raise interruption
        if "error" in message:
            name, line = message["error"]["name"], message["error"]["message"]
            assert name in ("OtherModel", "Damaged", "EncoderError", "RangeError", "TypeError"), message
            raise (OtherModel if name == "OtherModel" else InputError)(line)
        return message["value"]

    def _tell(self, value: object) -> None:
        self.process.stdin.write(json.dumps(value) + "\n")
        self.process.stdin.flush()


class WebIndex:
    """`msdc.search.index.Index` in Node, on a file."""

    def __init__(self, module: NodeModule, model: SentenceEncoder, path: Path) -> None:
        self.module, self.model, self.path = module, model, path
        self.number: int | None = None
        self._content = b""
        self._other: OtherModel | None = None
        self._open()
        if self._other:
            raise self._other

    def __enter__(self) -> "WebIndex":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.number is not None:
            self.module.call(self.number, "close")
            self.number = None

    def _open(self) -> None:
        self.close()
        self._content, self._other = content_of(self.path), None
        file = self.module.folder / "content.sqlite"
        file.write_bytes(self._content)
        number = next(self.module.numbers)
        try:
            self.module.call(number, "open", str(file), self.module.model(self.model), True)
        except OtherModel as error:
            self._other = error
            self.module.call(number, "open", str(file), None, True)
        self.number = number

    def _call(self, method: str, *values: object, needs_model: bool = False, **options: Any) -> Any:
        if content_of(self.path) != self._content:
            self._open()
        if needs_model and self._other:
            raise self._other
        return self.module.call(self.number, method, *values, **options)

    def _write(self, method: str, *values: object, **options: Any) -> Any:
        try:
            return self._call(method, *values, **options)
        finally:
            self._store(self.path)

    def _store(self, path: Path) -> None:
        content = base64.b64decode(self.module.call(self.number, "bytes"))
        if not content:
            return
        with closing(sqlite3.connect(":memory:")) as memory, closing(sqlite3.connect(path)) as file:
            memory.deserialize(content)
            memory.backup(file)
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if path == self.path:
            self._content = content_of(path)

    def __len__(self) -> int:
        return self._call("length")

    @property
    def unread(self) -> int:
        """Read from the file: the module does not count them."""
        if not len(self):
            return 0
        with closing(sqlite3.connect(self.path)) as db:
            read = "SELECT document FROM passages WHERE block IS NOT NULL"
            return db.execute(f"SELECT count(*) FROM documents WHERE id NOT IN ({read})").fetchone()[0]

    def ids(self) -> list[str]:
        return self._call("ids")

    def get(self, key: str) -> Document | None:
        row = self._call("get", key)
        if row is None:
            return None
        fields = {name: row.pop(name) for name in ("id", "text", "title")}
        return Document(**fields, metadata=json.dumps(row))

    def add(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        return self._write("add", list(rows), needs_model=True)

    def update(self, rows: Iterable[str | Mapping[str, object]]) -> int:
        return self._write("update", list(rows), needs_model=True)

    def remove(self, ids: Iterable[str]) -> int:
        return self._write("remove", list(ids))

    def rebuild(self, model: SentenceEncoder, progress: Callable[[int, int], None] | None = None) -> int:
        count_rebuilt = self._write("rebuild", self.module.model(model), progress=progress)
        self.model, self._other = model, None
        return count_rebuilt

    def search(self, query: str, top: int = 5, where: Any = None, **options: object) -> SearchResult:
        return self._hits("search", query, top, where, options, needs_model=options.get("mode") != "words")

    def similar(self, key: str, top: int = 5, where: Any = None, **options: object) -> SearchResult:
        return self._hits("similar", key, top, where, options, needs_model=False)

    def _hits(
        self, method: str, query: str, top: int, where: Any, options: dict[str, object], needs_model: bool
    ) -> SearchResult:
        request = {"top": top, "where": for_page(where or {}), **options}
        request["groupSize"] = request.pop("group_size", 1)
        request["boost"] = [(for_page(part), bonus) for part, bonus in options.get("boost", [])]  # type: ignore[attr-defined]
        rows = self._call(method, query, request, needs_model=needs_model)
        for row in rows:
            del row["passage"]
            row["metadata"] = json.dumps(row["metadata"])
        return SearchResult(query, [as_hit(row) for row in rows], 0, 0)

    def check(self) -> None:
        self._call("check")

    def compact(self) -> None:
        self._write("compact")

    def backup(self, path: Path) -> None:
        self._call("length")
        self._store(path)
