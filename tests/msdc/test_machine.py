"""What msdc knows about this machine, and about machines that it is not."""

import os

import psutil
import pytest
from programs import python

from msdc import machine
from msdc.errors import InputError

# Lines as macOS prints them (`sysctl machdep.cpu hw.optional`).
APPLE = """\
machdep.cpu.cores_per_package: 8
machdep.cpu.brand_string: Apple M2
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_FP16: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.arm.AdvSIMD: 1
"""
X86 = (
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R)  Platinum\nflags\t\t: fpu avx2 avx512f avx512_vnni amx_bf16 junk\n"
)
ARM = "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm bf16 crc32\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n"


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="compares with Linux's own answer")
def test_cores_are_those_of_this_process():
    assert machine.usable_cores() == os.sched_getaffinity(0)
    one = min(machine.usable_cores())
    code = f"from msdc import machine; machine.pin([{one}]); print(sorted(machine.usable_cores()))"
    assert python(code).strip() == f"[{one}]"


def test_a_system_that_pins_nothing(monkeypatch):
    monkeypatch.delattr(psutil.Process, "cpu_affinity")
    assert machine.usable_cores() == frozenset(range(os.cpu_count()))
    with pytest.raises(InputError, match="cannot pin"):
        machine.pin([0])


def test_processors():
    assert machine.parse_sysctl(APPLE) == ("Apple M2", ("asimd", "asimdhp", "asimddp", "i8mm", "bf16"))
    assert machine.parse_sysctl("") == ("", ())
    assert machine.parse_cpuinfo(X86) == ("Intel(R) Xeon(R) Platinum", ("avx2", "avx512f", "avx512_vnni", "amx_bf16"))
    name, isa = machine.parse_cpuinfo(ARM)
    assert name == "arm implementer 0x41 part 0xd0b"
    assert isa == ("asimd", "asimddp", "i8mm", "bf16")
    assert machine.parse_cpuinfo("") == ("", ())


def test_this_machine():
    here = machine.read_machine()
    assert here.cores >= 1
    assert here.memory_mib > 100
    assert here.arch
    held = psutil.Process().memory_info().rss / 2**20
    assert machine.peak_mib() >= 0.9 * held
    heat = machine.read_heat()
    assert heat.keys() == {"load_1min", "thermal_c", "cpu_mhz", "battery_percent", "charging"}
    assert all(-50 < celsius < 150 for celsius in heat["thermal_c"].values())
    assert min(heat["cpu_mhz"], default=1) > 0
