"""The link's page in a real Chromium with the screen of a phone, from an origin that is not secure, and its ends."""

import os
import time
from urllib.parse import urlsplit

import devtools
import pytest
import two_networks
from link_phone import Link, tiny_bundle

from msdc.bench.devices.web import link as links
from msdc.bench.options import BenchSettings
from msdc.bench.result import DeviceRun
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
        while "phone 1 fell silent" not in told:
            time.sleep(0.5)
            told += capsys.readouterr().err
    with devtools.chromium() as browser:
        started(browser, link).wait(ENDED)
    assert len(link.end()) == 1


def test_a_noisy_result_waits_for_its_owner(monkeypatch, tmp_path):
    """The name survives a reload; the page says which phone it is, and offers to measure again or to send."""
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
            assert page.run("document.getElementById('who').textContent").startswith("phone 1: ")
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
def test_a_page_that_is_loaded_again_or_hidden_starts_over():
    link = Link(tiny_bundle(), SETTINGS)
    endless = Link(tiny_bundle(), ENDLESS)
    with devtools.chromium() as browser:
        page = started(browser, endless)
        # Headless pages are never hidden: what the browser would say is said for it.
        page.run("Object.defineProperty(document, 'hidden', { value: true, configurable: true }),"
                 "document.dispatchEvent(new Event('visibilitychange'))")  # fmt: skip
        assert "was not in front" in page.run(TEXT)
        page.run("delete document.hidden, document.getElementById('again').click()")
        page.wait(MEASURES)
        seat = page.run("sessionStorage.getItem('msdc-seat')")
        page.call("Page.reload")
        page.wait("document.readyState === 'complete' && !document.getElementById('start').disabled")
        page.run("document.getElementById('start').click()")
        page.wait(MEASURES)
        assert page.run("sessionStorage.getItem('msdc-seat')") == seat
        second = opened(browser, link)
        second.run("document.getElementById('start').click()")
        second.wait(ENDED)
        assert len(link.end()) == 1
        assert endless.client.post(f"{seat}/answer", {"error": "enough"})[0] == 400
        assert "enough" in error_of(endless)


@pytest.mark.slow
def test_tls_makes_a_secure_context_with_threads():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: no second thread")
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"tls": True, "threads": 2}))
    with devtools.chromium("--ignore-certificate-errors") as browser:
        page = opened(browser, link)
        page.run("document.getElementById('start').click()")
        page.wait(ENDED)
        assert "Done." in page.run(TEXT)
        (run,) = link.end()
    assert run.browser is not None
    assert run.browser.secure_context
    assert run.browser.isolated
    assert run.threads == 2
    assert run.browser.version is not None
    assert run.browser.version.count(".") == 3


@pytest.mark.slow
def test_two_machines_on_a_network():
    """Computer and phone in networks of their own with a cable between them; the default address; a pulled cable."""
    outcome = two_networks.run("cable")
    if "skip" in outcome:
        pytest.skip(outcome["skip"])
    assert urlsplit(outcome["link"]).hostname == two_networks.COMPUTER
    run = DeviceRun.model_validate(outcome["run"])
    assert run.browser is not None
    assert not run.browser.secure_context
    assert run.parity is not None
    assert run.parity.ids_equal
    assert "fell silent" in outcome["lost"]


@pytest.mark.slow
def test_every_installed_engine_from_an_insecure_origin():
    """The page in every browser that `--device browser` knows: the same vectors, bit for bit, and its own name."""
    outcomes = two_networks.run("engines")
    if "skip" in outcomes:
        pytest.skip(outcomes["skip"])
    runs = {name: DeviceRun.model_validate(raw) for name, raw in outcomes.items() if "skip" not in raw}
    assert "chromium" in runs
    facts = {name: run.browser for name, run in runs.items()}
    for name, fact in facts.items():
        assert fact is not None
        assert fact.engine == name
        assert not fact.secure_context
        assert not fact.isolated
        assert fact.worker
        assert fact.claimed_memory_gib is None
        assert fact.renderer_pss_mib is None
    assert len({fact.golden_sha256 for fact in facts.values() if fact is not None}) == 1
    if len(runs) == 1:
        pytest.skip("only Chromium is installed")
