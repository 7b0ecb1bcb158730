"""Small models that really encode, and the data folder where there is one."""

from pathlib import Path

import places
import pytest
from accuracy_models import WordBag


@pytest.fixture
def bag() -> WordBag:
    return WordBag()


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of test sets: MSDC_DATA, or `shared/data` beside the checkout."""
    return places.data_folder() or pytest.skip("no data folder (MSDC_DATA)")


@pytest.fixture
def graded_rows():
    """Forty pairs whose overlap in words falls with their score, written here for the tests."""
    subjects = ("The cat", "A tall man", "My neighbour", "The old train", "Her sister", "The small boat", "A blue bird",
                "The cook")  # fmt: skip
    ends = ("sleeps on the warm roof", "waits near the station", "sings a quiet song", "looks at the dark sea",
            "moves very slowly")  # fmt: skip
    rows = []
    for row, subject in enumerate(subjects):
        for column, end in enumerate(ends):
            other_subject = subject if (row + column) % 3 else subjects[(row + 3) % len(subjects)]
            other_end = end if (row * column) % 4 else ends[(column + 2) % len(ends)]
            same = (other_subject == subject) + 2 * (other_end == end)
            score = round(same * 1.5 + 0.1 * ((row + column) % 5), 2)
            rows.append((score, f"{subject} {end}.", f"{other_subject} {other_end} today."))
    return rows


@pytest.fixture(scope="session")
def tiny_bundle() -> Path:
    """The tiny student exported for both runtimes without loss."""
    import tiny_models

    return tiny_models.bundle("fp32")
