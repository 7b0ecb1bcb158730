"""The picture of a report for the README: the top of the page as Chromium shows it.

    make quickstart
    python benchmarks/report_picture.py runs/quickstart/report.html --write docs/images/report.png

The PNG ends after the last section that fits into --height, and takes at most 200 kB (256 colors if it must).
"""

import argparse
import io
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from PIL import Image

from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MAX_BYTES = 200_000


def browser() -> str:
    """The path of an installed Chromium.

    Raises:
        MsdcError: there is none.
    """
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise MsdcError("no Chromium on the path (on Debian: apt-get install chromium)")
    return found


def _chromium(page: Path, *arguments: str) -> str:
    with tempfile.TemporaryDirectory(prefix="msdc-picture-") as profile:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                 f"--user-data-dir={profile}")  # fmt: skip
        command = [browser(), *flags, *arguments, page.resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise MsdcError(f"Chromium failed: {done.stderr.strip()[-300:]}")
    return done.stdout


# Writes the lower edge of every section into the title of a copy of the page.
MEASURE = """<script>document.title = "edges " + [...document.querySelectorAll("main section")]
.map(e => Math.ceil(e.getBoundingClientRect().bottom)).join(" ")</script></body>"""


def last_edge(page: Path, width: int, height: int) -> int:
    """The lower edge in pixels of the last section that ends within `height`; `height` where none does."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(text.replace("</body>", MEASURE), encoding="utf-8")
        dom = _chromium(copy, f"--window-size={width},{height}", "--dump-dom")
    found = re.search(r"<title>edges ([\d ]+)</title>", dom)
    edges = [int(edge) for edge in found[1].split()] if found else []
    return max((edge for edge in edges if edge <= height), default=height)


def picture(page: Path, target: Path, width: int, height: int) -> Path:
    """Write the picture of `page` to `target`; returns `target`.

    Raises:
        InputError: no such page, or the picture is larger than 200 kB.
        MsdcError: no Chromium, or it failed.
    """
    if not page.is_file():
        raise InputError(f"{page}: no such report; `make quickstart` writes one")
    # Above the rule of the next section.
    cut = last_edge(page, width, height) - 2
    with tempfile.TemporaryDirectory() as folder:
        shot = Path(folder) / "shot.png"
        _chromium(page, f"--window-size={width},{height}", f"--screenshot={shot}")
        with Image.open(shot) as image:
            whole = image.convert("RGB").crop((0, 0, width, cut))
    data = io.BytesIO()
    whole.save(data, format="PNG", optimize=True)
    if data.tell() > MAX_BYTES:
        data = io.BytesIO()
        whole.quantize(256, dither=Image.Dither.NONE).save(data, format="PNG", optimize=True)
    if data.tell() > MAX_BYTES:
        raise InputError(f"the picture has {data.tell()} bytes, more than {MAX_BYTES}: pass a smaller --height")
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(target) as temporary:
        temporary.write_bytes(data.getvalue())
    print(f"{target}: {width} x {cut}, {data.tell()} bytes")
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="report.html of a quickstart run")
    parser.add_argument("--write", type=Path, default=Path("docs/images/report.png"), metavar="FILE")
    parser.add_argument("--width", type=int, default=1200, help="pixels")
    parser.add_argument("--height", type=int, default=1700, help="pixels, at most")
    given = parser.parse_args()
    try:
        picture(given.page, given.write, given.width, given.height)
    except MsdcError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
