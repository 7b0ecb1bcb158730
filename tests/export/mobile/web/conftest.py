"""Fixtures of the web module's tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from web_pages import node

from msdc.errors import MsdcError
from msdc.export.mobile.web import transformers_js
from msdc.export.mobile.web.write import SOURCES


@pytest.fixture(scope="session")
def sources(tmp_path_factory) -> Path:
    """The sources as Node reads them."""
    folder = tmp_path_factory.mktemp("sources")
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


@pytest.fixture(scope="session")
def library() -> None:
    """transformers.js can be run."""
    node()
    try:
        transformers_js.runtime_folder(transformers_js.PACKAGE, transformers_js.VERSION, transformers_js.FILES)
    except MsdcError as error:
        pytest.skip(str(error))
