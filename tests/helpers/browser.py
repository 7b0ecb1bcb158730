"""Pages laid out by a headless Chromium."""

import html
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
    "--virtual-time-budget=4000",
)  # fmt: skip


def chromium(*arguments: str) -> str:
    """Standard output of one run with a fresh profile."""
    with tempfile.TemporaryDirectory(prefix="msdc-chromium-") as profile:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    return done.stdout


def dump_dom(page: Path) -> str:
    return chromium("--dump-dom", page.as_uri())


def screenshot(page: Path, target: Path, width: int, height: int) -> Path:
    chromium(f"--window-size={width},{height}", f"--screenshot={target}", page.as_uri())
    return target


# A browser window has a minimum width; a frame can be as narrow as a phone.
FRAME = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" style="border:0;width:{width}px;height:{height}px" srcdoc="{page}"></iframe>
<script>
frame.onload = () => {{
  const page = frame.contentDocument, root = page.documentElement;
  const wide = [...page.querySelectorAll("body *")].filter(e =>
    !e.closest(".scroll, svg, .skip") && e.getBoundingClientRect().right > root.clientWidth + 1)
    .map(e => e.tagName + "." + e.className);
  const texts = [...page.querySelectorAll("svg text")].map(e => e.getBoundingClientRect().height);
  const found = {{
    scroll: root.scrollWidth, client: root.clientWidth, height: root.scrollHeight, wide: wide,
    smallest: Math.min(...texts), sections: [...page.querySelectorAll("main section")].map(e => e.id),
    unnamed: [...page.querySelectorAll("figure > svg")].filter(e => !e.getAttribute("aria-label")).length,
    ground: frame.contentWindow.getComputedStyle(page.body).backgroundColor,
    requests: frame.contentWindow.performance.getEntriesByType("resource").map(e => e.name),
    colors: [...page.querySelectorAll("body *")].filter(e => e.tagName != "title" &&
      [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim())).map(e => {{
      const s = frame.contentWindow.getComputedStyle(e);
      return e.namespaceURI.endsWith("svg") ? s.fill : s.color; }}),
  }};
  document.body.insertAdjacentHTML("beforeend", "<pre id=answer></pre>");
  answer.textContent = JSON.stringify(found);
}};
</script>"""


def framed(page: Path, folder: Path, width: int, height: int = 900) -> Path:
    """A page that shows `page` in a frame of `width` CSS pixels and writes its measurements into itself."""
    target = folder / f"frame-{width}.html"
    text = html.escape(page.read_text(encoding="utf-8"), quote=True)
    target.write_text(FRAME.format(width=width, height=height, page=text), encoding="utf-8")
    return target


def layout(page: Path, folder: Path, width: int, *flags: str) -> dict:
    """What the browser measured of `page` at `width`."""
    dom = chromium("--dump-dom", *flags, framed(page, folder, width).as_uri())
    found = re.search(r'<pre id="answer">(.*?)</pre>', dom, re.S)
    assert found, dom[-400:]
    return json.loads(html.unescape(found.group(1)))
