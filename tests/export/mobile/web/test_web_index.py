"""The search index of the web module in Node: the state machine of the Python package's, and queries of all kinds."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import index_states
import phone_search
import pytest
import tiny_models as tiny
from hostile_inputs import utf16
from native_index import same_hits
from programs import node, run
from web_index import NodeModule, WebIndex

import msdc
from msdc.errors import MsdcError
from msdc.export.mobile.web import wasm
from msdc.search.index import Index

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.fixture(scope="module", autouse=True)
def built() -> Path:
    """search.wasm; skips where it cannot be built."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed: apt-get install nodejs")
    try:
        return wasm.core_wasm(wasm.SEARCH)
    except MsdcError as error:
        pytest.skip(str(error))


class WebStates(index_states.States):
    """Index 0 is the web module's, index 1 the Python package's."""

    reports_before_commit = False
    module: NodeModule | None = None

    def opened(self, number: int, path: Path) -> Any:
        if self.module is None:
            self.module = NodeModule(self.folder / "module")
        return super().opened(1, path) if number == 1 else WebIndex(self.module, self.model, path)

    @contextlib.contextmanager
    def full(self, index: Any, spare: int) -> Iterator[None]:
        if isinstance(index, WebIndex):  # it has no disk
            yield
            return
        with super().full(index, spare):
            yield

    def teardown(self) -> None:
        super().teardown()
        self.module.close()


def test_states():
    index_states.run(WebStates, 4, 30)


@pytest.mark.slow
def test_many_states():
    index_states.run(WebStates, 200)


def in_units(hit: Any) -> Any:
    """A hit with offsets in UTF-16 units."""

    def units(end: int) -> int:
        return len(utf16(hit.text[:end])) // 4

    matches = tuple((units(start), units(end)) for start, end in hit.matches)
    return dataclasses.replace(hit, start=units(hit.start), end=units(hit.end), matches=matches)


def test_queries_of_all_kinds(tmp_path):
    model = msdc.load_encoder(tiny.student_folder(3))
    module = NodeModule(tmp_path / "module")
    web, oracle = WebIndex(module, model, tmp_path / "web.sqlite"), Index(model, tmp_path / "python.sqlite")
    assert web.add(phone_search.DOCUMENTS) == oracle.add(phone_search.DOCUMENTS)
    exchanged = WebIndex(module, model, oracle.path)
    for question in phone_search.QUERIES:
        expected = [in_units(hit) for hit in phone_search.answer(oracle, *question)]
        for index in (web, exchanged):
            assert same_hits(expected, phone_search.answer(index, *question)), question
    for index in (web, exchanged, oracle):
        index.close()
    module.close()


def test_errors_leave_no_memory(tmp_path):
    """A thousand refused calls of one index: its memory stays as it is."""
    module = NodeModule(tmp_path / "module")
    script = tmp_path / "module/errors.js"
    script.write_text("""
const memories = [], instantiate = WebAssembly.instantiate;
WebAssembly.instantiate = async (...values) => {
  const instance = await instantiate(...values);
  memories.push(instance.exports.memory);
  return instance;
};
const { openIndex } = await import("./search.js");
const index = await openIndex(null, null), sizes = [];
for (let count = 0; count < 3000; ++count) {
  if (count % 1000 === 500) sizes.push(memories[0].buffer.byteLength);
  await index.search("a".repeat(5000), { top: 0 }).catch(() => {});
  await index.remove(["b".repeat(5000), "\\0"]).catch(() => {});
}
console.log(JSON.stringify(sizes));
""")
    sizes = json.loads(run(node(), script))
    assert len({*sizes}) == 1, sizes
    module.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_equal_sources_give_equal_bytes(tmp_path):
    wasm.build(tmp_path)
    for name in wasm.CALLS:
        assert (tmp_path / name).read_bytes() == wasm.core_wasm(name).read_bytes()
