"""The native index and the Python package's, on one file, against a plain dictionary."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import index_states
import native_index
import pytest
from native_index import NativeCore, NativeIndex

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


class BothEngines(index_states.States):
    """Index 0 is the native one, index 1 the Python package's."""

    reports_before_commit = False

    def opened(self, number: int, path: Path) -> Any:
        self.core = NativeCore(native_index.library("system"))
        if number == 1:
            return super().opened(number, path)
        return NativeIndex(self.core, self.model, path, self.folder / "bundles")

    @contextlib.contextmanager
    def full(self, index: Any, spare: int) -> Iterator[None]:
        if not isinstance(index, NativeIndex):
            with super().full(index, spare):
                yield
            return
        self.core.faults(1, 3 * spare)
        try:
            yield
        finally:
            self.core.faults()

    @contextlib.contextmanager
    def blocks_of(self, documents: int) -> Iterator[None]:
        self.core.set_block(documents)
        with super().blocks_of(documents):
            yield
        self.core.set_block(native_index.BLOCK)


class NativeEngine(BothEngines):
    """Both indexes are native ones."""

    def opened(self, number: int, path: Path) -> Any:
        return super().opened(0, path)


def test_both_engines_on_one_file():
    index_states.run(BothEngines, 5)


@pytest.mark.slow
@pytest.mark.parametrize("machine", [BothEngines, NativeEngine])
def test_20_000_steps(machine):
    index_states.run(machine, 400)
