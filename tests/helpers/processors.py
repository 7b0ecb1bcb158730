"""Files of /sys/devices/system/cpu with processors of chosen top frequencies."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path


def processor_files(root: Path, top_khz: Mapping[int, int], **files: str) -> Path:
    """The folder `sys/devices/system/cpu` below `root`; `files` are those of each processor's `cpufreq`."""
    folder = root / "sys/devices/system/cpu"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("possible", "present", "online"):
        (folder / name).write_text("0-1\n")
    for cpu, khz in top_khz.items():
        (folder / f"cpu{cpu}/cpufreq").mkdir(parents=True)
        stated = {"scaling_cur_freq": "900000", "scaling_max_freq": str(khz), "cpuinfo_max_freq": str(khz), **files}
        for name, text in stated.items():
            (folder / f"cpu{cpu}/cpufreq" / name).write_text(text + "\n")
    return folder


def without_namespaces() -> bool:
    """Whether this user may not mount anything in a namespace of its own."""
    command = ["unshare", "-m", "mount", "--bind", "/tmp", "/tmp"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=30).returncode != 0
    except OSError:
        return True
