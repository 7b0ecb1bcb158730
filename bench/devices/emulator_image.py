"""The emulated phone's disk: Debian's arm64 kernel, a real adbd and busybox, assembled without executing them.

Packages come from a Debian mirror, verified by apt; the image is kept in the user's cache. The root file system is
mounted read-only; a run writes to a second disk that is deleted after it.
"""

from __future__ import annotations

import gzip
import lzma
import shutil
from collections.abc import Iterable
from pathlib import Path

from msdc.bench.system_programs import require_programs, run_tool
from msdc.bench.toolchain.packages import SUITE, extract
from msdc.cache import cached_folder, recipe_key
from msdc.errors import MsdcError
from msdc.files import user_cache

PROGRAMS = ("qemu-system-aarch64", "mmdebstrap", "mke2fs", "adb")
# In the order in which the kernel needs them; the cloud kernel has the PCI and ext4 parts built in.
MODULES = ("net/core/failover", "drivers/net/net_failover", "drivers/net/virtio_net", "drivers/block/virtio_blk",
           "drivers/char/hw_random/virtio-rng")  # fmt: skip
PACKAGES = ("adbd", "busybox-static", "dash", "libstdc++6")
KERNEL = "@linux-image-cloud-arm64"
READY = "msdc-ready"
GUEST_ADBD_PORT = 5555
# Folders that the guest does not need; without them 40 MB become 20.
LEFT_OUT = ("usr/share/doc", "usr/share/locale", "usr/share/man", "usr/lib/systemd", "var/cache", "var/lib/apt")

INITRD_INIT = f"""#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in {" ".join(Path(name).name for name in MODULES)}; do $B insmod /modules/$module.ko; done
$B mount -t ext4 -o ro,noatime /dev/vda /newroot
$B mount -t ext4 -o noatime /dev/vdb /newroot/data
for part in proc sys dev; do $B mount --move /$part /newroot/$part; done
exec $B switch_root /newroot /init
"""

# The console prints a line when adbd is about to listen, so that the host need not guess.
ROOT_INIT = f"""#!/bin/busybox sh
B=/bin/busybox
$B mount -t tmpfs -o size=4m tmp /tmp
$B mount -t tmpfs -o size=4m run /run
$B mkdir -p /dev/pts /run/bin /data/local/tmp
$B mount -t devpts devpts /dev/pts
$B --install -s /run/bin
export PATH=/usr/sbin:/usr/bin:/run/bin HOME=/data TMPDIR=/data/local/tmp
ip link set lo up
ip addr add 10.0.2.15/24 dev eth0
ip link set eth0 up
echo {READY} > /dev/console
while true; do
    /usr/lib/android-sdk/platform-tools/adbd > /run/adbd.log 2>&1
    sleep 1
done
"""


def _recipe() -> dict[str, object]:
    scripts = [INITRD_INIT, ROOT_INIT]
    return {"format": 1, "suite": SUITE, "packages": PACKAGES, "kernel": KERNEL, "modules": MODULES, "scripts": scripts}


def write_cpio(entries: Iterable[tuple[str, int, bytes]]) -> bytes:
    """An initramfs archive ("newc") of (name, mode, content); a folder has no content and comes before its files."""
    out = bytearray()
    for inode, (name, mode, content) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        encoded, links = name.encode() + b"\0", 2 if mode >> 12 == 0o4 else 1
        fields = [inode, mode, 0, 0, links, 0, len(content), 0, 0, 0, 0, len(encoded), 0]
        for part in (b"070701" + b"".join(b"%08X" % field for field in fields) + encoded, content):
            out += part + b"\0" * (-len(part) % 4)
    return bytes(out)


def _initrd(busybox: bytes, kernel: Path) -> bytes:
    """The first file system: busybox and the modules of the unpacked kernel package."""
    folder, program = 0o040755, 0o100755
    entries = [(name, folder, b"") for name in ("bin", "modules", "newroot", "proc", "sys", "dev")]
    entries += [("init", program, INITRD_INIT.encode()), ("bin/busybox", program, busybox)]
    for name in MODULES:
        modules = list((kernel / "usr/lib/modules").glob(f"*/kernel/{name}.ko.xz"))
        if len(modules) != 1:
            raise MsdcError(f"the kernel package holds no module {name}")
        entries.append((f"modules/{Path(name).name}.ko", 0o100644, lzma.decompress(modules[0].read_bytes())))
    # No time stamp: equal packages give equal bytes.
    return gzip.compress(write_cpio(entries), compresslevel=1, mtime=0)


def _root_tree(root: Path) -> None:
    """Turn the unpacked packages into a bootable tree: merged /usr, mount points, init."""
    for name in LEFT_OUT:
        shutil.rmtree(root / name, ignore_errors=True)
    for name in ("bin", "sbin", "lib"):
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("proc", "sys", "dev", "data", "run", "tmp", "root"):
        (root / name).mkdir(exist_ok=True)
    (root / "init").write_text(ROOT_INIT, encoding="utf-8", newline="\n")
    (root / "init").chmod(0o755)


def make_disk(target: Path, mib: int, tree: Path | None = None) -> None:
    """An ext4 disk image of `mib` MiB, holding `tree` where one is given."""
    (mke2fs,) = require_programs("mke2fs")
    with open(target, "wb") as handle:
        handle.truncate(mib * 1024 * 1024)
    # No journal: these disks need not survive a crash.
    command = [mke2fs, "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0"]
    run_tool([*command, *(["-d", str(tree)] if tree else []), str(target)], "make a disk image")


def _make(stage: Path) -> None:
    work = stage / "work"
    extract(PACKAGES, work / "root", arch="arm64", download=KERNEL, download_to=work / "kernel")
    (image,) = (work / "kernel/boot").glob("vmlinuz-*")
    shutil.copyfile(image, stage / "vmlinuz")
    busybox = (work / "root/usr/bin/busybox").read_bytes()
    (stage / "initrd.gz").write_bytes(_initrd(busybox, work / "kernel"))
    _root_tree(work / "root")
    make_disk(stage / "root.img", 64, work / "root")
    shutil.rmtree(work)


def find_image() -> Path | None:
    """The image's folder in the user's cache, None before it was created."""
    folder = user_cache() / "emulator" / recipe_key(_recipe())
    return folder if folder.is_dir() else None


def create_image() -> Path:
    """The folder of the image: `vmlinuz`, `initrd.gz`, `root.img`; created now (10 seconds and 60 MB of packages) or
    found in the cache.
    """
    require_programs(*PROGRAMS)
    return cached_folder("emulator", _recipe(), _make)
