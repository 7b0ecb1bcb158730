"""Fixtures of the web module's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from msdc.export.mobile.web.write import SOURCES


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Path:
    """The sources as Node reads them."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder
