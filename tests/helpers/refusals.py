"""Errors must be one line."""

import pytest

from msdc.errors import MsdcError


def one_line(attempt) -> str:
    with pytest.raises(MsdcError) as caught:
        attempt()
    text = str(caught.value)
    assert text and "\n" not in text and len(text) < 1500, text
    return text
