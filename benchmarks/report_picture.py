"""The picture of a report for the README: the top of the page as Chromium renders it.

    make quickstart
    python benchmarks/report_picture.py runs/quickstart/report.html --write docs/images/report.png

The PNG ends after the last open section that fits into --height, and takes at most 200 kB in 256 colors.
"""

import argparse
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from results_page import ROOT

from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path

sys.path.insert(0, str(ROOT / "tests" / "helpers"))

MAX_BYTES = 200_000
MARGIN = 20  # pixels below the section, which are empty
EDGES = """[...document.querySelectorAll("main section:not(.folded)")]
  .map(e => Math.ceil(e.getBoundingClientRect().bottom))"""


def picture(page: Path, target: Path, width: int, height: int) -> Path:
    """Write the picture of `page` to `target`; returns `target`.

    Raises:
        InputError: no such page, or the picture is larger than 200 kB.
        MsdcError: no Chromium.
    """
    from browser import opened  # type: ignore[attr-defined]  # of tests/helpers

    if not page.is_file():
        raise InputError(f"{page}: no such report; `make quickstart` writes one")
    with tempfile.TemporaryDirectory() as folder, opened(page, width, height) as shown:
        # The last open section that ends within the height, above the rule of the next one.
        cut = max((edge for edge in shown.run(EDGES) if edge + MARGIN <= height), default=height - MARGIN) + MARGIN
        with Image.open(shown.screenshot(Path(folder) / "shot.png", full_page=False)) as image:
            screenshot = image.convert("RGB").crop((0, 0, width, cut))
    data = io.BytesIO()
    screenshot.quantize(256, dither=Image.Dither.NONE).save(data, format="PNG", optimize=True)
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
    options = parser.parse_args()
    try:
        picture(options.page, options.write, options.width, options.height)
    except MsdcError as error:
        raise SystemExit(f"error: {error}") from error


if __name__ == "__main__":
    main()
