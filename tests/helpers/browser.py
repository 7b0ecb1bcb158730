"""Pages laid out by a headless Chromium."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import devtools
import pytest

from msdc.errors import MsdcError

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MEASURED = """(() => {
  const root = document.documentElement, all = [...document.querySelectorAll("body *")];
  const wide = all.filter(e =>
    !e.closest(".scroll, svg, .skip") && e.getBoundingClientRect().right > root.clientWidth + 1)
    .map(e => e.tagName + "." + e.className);
  const texts = [...document.querySelectorAll("svg text")].map(e => e.getBoundingClientRect().height);
  return {
    scroll: root.scrollWidth, client: root.clientWidth, height: root.scrollHeight, wide: wide,
    smallest: Math.min(...texts), sections: [...document.querySelectorAll("main section")].map(e => e.id),
    unnamed: [...document.querySelectorAll("figure > svg")].filter(e => !e.getAttribute("aria-label")).length,
    ground: getComputedStyle(document.body).backgroundColor,
    requests: performance.getEntriesByType("resource").map(e => e.name),
    colors: all.filter(e => e.tagName != "title" &&
      [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())).map(e => {
      const s = getComputedStyle(e);
      return e.namespaceURI.endsWith("svg") ? s.fill : s.color; }),
  };
})()"""


@contextlib.contextmanager
def opened(page: Path, width: int, height: int = 900, *flags: str) -> Iterator[devtools.Page]:
    """A file shown in a window of so many CSS pixels, which may be as narrow as a phone."""
    with devtools.chromium("--hide-scrollbars", *flags) as browser:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        yield browser.open(page.resolve().as_uri(), screen=size)


def dump_dom(page: Path) -> str:
    with opened(page, 1000) as shown:
        return shown.run("document.documentElement.outerHTML")


def screenshot(page: Path, target: Path, width: int, height: int) -> Path:
    with opened(page, width, height) as shown:
        return shown.screenshot(target, full_page=False)


def layout(page: Path, folder: Path, width: int, *flags: str) -> dict:
    """What the browser measured of `page` at `width`."""
    with opened(page, width, 900, *flags) as shown:
        return shown.run(MEASURED)


@contextlib.contextmanager
def chromium_or_skip() -> Iterator[devtools.Browser]:
    """An open Chromium; skips the test where there is none."""
    try:
        devtools.CHROMIUM.program()
    except MsdcError as error:
        pytest.skip(str(error))
    with devtools.chromium() as opened:
        yield opened
