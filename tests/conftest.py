"""Fixtures shared by all tests."""

import gc
import os
import tempfile
from pathlib import Path

import pytest

from msdc.progress import print_messages
from msdc.text import quickstart

# As on the command line; what another program's process gets is tested in children (tests/msdc/test_library.py).
print_messages()
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# A forked child does not collect what its parent left: a destructor may wait for threads that are not in the child.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=gc.freeze)


# Files of 20 s and more, the longest first: with `--no-loadscope-reorder`, pytest-xdist starts them in this order, and
# workers do not wait for a long file at the end.
LONG_FILES = (
    "export/mobile/test_android_module.py", "docs/test_readme.py", "distill/test_run.py",
    "attacks/test_bundle_attacks.py", "export/test_bundle.py", "distill/test_new_language.py",
    "export/mobile/test_react_native.py", "compress/vocabulary/test_add.py", "export/mobile/web/test_bundlers.py",
    "distill/test_student_kinds.py", "bench/devices/test_emulator.py", "export/test_executorch.py",
    "docs/test_types.py", "distill/test_run_lock.py", "export/mobile/web/test_web_module.py",
    "distill/test_catalog_sweep.py", "attacks/test_native_bounds.py", "export/native/test_32_bits.py",
    "docs/test_examples.py", "docs/test_guides.py",
)  # fmt: skip


def pytest_collection_modifyitems(items) -> None:
    """Move the tests of LONG_FILES to the front."""
    folder = Path(__file__).parent
    ranks = {folder / name: rank for rank, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_configure(config) -> None:
    """The folder of `tiny_models`, made here so that all workers of pytest-xdist inherit it."""
    if "MSDC_TESTS_SCRATCH" not in os.environ:
        config.scratch = tempfile.TemporaryDirectory(prefix="msdc-tests-")
        os.environ["MSDC_TESTS_SCRATCH"] = config.scratch.name


def pytest_unconfigure(config) -> None:
    """Only the process that made the folder removes it."""
    if hasattr(config, "scratch"):
        del os.environ["MSDC_TESTS_SCRATCH"]
        config.scratch.cleanup()


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tests run on small machines; one thread each also makes their numbers the same everywhere."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def parallel_tsv() -> Path:
    """The embedded corpus."""
    return quickstart.PARALLEL


@pytest.fixture(scope="session")
def tiny_teacher(tmp_path_factory) -> Path:
    """A tiny stock BERT sentence encoder, random weights, mean pooling, normalised."""
    from stock_models import write_stock

    return write_stock(tmp_path_factory.mktemp("teacher") / "bert", "bert")


@pytest.fixture(scope="session")
def tiny_student() -> Path:
    """The folder of a tiny student of ours."""
    import tiny_models

    return tiny_models.student_folder()


@pytest.fixture(scope="session")
def tiny_bundle() -> Path:
    """The tiny student as an int8 bundle for both runtimes."""
    import tiny_models

    return tiny_models.bundle()


@pytest.fixture(scope="session")
def core_library() -> Path:
    """The native core without a runtime, as a shared library."""
    import native_core

    return native_core.build_core()


@pytest.fixture
def user_folder(tmp_path, monkeypatch) -> Path:
    """The folder of searches in a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/msdc/search"


@pytest.fixture
def tiny_tree(tiny_teacher, tmp_path) -> dict:
    """A recipe as a mapping: four stages, a few steps each, teacher outputs cached inside the test's own folder."""
    import tiny_models

    common = {"batch": 8, "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 4}
    mse, both = "multilingual_mse", ["multilingual_contrastive", "multilingual_mse"]
    stages = [
        {"name": "one", "train": "assistant", "teacher": "teacher", "objective": mse, "steps": 9},
        {"name": "two", "train": "student.embedding", "teacher": "assistant.embedding", "steps": 6,
         "objective": "embedding_alignment", "start": "svd"},
        {"name": "three", "train": "student", "teacher": "assistant", "objective": mse, "steps": 9},
        {"name": "four", "train": "student", "teacher": "teacher", "objective": both, "steps": 9, "source_share": 0.5},
    ]  # fmt: skip
    return tiny_models.recipe(tiny_teacher, tmp_path / "outputs", [stage | common for stage in stages])
