"""The Core ML package next to a bundle: what it takes, gives and holds. Nothing here runs it."""

import pytest
import tiny_models as tiny
from refusals import one_line
from stock_models import write_stock

from msdc.compress import code_table
from msdc.errors import GateError, InputError
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.export.core_ml import check_package

ct = pytest.importorskip("coremltools")


def exported(model, out, **options):
    export(str(model), **{"target": "ios", "runtime": "onnx", "module": False, "core_ml": True, **options}, out=out)
    return out / "model.mlpackage"


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return exported(tiny.student_folder(), tmp_path_factory.mktemp("ios") / "bundle", gates=False)


def test_the_package_takes_ids_and_gives_a_vector(package):
    manifest = load_bundle(package.parent).manifest
    spec = ct.utils.load_spec(str(package))
    (block,) = spec.mlProgram.functions["main"].block_specializations.values()
    (takes,), (gives,) = spec.description.input, spec.description.output
    lengths = takes.type.multiArrayType.shapeRange.sizeRanges
    assert [(size.lowerBound, size.upperBound) for size in lengths] == [(1, 1), (1, manifest.max_length)]
    assert list(gives.type.multiArrayType.shape) == [1, manifest.width]
    config = manifest.model.config
    assert [operation.type for operation in block.operations].count("gelu") == config["unit"] * config["repeats"]
    # Its files are of the bundle: damaged ones are refused.
    assert "model.mlpackage/Data/com.apple.CoreML/weights/weight.bin" in manifest.files


@pytest.mark.parametrize("change", [{"width": 7}, {"max_length": 9}, {"weight_bytes": 10}])
def test_a_package_of_another_model_is_refused(package, change):
    manifest = load_bundle(package.parent).manifest
    size = (package / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size
    right = {"width": manifest.width, "max_length": manifest.max_length, "weight_bytes": size}
    check_package(package, **right)
    line = one_line(lambda: check_package(package, **{**right, **change}), GateError)
    assert line.startswith("model.mlpackage is not the model's: ")


@pytest.mark.parametrize("kind", ["bert", "coded"])
def test_other_students(tmp_path, kind):
    folder = write_stock(tmp_path / "bert", "bert", max_seq_length=20)
    if kind == "coded":
        code_table(str(folder), output=tmp_path / "coded", base_rows=40, nonzeros=2)
        folder = tmp_path / "coded"
    assert exported(folder, tmp_path / "bundle", gates=False).is_dir()


def test_where_it_cannot_be_written(tmp_path):
    line = one_line(lambda: exported(tiny.student_folder(), tmp_path / "a", target="linux"), InputError)
    assert line == "`core_ml` is for target ios, not linux"
    folder = write_stock(tmp_path / "bert", "bert")
    line = one_line(lambda: exported(folder, tmp_path / "b", exporter="generic"), InputError)
    assert "only the canonical exporter writes it" in line
    assert not (tmp_path / "b").exists()
