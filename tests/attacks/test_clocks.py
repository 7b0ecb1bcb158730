"""A clock that jumps, back and ahead: nothing is given up early or waited for in vain, no file of a living writer goes.

Durations are measured by clocks that only go forward. The files' own times come from the same clock as the day's.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_models as tiny
from programs import run

from msdc import files
from msdc.bench.devices import adb
from msdc.bench.devices.adb import Adb, RemoteFolder
from msdc.files import PACKAGE

DAY = 24 * 3600
# Every call finds another day: a week earlier, a week later, in turn; and more years each time.
JUMPS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
static long jump(void) {
  static long calls;
  ++calls;
  return (calls % 2 ? -1 : 1) * (7 + 365 * (calls % 20)) * 86400L;
}
int clock_gettime(clockid_t id, struct timespec *now) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
  int code = real(id, now);
  if (!code && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += jump();
  return code;
}
int gettimeofday(struct timeval *now, void *zone) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
  return 0;
}
time_t time(time_t *now) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (now) *now = exact.tv_sec;
  return exact.tv_sec;
}
"""
WORK = """
import json, sys, time
from pathlib import Path
import msdc
from msdc import files, progress
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.bench.devices.host import PythonDevice
from msdc.bench.options import BenchSettings
from msdc.processes import run_program

folder, bundle = map(Path, sys.argv[1:])
found = {"jumps": abs(time.time() - time.time()) > 86400}
model = msdc.load_bundle(bundle, "onnx")
with msdc.open_index(folder / "index.sqlite", model) as index:
    index.add([{"id": str(i), "text": f"text {i} of many"} for i in range(40)])
    index.update([{"id": "3", "text": "another one"}])
    found["hits"] = [[hit.id, hit.score] for hit in index.search("another text", top=5).hits]
for turn in range(2):
    store = CachedEncoder(model, cache=folder, key="vectors")
    store.encode(["one", "two"])
    store.save()
found["cached"] = store.encoded == 0
progress.LINE_SECONDS = 0
progress.print_messages()
list(progress.track(range(3), "count"))
with files.held(folder / "held"), files.staged_folder(folder / "made", force=True) as stage:
    files.write_text(stage / "text", "whole")
done = run_program([sys.executable, "-c", "print(7)"], timeout_s=300)
found["printed"], found["endless"] = done and done.output, run_program(["/bin/sleep", "60"], timeout_s=0.2)
settings = BenchSettings(tasks=(), runtime="onnx", lengths=(4,), runs=3, warmup=1, stop_after_s=60)
(run,) = PythonDevice().run(bundle, settings)
found["parity"] = run.parity.min_cosine
found["samples"] = len(run.latency[0].samples)
times = [run.load, run.first, *run.latency[0].samples, *run.tokenize.samples, *run.pipeline.samples]
found["possible"] = all(0 <= ms < 3_600_000 for ms in times) and 0 <= index.open_s < 3600
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def jumping(tmp_path_factory) -> dict[str, str]:
    """The environment of a program for which the clock jumps at each look."""
    if sys.platform != "linux":
        pytest.skip("LD_PRELOAD is Linux's")
    source = tmp_path_factory.mktemp("clock") / "jumps.c"
    source.write_text(JUMPS)
    run("gcc", "-shared", "-fPIC", "-O1", source, "-o", source.with_suffix(".so"), "-ldl")
    return {**os.environ, "LD_PRELOAD": str(source.with_suffix(".so"))}


def test_work_under_a_clock_that_jumps_at_each_look(jumping, tmp_path):
    answers = {}
    for name, environment in (("steady", dict(os.environ)), ("jumping", jumping)):
        (folder := tmp_path / name).mkdir()
        done = subprocess.run(
            [sys.executable, "-c", WORK, folder, tiny.bundle()], env=environment, capture_output=True, text=True,
            timeout=600, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        answers[name] = json.loads(done.stdout)
        rates = re.findall(r"count: \d of 3 \(([-\d.,]+) per second, ([-\d.,]+) s left\)", done.stderr)
        numbers = [float(number.replace(",", "")) for pair in rates for number in pair]
        assert len(rates) == 2 and all(0 <= number < 1e9 for number in numbers), done.stderr
        assert not list(folder.rglob(".*.partial"))
        assert not list(folder.rglob(".*.old"))
    assert answers["jumping"].pop("jumps")
    assert not answers["steady"].pop("jumps")
    assert answers["jumping"] == answers["steady"]
    assert answers["steady"]["cached"]
    assert answers["steady"]["possible"]
    assert answers["steady"]["samples"] == 3


WRITER = """
import sys
from msdc.files import atomic_path, staged_folder
with (staged_folder if sys.argv[2] == "folder" else atomic_path)(sys.argv[1]) as place:
    (place / "text" if place.is_dir() else place).write_text("whole")
    print(place, flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a writer is not seen")
@pytest.mark.parametrize("kind", ["file", "folder"])
@pytest.mark.parametrize("days", [-20_000, -2, 3, 20_000])
def test_what_a_living_process_writes_is_not_removed_whatever_its_time(tmp_path, kind, days):
    target = tmp_path / "target"
    command = [sys.executable, "-c", WRITER, target, kind]
    alive, killed = (subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(2))
    places = [Path(process.stdout.readline().strip()) for process in (alive, killed)]
    killed.kill()
    killed.communicate()
    moment = max(0, time.time() + days * DAY)  # noqa: TID251
    for path in (*places, *(path / "text" for path in places if path.is_dir())):
        os.utime(path, (moment, moment))
    files.write_text(tmp_path / "other", "x")
    assert all(path.exists() for path in places)  # another target's
    with files.atomic_path(target):
        assert [path.exists() for path in places] == [True, False]
        target.unlink(missing_ok=True)
    target.unlink()
    alive.communicate("\n", timeout=60)
    assert alive.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"target", "other"}


def test_the_folder_of_a_living_run_stays_on_a_device_whose_clock_jumps(tmp_path, monkeypatch):
    """A phone that starts in 1970 and finds the network: the folder of a run of another computer looks decades old."""
    program = tmp_path / "adb"
    program.write_text('#!/bin/sh\nshift 2\n[ "$1" = shell ] && exec sh -c "$2"\n')
    program.chmod(0o755)
    (desk := tmp_path / "desk").mkdir()
    monkeypatch.setattr(adb, "PLACES", (str(desk),))
    (odd := desk / "msdc-run-odd kept").mkdir()
    (untouched := tmp_path / "kept").mkdir()
    folders = {name: desk / f"msdc-run-{name}" for name in ("living", "ended", "without", "nonsense")}
    for name, pid in (("living", os.getpid()), ("ended", 2**22 + 1), ("nonsense", "$(touch mark); -1 x")):
        folders[name].mkdir()
        (folders[name] / "pid").write_text(f"{pid}\n")
    folders["without"].mkdir()
    for folder in (odd, *folders.values()):
        os.utime(folder, (0, 0))
    monkeypatch.chdir(tmp_path)
    with RemoteFolder(Adb("phone", str(program)), "new"):
        assert {path.name for path in desk.iterdir()} == {"msdc-run-living", "msdc-run-new"}
    assert untouched.exists()
    assert [path.name for path in desk.iterdir()] == ["msdc-run-living"]


def test_no_program_reads_the_clock_of_the_day_but_to_show_it():
    """Python's are found by ruff (TID251)."""
    pattern = re.compile(
        r"Date\.now|new Date|currentTimeMillis|Date\(|system_clock|CLOCK_REALTIME|gettimeofday|time\(NULL|Instant\.now"
    )
    looked = 0
    for folder in ("bench", "export"):
        for path in (PACKAGE / folder).resolve().rglob("*"):
            if path.suffix in (".js", ".mjs", ".kt", ".swift", ".cpp", ".h", ".html"):
                looked += 1
                assert not pattern.search(path.read_text(encoding="utf-8")), path
    assert looked > 60
