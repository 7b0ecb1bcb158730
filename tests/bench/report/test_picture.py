"""The README's picture of a report: whole sections, small, and one line where it cannot be made."""

import pytest
import report_picture
from bench_results import make_file
from browser import CHROMIUM
from PIL import Image

from msdc.bench.report.page import build_report, write_report
from msdc.errors import InputError, MsdcError


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
def test_the_picture_ends_with_a_whole_section(tmp_path):
    page = write_report(build_report(make_file()), tmp_path / "report.html")
    target = report_picture.picture(page, tmp_path / "images" / "report.png", 1200, 1200)
    assert target.stat().st_size <= report_picture.MAX_BYTES
    with Image.open(target) as image:
        assert image.width == 1200
        assert 500 < image.height < 1200
        last = image.convert("RGB").crop((0, image.height - 8, 1200, image.height))
        assert len(last.getcolors()) == 1, "the last rows are empty: no table or figure is cut"


def test_what_cannot_be_made_is_named(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="no such report"):
        report_picture.picture(tmp_path / "none.html", tmp_path / "x.png", 1200, 1000)
    page = write_report(build_report(make_file()), tmp_path / "report.html")
    monkeypatch.setattr("msdc.bench.devices.web.browser.find", lambda name: None)
    with pytest.raises(MsdcError, match="Chromium is not installed"):
        report_picture.picture(page, tmp_path / "x.png", 1200, 1000)
