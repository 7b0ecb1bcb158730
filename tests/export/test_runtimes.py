"""A runtime and a target are one record each: options, schemas and error messages follow the registries."""

import pytest
import tiny_models as tiny
from programs import python

from msdc.bench.toolchain.sdk import SDKS
from msdc.compress.size import PROGRAM_BYTES
from msdc.errors import InputError
from msdc.export.runtimes import RUNTIMES, TARGETS, Registry, Target, default_runtimes_help, expand
from msdc.files import PACKAGE

# In a process of its own: schemas and options are built when their modules are imported.
TOY = """
import json, sys
import numpy as np
from msdc.export.runtimes import (
    RUNTIMES, TARGETS, InsidePath, ProgramPart, Runtime, Target, default_runtimes_help,
)

class ToyPart(ProgramPart):
    table: InsidePath
    def files(self):
        return [self.file, self.table]

class ToyRunner:
    name = "toy"
    def __init__(self, width):
        self.width = width
    def run(self, rows, prompt_tokens=0):
        return np.stack([np.full(self.width, len(row), dtype=np.float32) for row in rows])

class ToyRuntime(Runtime):
    name, title, part, made_with, runs_with = "toy", "Toy Runtime", ToyPart, ("click",), ("click",)
    def write(self, folder, smoothed, plan, **options):
        raise NotImplementedError
    def check(self, folder, manifest):
        assert manifest.part("toy").table == "model.table"
    def start(self, threads):
        pass
    def open(self, folder, manifest, threads=None):
        return ToyRunner(manifest.width)
    def readme(self, manifest):
        return ["## Toy Runtime", ""]

RUNTIMES.add(ToyRuntime())
TARGETS.add(Target("toaster", ("toy",)))

from pathlib import Path
from click.testing import CliRunner
from msdc.bench import measure, result
from msdc.cli import msdc
from msdc.export.bundle import load_bundle
from msdc.export.manifest import Manifest, list_files, write_manifest
from msdc.export.readme import bundle_readme

def values(verb, name="runtime"):
    return list(next(option for option in msdc.get_command(None, verb).params if option.name == name).type.choices)

names, targets = ["executorch", "onnx", "toy"], ["android", "ios", "linux", "web", "toaster"]
assert values("export") == values("bench") == [*names, "both"] and values("evaluate") == values("encode") == names
assert values("export", "target") == targets and "toy for toaster" in default_runtimes_help()
schema = Manifest.model_json_schema()
assert list(schema["$defs"]["Programs"]["properties"]) == names and schema["properties"]["target"]["enum"] == targets
assert result.Artifact.model_json_schema()["properties"]["runtime"]["enum"] == names
assert list(measure.BenchSettings(runtimes=("toy",)).runtimes) == ["toy"]

# A bundle of the new runtime opens and runs.
old, folder = Path(sys.argv[1]), Path(sys.argv[2])
value = json.loads((old / "bundle.json").read_text())
for name in (value["tokenizer"]["file"], "golden.json"):
    (folder / name).write_bytes((old / name).read_bytes())
(folder / "model.toy").write_bytes(b"12345")
(folder / "model.table").write_bytes(b"123")
value |= {"target": "toaster", "programs": {"toy": {"file": "model.toy", "table": "model.table"}}}
value |= {"parity": {"toy": value["parity"]["onnx"]}}
value["files"] = {name: record.model_dump() for name, record in list_files(folder).items()}
manifest = Manifest.model_validate(value)
write_manifest(folder, manifest)
bundle = load_bundle(folder)
assert bundle.manifest.runtimes == ["toy"] and bundle.runtime == "toy"
assert manifest.program_files("toy") == ["model.toy", "model.table"] and manifest.program_bytes("toy") == 8
assert bundle.encode(["a", "b"]).shape == (2, manifest.width)
assert "`model.toy` + `model.table`" in bundle_readme(manifest)
assert "toaster" in CliRunner().invoke(msdc.get_command(None, "export"), ["x", "--target", "fridge"]).output
"""


def test_a_new_runtime_and_a_new_target_are_one_record_each(tmp_path):
    """Options, schemas, files, README and error messages follow."""
    python(TOY, tiny.bundle(), tmp_path)


def test_records_point_at_what_exists_and_the_dictionaries_beside_them_hold_the_same_names():
    assert tuple(PROGRAM_BYTES) == tuple(SDKS) == RUNTIMES.names()
    for runtime in RUNTIMES:
        assert (PACKAGE / "export" / "native" / "src" / str(runtime.engine)).is_file()
    for target in TARGETS:
        assert set(target.runtimes) <= set(RUNTIMES.names())
        if target.module is not None:
            assert (PACKAGE / "export" / "mobile" / target.module.template).is_dir()
            assert target.module.runtimes and set(target.module.runtimes) <= set(RUNTIMES.names())


def test_names_expand():
    assert expand("both") == RUNTIMES.names() and expand("onnx") == ("onnx",)
    with pytest.raises(InputError, match="executorch, onnx"):
        expand("coreml")
    assert default_runtimes_help() == "executorch for android and ios, both for linux, onnx for web"
    with pytest.raises(InputError, match="known: a"):
        Registry("target", [Target("a", ())])["b"]
