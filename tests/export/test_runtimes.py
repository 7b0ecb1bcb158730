"""A runtime and a target are one record each: options, schemas and error messages follow the registries."""

import json
import subprocess
import sys

import pytest
import tiny_models as tiny

from msdc.compress.size import PROGRAM_BYTES
from msdc.errors import InputError
from msdc.export.manifest import read_manifest
from msdc.export.runtimes import RUNTIMES, TARGETS, Registry, Target, default_runtimes_help, expand
from msdc.files import PACKAGE

# In a process of its own: schemas and options are built when their modules are imported.
TOY = """
import json, sys
import numpy as np
from msdc.export.runtimes import InsidePath, NativeModule, ProgramPart, Runtime, Target, WrittenProgram
from msdc.export.runtimes import RUNTIMES
from msdc.export.runtimes import TARGETS

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
from pydantic import ValidationError
from msdc.errors import InputError
from msdc.bench import measure, result
from msdc.cli import msdc
from msdc.bench.cli import command as bench
from msdc.bench.evaluate_cli import command as evaluate
from msdc.commands.encode import command as encode
from msdc.export.bundle import load_bundle
from msdc.export.manifest import Manifest, list_files, read_manifest, write_manifest
from msdc.export.readme import bundle_readme

export, bench, evaluate, encode = (msdc.get_command(None, verb) for verb in ("export", "bench", "evaluate", "encode"))
found = {}
def values(command, name):
    return list(next(option for option in command.params if option.name == name).type.choices)
found["options"] = {
    "export": values(export, "runtime"), "target": values(export, "target"), "bench": values(bench, "runtime"),
    "evaluate": values(evaluate, "runtime"), "encode": values(encode, "runtime"),
}
found["help"] = next(option for option in export.params if option.name == "runtime").help
schema = Manifest.model_json_schema()
found["programs"] = list(schema["$defs"]["Programs"]["properties"])
found["targets"] = schema["properties"]["target"]["enum"]
found["artifact"] = result.Artifact.model_json_schema()["properties"]["runtime"]["enum"]
found["settings"] = list(measure.BenchSettings(runtimes=("toy",)).runtimes)
old, folder = Path(sys.argv[1]), Path(sys.argv[2])
found["old"] = read_manifest(old).runtimes
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
found["runtimes"], found["files"] = bundle.manifest.runtimes, bundle.manifest.program_files("toy")
found["bytes"], found["runtime"] = bundle.manifest.program_bytes("toy"), bundle.runtime
found["shape"] = list(bundle.encode(["a", "b"]).shape)
found["readme"] = bundle_readme(manifest)
found["errors"] = []
for wrong in (lambda: RUNTIMES["coreml"], lambda: TARGETS["fridge"], lambda: load_bundle(folder, "onnx")):
    try:
        wrong()
    except InputError as error:
        found["errors"].append(str(error))
try:
    Manifest.model_validate(value | {"target": "fridge"})
except ValidationError as error:
    found["errors"].append(error.errors()[0]["msg"])
found["errors"].append(CliRunner().invoke(export, ["x", "--target", "fridge"]).output)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    arguments = [sys.executable, "-c", TOY, str(tiny.bundle()), str(tmp_path_factory.mktemp("toy"))]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_options_follow(found):
    names = ["executorch", "onnx", "toy"]
    assert found["options"] == {
        "export": [*names, "both"], "bench": [*names, "both"], "evaluate": names, "encode": names,
        "target": ["android", "ios", "linux", "web", "toaster"],
    }  # fmt: skip
    assert "toy for toaster" in found["help"]


def test_schemas_follow_and_an_older_bundle_opens(found):
    assert found["programs"] == found["artifact"] == ["executorch", "onnx", "toy"]
    assert found["targets"][-1] == "toaster" and found["settings"] == ["toy"]
    assert found["old"] == ["executorch", "onnx"]


def test_a_bundle_of_the_new_runtime_opens_and_runs(found):
    assert found["runtimes"] == ["toy"] and found["runtime"] == "toy"
    assert found["files"] == ["model.toy", "model.table"] and found["bytes"] == 8
    assert found["shape"] == [2, read_manifest(tiny.bundle()).width]
    assert "## Toy Runtime" in found["readme"] and "`model.toy` + `model.table`" in found["readme"]


def test_error_messages_follow(found):
    runtime, target, bundle, schema, option = found["errors"]
    assert runtime == "runtime 'coreml' is unknown; known: executorch, onnx, toy"
    assert target == "target 'fridge' is unknown; known: android, ios, linux, web, toaster"
    assert bundle.endswith("it holds: toy")
    assert "toaster" in schema and "toaster" in option


def test_the_dictionaries_beside_the_registry_hold_the_same_names():
    from msdc.bench.toolchain.sdk import SDKS

    assert tuple(PROGRAM_BYTES) == tuple(SDKS) == RUNTIMES.names()


def test_records_point_at_what_exists():
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


def test_program_files_are_those_of_the_part():
    manifest = read_manifest(tiny.bundle())
    assert manifest.program_files("executorch") == ["model.pte"]
    assert manifest.program_files("onnx") == ["model.onnx", "model.onnx.data"]
    assert manifest.program_bytes("onnx") == sum(
        (tiny.bundle() / name).stat().st_size for name in ("model.onnx", "model.onnx.data")
    )
    with pytest.raises(InputError, match="it holds: executorch, onnx"):
        manifest.part("coreml")
