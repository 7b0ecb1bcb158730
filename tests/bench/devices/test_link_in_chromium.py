"""The link's page in a real Chromium with the screen of a phone, from an origin that is not secure, and its ends."""

import time

import devtools
import pytest
from link_phone import Link, tiny_bundle

from msdc.bench.devices.web import link as links
from msdc.bench.devices.web.browser import ENGINES
from msdc.bench.devices.web.browser import opened as engine_window
from msdc.bench.options import BenchSettings
from msdc.errors import InputError, MsdcError

# An address of this machine that is no secure origin, as phones see it; names are refused (DNS rebinding).
try:
    ADDRESS = links.default_address()
except InputError:
    ADDRESS = "127.0.0.2"
pytestmark = [
    pytest.mark.usefixtures("chromium"),
    pytest.mark.skipif(ADDRESS == "127.0.0.2", reason="this machine has no address but its own loopback"),
]
SETTINGS = BenchSettings(tasks=(), runs=3, warmup=0, lengths=(8,), address=ADDRESS, timeout_s=600)
ENDLESS = SETTINGS.model_copy(update={"runs": 100_000, "warmup": 10_000})
MEASURES = "document.getElementById('progress').value > 0.2"
ENDED = "!document.getElementById('after').hidden || !document.getElementById('failure').hidden"
TEXT = "document.body.innerText"


def opened(browser: devtools.Browser, link: Link, **options) -> devtools.Page:
    """The link's page, not started."""
    page = browser.open(link.link, **options)
    page.wait("!document.getElementById('start').disabled")
    return page


def started(browser: devtools.Browser, link: Link) -> devtools.Page:
    """The link's page while it measures."""
    page = opened(browser, link)
    page.run("document.getElementById('start').click()")
    page.wait(MEASURES)
    return page


def error_of(link: Link) -> str:
    with pytest.raises(MsdcError) as stop:
        link.end()
    assert "\n" not in str(stop.value)
    assert stop.value.exit_code == 1
    return str(stop.value)


def fits(page: devtools.Page) -> bool:
    return page.run("document.documentElement.scrollWidth <= innerWidth")


def test_the_whole_way_from_an_insecure_origin():
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"tasks": ("graded-pairs",)}), name="suggested")
    with devtools.chromium() as browser:
        page = opened(browser, link, slowed=2)
        before = page.run(TEXT)
        assert "tiny" in before
        assert "MB from that computer" in before
        assert fits(page)
        assert page.run("document.getElementById('name').value") == "suggested"
        page.run("document.getElementById('name').value = 'Ada <b>phone</b>', document.getElementById('start').click()")
        page.wait(ENDED)
        shown = page.run(TEXT)
        (run,) = link.end()
        assert "Done. The computer has the result of Ada <b>phone</b>, Chromium" in shown
        assert "8 tokens" in shown
        assert fits(page)
        assert page.run("document.querySelectorAll('#verdict b').length") == 0
    facts = run.browser
    assert facts is not None
    assert facts.engine == "chromium"
    assert facts.worker
    assert not facts.secure_context
    assert not facts.isolated
    assert facts.claimed_memory_gib is None
    assert run.threads == 1
    assert "battery" in run.state_before.unreadable
    assert run.device.name.startswith("Ada <b>phone</b>, Chromium")
    assert run.parity is not None
    assert run.parity.ids_equal
    assert run.parity.min_cosine > 0.999
    assert run.accuracy[0].pairs == 112


@pytest.mark.slow
@pytest.mark.parametrize(
    "lose",
    [lambda page: page.crash(), lambda page: page.browser.process.kill(), lambda page: page.offline()],
    ids=["tab", "browser", "network"],
)
def test_a_page_that_is_lost_may_be_opened_again(lose, capsys):
    # The pause before the second length is the time in which it is lost.
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"lengths": (8, 16), "cooldown_s": 15}), silence_s=5)
    with devtools.chromium() as browser:
        lose(started(browser, link))
        told = ""
        while "fell silent" not in told:
            time.sleep(0.5)
            told += capsys.readouterr().err
    with devtools.chromium() as browser:
        started(browser, link).wait(ENDED)
    assert len(link.end()) == 1


def test_a_noisy_result_waits_for_its_owner(monkeypatch, tmp_path):
    """The name survives a reload; the page offers to measure again or to send."""
    monkeypatch.setattr(links, "NOISY", -1.0)  # every run is noisy
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"runs": 10}), name="suggested")
    with devtools.chromium() as browser:
        page = opened(browser, link)
        page.run("document.getElementById('name').value = 'Ada', document.getElementById('name')"
                 ".dispatchEvent(new Event('input'))")  # fmt: skip
        page.call("Page.reload")
        page.wait("document.readyState === 'complete' && !document.getElementById('start').disabled")
        assert page.run("document.getElementById('name').value") == "Ada"
        page.run("document.getElementById('start').click()")
        for button in ("again", "send"):
            page.wait("!document.getElementById('send').hidden")
            assert "Measure again" in page.run(TEXT)
            assert "differ by" in page.run(TEXT)
            assert fits(page)
            page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
            assert page.contrast("#noisy") >= 4.5
            page.run(f"document.getElementById('{button}').click()")
            page.wait("document.getElementById('send').hidden")
        page.wait(ENDED)
        assert "Done." in page.run(TEXT)
    assert [run.device.name.split(",")[0] for run in link.end()] == ["Ada"]


@pytest.mark.slow
def test_a_network_that_comes_back_in_time():
    # The pause before the second length is the time in which the network is lost.
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"lengths": (8, 16), "cooldown_s": 10}))
    with devtools.chromium() as browser:
        page = started(browser, link)
        page.offline()
        page.wait(f"{TEXT}.includes('cannot be reached; trying again')")
        page.offline(False)
        page.wait(ENDED)
        assert "Done." in page.run(TEXT)
        assert len(link.end()) == 1


@pytest.mark.slow
def test_a_page_that_is_hidden_loaded_again_or_opened_elsewhere_starts_over():
    endless = Link(tiny_bundle(), ENDLESS)
    with devtools.chromium() as browser:
        page = started(browser, endless)
        # Headless pages are never hidden: what the browser would say is said for it.
        page.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true }),"
                 "document.dispatchEvent(new Event('visibilitychange'))")  # fmt: skip
        assert "was not in front" in page.run(TEXT)
        page.run("delete document.hidden, document.getElementById('again').click()")
        page.wait(MEASURES)
        page.call("Page.reload")
        page.wait("document.readyState === 'complete' && !document.getElementById('start').disabled")
        page.run("document.getElementById('start').click()")
        page.wait(MEASURES)
        # The link is started on another device: this one ends.
        number = endless.client.start("Bob")
        page.wait("!document.getElementById('failure').hidden")
        assert "the link was started elsewhere" in page.run(TEXT)
        assert endless.client.post(f"{number}/answer", {"error": "enough"})[0] == 400
        assert "Bob: enough" in error_of(endless)


@pytest.mark.slow
def test_every_installed_engine_from_an_insecure_origin():
    """The page in every browser that `--device browser` knows: the same vectors, bit for bit, and its own name."""
    hashes = []
    for name, engine in ENGINES.items():
        try:
            engine.program()
        except MsdcError:
            continue
        link = Link(tiny_bundle(), SETTINGS, starts=True)
        with engine_window(engine, link.link):
            (run,) = link.end()
        fact = run.browser
        assert fact is not None
        assert fact.engine == name
        assert not fact.secure_context
        assert not fact.isolated
        assert fact.worker
        assert fact.claimed_memory_gib is None
        assert fact.renderer_pss_mib is None
        hashes.append(fact.golden_sha256)
    assert len(set(hashes)) == 1
    if len(hashes) == 1:
        pytest.skip("only Chromium is installed")
