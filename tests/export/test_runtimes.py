"""A runtime and a target are one record each: options, schemas and error messages follow the registries."""

import pytest

from msdc.bench.toolchain.sdk import SDKS
from msdc.compress.size import PROGRAM_BYTES
from msdc.errors import InputError
from msdc.export.manifest import Programs
from msdc.export.runtimes import RUNTIMES, default_runtimes_help, expand
from msdc.export.schema import TARGETS, Registry, Target
from msdc.files import PACKAGE


def test_records_point_at_what_exists_and_the_tables_next_to_them_have_the_same_names():
    assert tuple(PROGRAM_BYTES) == tuple(SDKS) == tuple(Programs.model_fields) == RUNTIMES.names()
    for runtime in RUNTIMES:
        assert (PACKAGE / "export" / "native" / "src" / str(runtime.engine)).is_file()
    for target in TARGETS:
        assert set(target.runtimes) <= set(RUNTIMES.names())
        if target.module is not None:
            assert (PACKAGE / "export" / "mobile" / target.module.template.replace("-", "_")).is_dir()
            assert target.module.runtimes
            assert set(target.module.runtimes) <= set(RUNTIMES.names())


def test_names_expand():
    assert expand("both") == RUNTIMES.names()
    assert expand("onnx") == ("onnx",)
    with pytest.raises(InputError, match="executorch, onnx"):
        expand("coreml")
    assert default_runtimes_help() == "executorch for android, ios and react-native, both for linux, onnx for web"
    with pytest.raises(InputError, match="known: a"):
        Registry("target", [Target("a", ())])["b"]
