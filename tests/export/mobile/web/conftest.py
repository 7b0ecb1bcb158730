"""Fixtures of the tests of the web module."""

from collections.abc import Iterator
from pathlib import Path

import devtools
import pytest
import tiny_models as tiny
from browser import chromium_or_skip

from msdc.encoders.folder import EncodeDefaults
from msdc.errors import MsdcError
from msdc.export.exporters import write_bundle
from msdc.export.mobile.web import npm
from msdc.export.options import ExportSettings

PROMPTS = {"query": "query: "}


@pytest.fixture(scope="session")
def with_runtime() -> None:
    """Skips where the runtime is not in the cache and cannot be fetched."""
    try:
        npm.runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def web_bundle(with_runtime) -> Path:
    """The tiny student for the web, with the runtime beside it."""
    defaults = EncodeDefaults(prompts=PROMPTS)
    options = ExportSettings(target="web", precision="int8", thresholds=tiny.LOOSE, with_runtime=True)
    return tiny.once(
        "web-bundle",
        lambda out: write_bundle(tiny.student(), tiny.tokenizer(), out, options=options, defaults=defaults),
    )


@pytest.fixture(scope="module")
def chromium() -> Iterator[devtools.Browser]:
    """One Chromium for the pages of a module's tests; skips where there is none."""
    with chromium_or_skip() as opened:
        yield opened
