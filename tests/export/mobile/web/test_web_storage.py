"""An index that lasts in a browser: tabs of one origin share it, take it over, and lose nothing that was written."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from web_pages import Site, site

HERE = Path(__file__).parent
NAMES = iter(range(10**6))


@pytest.fixture(scope="module")
def served(web_bundle) -> Iterator[Site]:
    with site(page=HERE, bundle=web_bundle) as opened:
        yield opened


class Tab:
    """A tab with the index `name` open."""

    def __init__(self, browser: Any, served: Site, name: str | None = None, **options: Any) -> None:
        self.page = browser.open(served.url("page/storage.html"))
        self.page.wait("globalThis.loaded")
        if name is not None:
            assert self.call("open", name, options) == {"value": ["file", None]}

    def call(self, function: str, *values: Any) -> dict[str, Any]:
        return self.page.run(f"{function}({', '.join(map(json.dumps, values))})")

    def run(self, method: str, *values: Any) -> Any:
        answer = self.call("run", method, *values)
        assert "error" not in answer, answer
        return answer["value"]

    def close(self) -> None:
        self.page.call("Page.close")


@pytest.fixture
def name() -> str:
    return f"notes {next(NAMES)}/é"


def test_tabs_share_an_index_which_outlives_them(chromium, served, name):
    first, second = (Tab(chromium, served, name) for _ in range(2))
    assert first.run("add", [{"id": "a", "text": "The car is on level 2.", "year": 2026}, "Buy milk"]) == 2
    assert second.run("count") == 2
    assert second.run("search", "milk", {"mode": "words"})[0]["text"] == "Buy milk"
    assert second.run("update", [{"id": "a", "text": "The car is on level 3."}]) == 1
    assert first.run("get", "a")["text"] == "The car is on level 3."
    assert second.run("remove", ["a", "x"]) == 1
    # One of them is loaded again, then both are closed.
    first.page.call("Page.reload")
    first.page.wait("globalThis.loaded && !globalThis.index")
    assert first.call("open", name)["value"][0] == "file"
    assert first.run("ids") == second.run("ids")
    first.run("close")
    assert second.run("count") == 1
    first.close()
    second.close()
    third = Tab(chromium, served, name)
    assert third.run("count") == 1
    third.run("check")
    third.close()


@pytest.mark.parametrize("end", ["close", "crash", "reload"])
def test_a_tab_takes_over_and_every_document_is_there(chromium, served, name, end):
    first, second = (Tab(chromium, served, name) for _ in range(2))
    first.call("fill", "a", 20)
    second.call("fill", "b", 6)
    first.page.wait("written >= 768")
    second.page.wait("written >= 256")
    if end == "crash":
        first.page.crash()
    else:
        first.page.call(f"Page.{end}")
    second.page.wait("filled !== null")
    assert second.page.run("filled") == {"value": 6 * 256}
    ids = second.run("ids")
    assert {f"b{row}" for row in range(6 * 256)} <= {*ids}
    written = {key for key in ids if key.startswith("a")}
    assert len(written) >= 768
    assert len(written) % 256 == 0
    second.run("check")
    second.close()


def test_two_tabs_add_at_once(chromium, served, name):
    tabs = [Tab(chromium, served, name) for _ in range(2)]
    for tab, prefix in zip(tabs, "ab", strict=True):
        tab.call("fill", prefix, 4)
    for tab in tabs:
        tab.page.wait("filled !== null")
        assert tab.page.run("filled") == {"value": 1024}
    assert tabs[0].run("count") == tabs[1].run("count") == 2048
    answer = tabs[1].call("run", "add", [{"id": "a1", "text": "again"}])
    assert "a document 'a1' exists already" in answer["error"]
    for tab in tabs:
        tab.close()


def test_a_full_disk_and_a_damaged_file(chromium, served, name):
    tab = Tab(chromium, served, name)
    tab.run("add", [{"id": "a", "text": "The first."}])
    origin = served.url("").rstrip("/")
    tab.page.call("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=200_000)
    tab.call("fill", "many", 20)
    tab.page.wait("filled !== null")
    answer = tab.page.run("filled")
    tab.page.call("Storage.overrideQuotaForOrigin", origin=origin)
    assert answer["kind"] == "Full", answer
    assert tab.run("count") % 256 == 1
    assert tab.run("add", [{"id": "b", "text": "There is room again."}]) == 1
    tab.run("check")
    tab.run("close")
    spoil = f"""(async () => {{
      const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("msdc-indexes");
      const file = await folder.getFileHandle(encodeURIComponent({json.dumps(name)}) + ".sqlite");
      const writer = await file.createWritable({{ keepExistingData: true }});
      await writer.write({{ type: "write", position: 0, data: new Uint8Array(4096).fill(7) }});
      await writer.close();
    }})()"""
    tab.page.run(spoil)
    answer = tab.call("open", name)
    assert answer["kind"] == "Damaged", answer
    assert "\n" not in answer["error"]
    assert tab.page.run(f"search.deleteIndex({json.dumps(name)}).then(() => 'deleted')") == "deleted"
    assert tab.call("open", name) == {"value": ["file", None]}
    assert tab.run("count") == 0
    assert "a tab has it open" in tab.page.run(
        f"search.deleteIndex({json.dumps(name)}).catch((error) => error.message)"
    )
    tab.close()


def test_without_storage_it_is_in_memory_and_says_so(chromium, served, name):
    tab = Tab(chromium, served)
    tab.page.run("StorageManager.prototype.getDirectory = undefined")
    storage, reason = tab.call("open", name)["value"]
    assert (storage, reason) == ("memory", "no file system of the origin (https and localhost have one)")
    assert tab.run("add", ["Buy milk"]) == 1
    tab.close()
    assert "1 to 100 characters" in Tab(chromium, served).call("open", "")["error"]


def test_a_service_worker_reads_a_copy(chromium, served, name):
    tab = Tab(chromium, served, name)
    tab.run("add", [{"id": "a", "text": "Buy milk"}])
    asked = """(async () => {
      const options = { type: "module", scope: "/page/none/" };
      const worker = await navigator.serviceWorker.register("/page/storage_worker.js", options);
      const active = worker.active ?? worker.waiting ?? worker.installing;
      const { port1, port2 } = new MessageChannel(), answer = new Promise((resolve) => (port1.onmessage = resolve));
      active.postMessage(NAME, [port2]);
      return (await answer).data;
    })()"""
    answer = tab.page.run(asked.replace("NAME", json.dumps(name)))
    assert answer.pop("refused", "").startswith("ReadOnly: "), answer
    assert answer == {"storage": "copy", "ids": ["a"], "found": 1}
    answer = tab.page.run(asked.replace("NAME", json.dumps("absent")))
    assert answer == {"error": "EncoderError: absent: no such index"}
    tab.close()


class SharedStates(RuleBasedStateMachine):
    """Two tabs and a dictionary; a tab is closed, or loaded again, at any time."""

    browser: Any = None
    served: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.name, self.texts = f"states {next(NAMES)}", dict[str, str]()
        self.tabs = [Tab(self.browser, self.served, self.name) for _ in range(2)]

    @rule(
        tab=st.integers(0, 1),
        rows=st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["one cat", "two dogs", "a bird"]), min_size=1),
    )
    def update(self, tab, rows):
        assert self.tabs[tab].run("update", [{"id": key, "text": text} for key, text in rows.items()]) == len(rows)
        self.texts |= rows

    @rule(tab=st.integers(0, 1), keys=st.sets(st.sampled_from("abcdef"), min_size=1))
    def remove(self, tab, keys):
        assert self.tabs[tab].run("remove", sorted(keys)) == len(keys & {*self.texts})
        self.texts = {key: text for key, text in self.texts.items() if key not in keys}

    @rule(tab=st.integers(0, 1))
    def compare(self, tab):
        page = self.tabs[tab]
        assert {key: page.run("get", key)["text"] for key in page.run("ids")} == self.texts
        hits = page.run("search", "cat", {"mode": "words", "distinct": False, "top": 10})
        assert {hit["id"] for hit in hits} == {key for key, text in self.texts.items() if "cat" in text}

    @rule(tab=st.integers(0, 1), crashes=st.booleans())
    def replace(self, tab, crashes):
        if crashes:
            self.tabs[tab].page.crash()
        else:
            self.tabs[tab].close()
        self.tabs[tab] = Tab(self.browser, self.served, self.name)

    @rule(tab=st.integers(0, 1))
    def compact(self, tab):
        self.tabs[tab].run("compact")
        self.tabs[tab].run("check")

    def teardown(self) -> None:
        for tab in self.tabs:
            tab.close()


@pytest.mark.parametrize("examples", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_states(chromium, served, examples):
    SharedStates.browser, SharedStates.served = chromium, served
    limits = settings(max_examples=examples, stateful_step_count=12, deadline=None, derandomize=True, database=None,
                      suppress_health_check=[*HealthCheck])  # fmt: skip
    run_state_machine_as_test(SharedStates, settings=limits)
