"""What an app or a web page grows by with each artifact: the artifact itself, the runtime and the encoder's module."""

from __future__ import annotations

import functools
import zlib

from msdc.bench.report.data import ReportData
from msdc.bench.report.model import Section
from msdc.export.mobile.sizes import LEVEL, measured
from msdc.export.mobile.web.runtime import FILES
from msdc.export.mobile.web.write import TOKENIZERS, module_source
from msdc.tables import Column, Table, fixed, megabytes

WEB, ANDROID = "web page", "Android app, arm64"


def _android(runtime: str) -> tuple[int, int]:
    """Bytes of the runtime's libraries and the module, plain and compressed."""
    parts = [measured()[part] for part in (runtime, "core")]
    return sum(part["bytes"] for part in parts), sum(part["compressed"] for part in parts)


@functools.cache
def _web() -> tuple[int, int]:
    """The same of onnxruntime-web and the larger of the modules."""
    module = max((module_source(kind).encode("utf-8") for kind in TOKENIZERS), key=len)
    plain = sum(file.bytes for file in FILES.values()) + len(module)
    return plain, sum(file.compressed for file in FILES.values()) + len(zlib.compress(module, LEVEL))


def section(data: ReportData) -> Section | None:
    """One row per artifact and kind of app; None where no run says what its bundle takes."""
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    together: list[tuple[int, str, str]] = []
    for run, style in data.everything():
        artifact = run.artifact
        app = WEB if run.browser is not None else ANDROID
        if artifact.bundle_bytes is None or (artifact.sha256, app) in rows:
            continue
        plain, small = _web() if app == WEB else _android(artifact.runtime)
        name = style.name.replace(f" on {run.device.name}", "", 1)
        download = artifact.compressed_bytes + small if artifact.compressed_bytes is not None else None
        if download is not None:
            together.append((download, name, app))
        rows[artifact.sha256, app] = (
            name, app, megabytes(artifact.bundle_bytes), megabytes(artifact.compressed_bytes), megabytes(plain),
            megabytes(small), megabytes(artifact.bundle_bytes + plain), megabytes(download),
        )  # fmt: skip
    if not rows:
        return None
    columns = (
        Column("Artifact", align="left"), Column("In", align="left"), Column("Program and tokenizer", "MB"),
        Column("Program and tokenizer", "MB compressed"), Column("Runtime and module", "MB"),
        Column("Runtime and module", "MB compressed"), Column("Installed", "MB"), Column("Download", "MB"),
    )  # fmt: skip
    note = (
        "Runtime and module: libraries of an arm64 app with all kernels, as benchmarks/app_size.py measured them; "
        "WebAssembly and JavaScript of a web page. Compressed as stores and web servers do. An app that has the "
        "runtime already grows by less. Golden vectors are not counted."
    )
    lead = ""
    if together:
        least, name, app = min(together)
        lead = f"{name} adds {fixed(least / 1e6, 1)} MB to the download of {'a' if app == WEB else 'an'} {app}."
    table = Table("What an app grows by", columns, tuple(rows.values()), note)
    return Section("growth", "What an app grows by", lead, (), (table,))
