"""What msdc knows about this machine, and about machines that it is not."""

import contextlib
import os
from pathlib import Path

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
    core = min(machine.usable_cores())
    code = f"from msdc import machine; machine.pin([{core}]); print(sorted(machine.usable_cores()))"
    assert python(code).strip() == f"[{core}]"


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


V1 = "36 32 0:31 {top} /sys/fs/cgroup/{name} rw,relatime shared:9 - cgroup cgroup rw,{name}\n"
V2 = "40 32 0:29 {top} /sys/fs/cgroup{below} rw - cgroup2 cgroup2 rw,nsdelegate\n"
OTHER = "22 1 8:1 / /my\\040disk rw - ext4 /dev/sda rw\n31 22 0:5 / /dev/shm rw shared:1 - tmpfs tmpfs rw\n"
HUGE = "9223372036854771712\n"
GIB = 2**30


def tree(root, groups: str, mounts: str, files: dict[str, str]):
    """A machine's root with what the kernel states of control groups."""
    for name, text in {"proc/self/cgroup": groups, "proc/self/mountinfo": OTHER + mounts, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return machine.read_limits(root)


def test_limits_of_version_2(tmp_path):
    mount, base = V2.format(top="/", below=""), "sys/fs/cgroup"
    limits = tree(tmp_path / "docker", "0::/\n", mount, {
        f"{base}/memory.max": f"{2 * GIB}\n", f"{base}/cpu.max": "150000 100000\n"
    })  # fmt: skip
    assert limits == machine.Limits(1.5, 2 * GIB)
    # Slurm, systemd, Kubernetes: the group's own limit is none, one around it has some; the smallest holds.
    limits = tree(tmp_path / "nested", "0::/system.slice/job_7/step_0\n", mount, {
        f"{base}/system.slice/memory.max": f"{8 * GIB}\n",
        f"{base}/system.slice/cpu.max": "200000 100000\n",
        f"{base}/system.slice/job_7/memory.max": f"{4 * GIB}\n",
        f"{base}/system.slice/job_7/cpu.max": "800000 100000\n",
        f"{base}/system.slice/job_7/step_0/memory.max": "max\n",
        f"{base}/system.slice/job_7/step_0/cpu.max": "max 100000\n",
        f"{base}/system.slice/job_8/memory.max": "1000000\n",
    })  # fmt: skip
    assert limits == machine.Limits(2.0, 4 * GIB)
    free = {f"{base}/memory.max": "max\n", f"{base}/cpu.max": "max 100000\n"}
    assert tree(tmp_path / "free", "0::/\n", mount, free) == machine.Limits()


def test_limits_of_version_1(tmp_path):
    mounts = V1.format(top="/", name="memory") + V1.format(top="/", name="cpu,cpuacct")
    groups = "5:memory:/user/me\n3:cpu,cpuacct:/user\n1:name=systemd:/elsewhere\n"
    memory, cpu = "sys/fs/cgroup/memory", "sys/fs/cgroup/cpu,cpuacct"
    files = {
        f"{memory}/memory.limit_in_bytes": HUGE, f"{memory}/user/memory.limit_in_bytes": f"{3 * GIB}\n",
        f"{memory}/user/me/memory.limit_in_bytes": HUGE, f"{cpu}/user/cpu.cfs_quota_us": "50000\n",
        f"{cpu}/user/cpu.cfs_period_us": "100000\n", f"{cpu}/cpu.cfs_quota_us": "-1\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
    }  # fmt: skip
    assert tree(tmp_path / "nested", groups, mounts, files) == machine.Limits(0.5, 3 * GIB)
    # Docker without a namespace of groups: the host's path, of which the container sees the folder as the mount's root.
    inside = {f"{memory}/memory.limit_in_bytes": f"{GIB}\n", f"{memory}/docker/memory.limit_in_bytes": "1\n"}
    limits = tree(tmp_path / "docker", "5:memory:/docker/ab\n", V1.format(top="/docker/ab", name="memory"), inside)
    assert limits == machine.Limits(None, GIB)
    none = {f"{memory}/memory.limit_in_bytes": HUGE}
    assert tree(tmp_path / "free", "5:memory:/\n", V1.format(top="/", name="memory"), none) == machine.Limits()


def test_limits_of_both_versions_and_of_odd_trees(tmp_path):
    mounts = V1.format(top="/", name="memory") + V2.format(top="/", below="/unified")
    files = {
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": f"{6 * GIB}\n",
        "sys/fs/cgroup/unified/b/cpu.max": "300000 100000\n",
    }
    assert tree(tmp_path / "hybrid", "4:memory:/a\n0::/b\n", mounts, files) == machine.Limits(3.0, 6 * GIB)
    # A process outside the root that its namespace shows, a group that is not visible, a mount with a space.
    mount = V2.format(top="/", below="")
    top = {"sys/fs/cgroup/memory.max": f"{GIB}\n"}
    for number, path in enumerate(("/../../other", "/gone/deep", "/")):
        assert tree(tmp_path / str(number), f"0::{path}\n", mount, top) == machine.Limits(None, GIB), path
    spaced = mount.replace("/sys/fs/cgroup", "/my\\040groups")
    assert tree(tmp_path / "spaced", "0::/\n", spaced, {"my groups/memory.max": f"{GIB}\n"}).memory_bytes == GIB
    memory, cpu = "sys/fs/cgroup/memory.max", "sys/fs/cgroup/cpu.max"
    for damaged in ("", "no number", "-5", "0", "²", "1e9"):
        limits = tree(tmp_path / "damaged", "0::/\n", mount, {memory: damaged + "\n", cpu: damaged + " 0\n"})
        assert limits == machine.Limits()
    for groups, mounts in (("", ""), ("junk\n", "junk - cgroup2\n"), ("0::/\n", " - \n"), ("0:\n", mount)):
        machine.read_limits(tmp_path / "nowhere")
        tree(tmp_path / "junk", groups, mounts, {})


@pytest.fixture
def group():
    """Files of a control group of this system with 512 MiB and half of a processor; skips where none can be made."""
    name, base = f"msdc-test-{os.getpid()}", Path("/sys/fs/cgroup")
    half = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}
    if (base / "cgroup.controllers").exists():
        settings = {base / name: {"memory.max": str(GIB // 2), "cpu.max": "50000 100000"}}
    else:
        cpu = next((path for path in (base / "cpu", base / "cpu,cpuacct") if path.is_dir()), base / "cpu")
        settings = {base / "memory" / name: {"memory.limit_in_bytes": str(GIB // 2)}, cpu / name: half}
    created = []
    try:
        for folder, values in settings.items():
            folder.mkdir()
            created.append(folder)
            for file, value in values.items():
                (folder / file).write_text(value)
        yield [folder / "cgroup.procs" for folder in created]
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    finally:
        for folder in created:
            with contextlib.suppress(OSError):
                folder.rmdir()


def test_a_process_in_a_real_group(group):
    """What a program under `docker run --memory 512m --cpus 0.5` reports and starts."""
    enter = f"import os; [open(p, 'w').write(str(os.getpid())) for p in {list(map(str, group))}]\n"
    told = python(f"{enter}from msdc import machine as m; print(m.core_count(), m.memory_mib(), m.quota_threads())")
    assert told.split() == ["1", "512.0", "1"]
    checks = python(
        f"{enter}import sys; from msdc.cli import main; main(['doctor'])", env=os.environ | {"COLUMNS": "200"}
    )
    assert "1 core usable" in checks
    assert "0.5 GiB, 4 GiB needed" in checks
    # Libraries of the command line, and a program that is opened without a number of threads.
    code = "import sys; from msdc.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\n"
    told = python(f"{enter}{code}import os; print(os.environ.get('OMP_NUM_THREADS'))")
    assert told.splitlines()[-1] == "1"
