"""The core over the system's SQLite, and a tiny model; a file may have its own."""

import native_index
import pytest
import tiny_models as tiny
from native_index import NativeCore

import msdc


@pytest.fixture(scope="module")
def core():
    return NativeCore(native_index.library("system"))


@pytest.fixture(scope="module")
def model():
    return msdc.load_encoder(tiny.student_folder(3))
