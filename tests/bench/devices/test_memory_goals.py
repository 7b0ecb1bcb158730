"""Memory goals of the MiniLM-shaped int8 student on an emulated phone with 256 MB. Minutes: `pytest -m slow`."""

from __future__ import annotations

import pytest
from devices import ANON_GOAL_MIB, PEAK_GOAL_MIB, PHONE_MIB, STYLES, on_host, on_phone, student_bundle

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=STYLES)
def bundle(request, tmp_path_factory):
    return student_bundle(tmp_path_factory.mktemp("student"), request.param)


def check(run) -> None:
    warm = run.memory.warm
    assert warm.vmhwm_mib <= PEAK_GOAL_MIB, warm
    assert warm.anon_mib <= ANON_GOAL_MIB, warm
    assert run.parity.min_cosine >= 0.999 and run.parity.ids_equal
    assert run.harness == "native"


def test_on_this_machine(bundle):
    check(on_host(bundle))


def test_on_a_phone_of_256_mb(bundle, emulator_image):
    run = on_phone(bundle)
    assert run.device.memory_mib < PHONE_MIB
    check(run)
