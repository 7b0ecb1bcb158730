"""The hand-written ONNX graph against eager torch and integer arithmetic; the float program that replaces PyTorch."""

import hashlib

import numpy as np
import onnx
import pytest
import tiny_models as tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.plan import plan_for
from msdc.compress.student.weights import integers, read_weights
from msdc.errors import InputError
from msdc.export.golden import parity_of
from msdc.export.onnx.encoder import ProgramEncoder
from msdc.export.onnx.float_program import FloatProgram
from msdc.export.onnx.graph import LEVELS, GraphBuilder, pair_safe, quantize_tokens
from msdc.export.onnx.program import check_onnx_file
from msdc.export.onnx.runner import OnnxRunner
from msdc.export.onnx.write import low_bit_share, write_onnx
from msdc.export.smoothing import TorchModel, calibration_texts, not_smoothed, smooth
from msdc.loading import load_encoder


def write(tmp_path, precision="int8", target="linux", **shape):
    student = tiny.student(**shape)
    plan = plan_for(student, precision)
    smoothed = smooth(TorchModel(student), plan, tiny.tokenizer(), tiny.MAX_LENGTH)
    path = tmp_path / "model.onnx"
    return student, path, write_onnx(smoothed, plan, path, max_length=tiny.MAX_LENGTH, target=target)


@pytest.mark.parametrize("target", ["linux", "web"])
@pytest.mark.parametrize("shape", tiny.SHAPES)
def test_fp32_equals_eager_in_any_batch(shape, target, tmp_path):
    student, path, written = write(tmp_path, "fp32", target, **tiny.SHAPES[shape])
    expected, runner = TorchModel(student).vectors(tiny.rows()), OnnxRunner(path, pad_id=0, threads=1)
    one_by_one = np.concatenate([runner.run([row]) for row in tiny.rows()])
    for vectors in (runner.run(tiny.rows()), one_by_one):
        np.testing.assert_allclose(vectors, expected, atol=3e-6, rtol=2e-5)
    assert written.low_bit_share is None


QUANTIZED = [(shape, "int8") for shape in ("plain table", "cls, dense", "max, relu")]
QUANTIZED += [(shape, "int8-embed4") for shape in tiny.SHAPES if "static" in shape]
QUANTIZED += [(shape, precision) for shape in ("word", "coded") for precision in ("int8", "int8-embed4", "int4-embed4")]


@pytest.mark.parametrize(("shape", "precision"), QUANTIZED)
def test_quantized_is_close_on_both_kinds_of_target(shape, precision, tmp_path):
    student, path, written = write(tmp_path, precision, "linux", **tiny.SHAPES[shape])
    # The float student that a 4-bit artifact imitates: its 4-bit weights are the numbers that are stored.
    small = [name for name, part in integers(student, plan_for(student, precision)).items() if part.dtype == "int4"]
    expected = TorchModel(tiny.dequantized(student, precision, small)).vectors(tiny.rows())
    vectors = OnnxRunner(path, threads=1).run(tiny.rows())
    parity = parity_of(expected, vectors, written.low_bit_share)
    assert parity.mean_cosine >= 0.998
    assert parity.min_cosine >= 0.985
    assert written.low_bit_share == 1.0
    (tmp_path / "web").mkdir()
    _, web, _ = write(tmp_path / "web", precision, "web", **tiny.SHAPES[shape])
    assert {used.domain for used in check_onnx_file(web, full=True).opset_import} == {""}
    again = parity_of(expected if precision != "int8" else vectors, OnnxRunner(web, threads=1).run(tiny.rows()), None)
    # The two spellings round at different places: biases in attention, GELU, float16 in the look-up of 4 bits.
    assert again.mean_cosine >= (0.999 if precision == "int8" else 0.998)


def test_recurrence_is_a_loop_with_its_weights_outside(tmp_path):
    _, path, _ = write(tmp_path, repeats=3, unit=2)
    model = onnx.load(path, load_external_data=False)
    (loop,) = [node for node in model.graph.node if node.op_type == "Loop"]
    body = next(attribute.g for attribute in loop.attribute if attribute.name == "body")
    assert not body.initializer
    assert sum(node.op_type == "MatMulIntegerToFloat" for node in body.node) == 4 * 2
    trips = next(tensor for tensor in model.graph.initializer if tensor.name == loop.input[0])
    assert onnx.numpy_helper.to_array(trips) == 3
    _, path, _ = write(tmp_path, repeats=1)
    assert "Loop" not in {node.op_type for node in onnx.load(path, load_external_data=False).graph.node}


def test_query_key_and_value_share_one_quantization(tmp_path):
    # bottleneck map, qkv together, output, up, down
    for target, product in (("web", "MatMulInteger"), ("linux", "MatMulIntegerToFloat")):
        _, path, _ = write(tmp_path, unit=1, repeats=1, target=target)
        kinds = [node.op_type for node in onnx.load(path, load_external_data=False).graph.node]
        assert kinds.count("QuantizeLinear") == kinds.count(product) == 5


def test_add_and_norm_are_not_fused_into_the_slow_kernel(tmp_path):
    import onnxruntime

    _, path, _ = write(tmp_path, unit=1, repeats=1)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {node.op_type for node in onnx.load(tmp_path / "optimised.onnx", load_external_data=False).graph.node}
    assert "SkipLayerNormalization" not in kinds
    assert "InstanceNormalization" in kinds


def nodes_of(graph):
    """Every node, those of loop bodies and branches included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from nodes_of(attribute.g)


@pytest.mark.parametrize(("precision", "kind"), [("int8", b"tanh"), ("fp32", b"none")])
def test_gelu_is_approximated_only_where_its_reader_rounds(precision, kind, tmp_path):
    _, path, _ = write(tmp_path, precision, activation="gelu")
    model = onnx.load(path, load_external_data=False)
    approximations = {a.s for node in nodes_of(model.graph) if node.op_type == "Gelu" for a in node.attribute}
    assert approximations == {kind}


def test_mask_is_added_only_to_a_padded_batch(tmp_path):
    _, path, _ = write(tmp_path, repeats=2, unit=1)
    (choice,) = [n for n in nodes_of(onnx.load(path, load_external_data=False).graph) if n.op_type == "If"]
    kinds = {a.name: [node.op_type for node in a.g.node] for a in choice.attribute}
    assert kinds == {"then_branch": ["Softmax"], "else_branch": ["Add", "Softmax"]}


def test_all_large_weights_are_external_and_aligned():
    path = tiny.bundle() / "model.onnx"
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if entries:
            assert entries["location"] == "model.onnx.data"
            assert int(entries["offset"]) % 64 == 0
        else:
            assert len(tensor.raw_data) < 1024
    assert path.stat().st_size < 40_000


def test_a_code_is_stored_as_its_integers(tmp_path):
    student, path, _ = write(tmp_path, **tiny.SHAPES["coded"])
    onnx_weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    parts = integers(student, plan_for(student, "int8"))
    for name in ("embedding.table.weight", "embedding.code.weight"):
        np.testing.assert_array_equal(onnx_weights[name], parts[name].values)
        assert onnx_weights[name].dtype == np.int8
    index = onnx_weights["embedding.code.index"]
    assert index.dtype == np.int16
    np.testing.assert_array_equal(index, student.embedding.code.index.numpy())


def test_share_of_low_bits_sees_a_float_matrix(tmp_path):
    student = tiny.student()
    plan = plan_for(student, "int8")
    plan = plan.model_copy(update={"weights": {**plan.weights, "layers.0.up.weight": "fp32"}})
    smoothed = smooth(TorchModel(student), plan, tiny.tokenizer(), 24)
    written = write_onnx(smoothed, plan, tmp_path / "m.onnx", max_length=24, target="linux")
    up = 32 * 64
    total = sum(
        value.numel() for name, value in student.state_dict().items() if value.dim() == 2 and "position" not in name
    )
    assert written.low_bit_share == pytest.approx((total - up) / (total + 3 * up), abs=1e-4)
    assert low_bit_share(onnx.load(tmp_path / "m.onnx")) == pytest.approx(written.low_bit_share, abs=1e-4)


def test_padding_ids_and_their_number_do_not_matter():
    session = OnnxRunner(tiny.bundle() / "model.onnx", threads=1).session

    def run(ids, mask):
        feed = {"input_ids": np.array([ids]), "attention_mask": np.array([mask])}
        return session.run(None, feed)[0]

    bare = run([5, 9, 11], [1, 1, 1])
    for pad in (0, 7):
        padded = run([5, 9, 11, pad, pad, pad], [1, 1, 1, 0, 0, 0])
        np.testing.assert_allclose(padded, bare, atol=1e-6)


def saturating_product(quantized_MK: np.ndarray, values_KN: np.ndarray) -> np.ndarray:
    """What vpmaddubsw does: neighbours along K added in 16 bits with saturation, then exactly in 32."""
    K = len(values_KN) - len(values_KN) % 2
    total = np.zeros((len(quantized_MK), values_KN.shape[1]), dtype=np.int64)
    for column in range(0, K, 2):
        pair = quantized_MK[:, column : column + 2].astype(np.int64) @ values_KN[column : column + 2].astype(np.int64)
        total += np.clip(pair, -32768, 32767)
    if len(values_KN) > K:
        total += quantized_MK[:, K, None].astype(np.int64) * values_KN[K]
    return total


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 9), st.integers(1, 33), st.sampled_from(["normal", "spikes", "constant"]))
def test_pair_safe_products_never_saturate(seed, N, K, kind):
    generator = np.random.default_rng(seed)
    weight_NK = generator.normal(size=(N, K)).astype(np.float32)
    if kind == "spikes":
        weight_NK[generator.random((N, K)) < 0.2] *= 30
    if kind == "constant":
        weight_NK[:] = 1.0
    scale_N = np.abs(weight_NK).max(1) / 127.5 + 1e-12
    values_NK, safe_N = pair_safe(weight_NK, scale_N)
    assert (safe_N >= scale_N * 0.999999).all()
    assert (safe_N <= scale_N * 2.1).all()
    assert np.abs(values_NK * safe_N[:, None] - weight_NK).max() <= 0.5001 * safe_N.max()
    worst_MK = np.vstack([np.full(K, LEVELS), generator.integers(0, LEVELS + 1, (20, K))]).astype(np.uint8)
    exact = worst_MK.astype(np.int64) @ values_NK.T.astype(np.int64)
    np.testing.assert_array_equal(saturating_product(worst_MK, values_NK.T), exact)


def run_quantizer(x_MK: np.ndarray, floor: float | None):
    """(quantized, step by row, zero point) as ONNX Runtime computes them."""
    import onnxruntime

    builder = GraphBuilder()

    def zeros(zero: int, step: str) -> str:
        return builder.op("Expand", builder.const("z", np.full((1, 1), zero, np.uint8)), builder.op("Shape", step))

    quantized, step, zero = quantize_tokens(builder, "x", x_MK.shape[1], floor, zeros)
    builder.rename(quantized, "quantized")
    outputs = [
        onnx.helper.make_tensor_value_info("quantized", onnx.TensorProto.UINT8, ["M", "K"]),
        onnx.helper.make_tensor_value_info(step, onnx.TensorProto.FLOAT, ["M", 1]),
    ]
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["M", "K"])]
    graph = onnx.helper.make_graph(builder.nodes, "g", inputs, outputs, list(builder.initializers.values()))
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return *session.run(None, {"x": x_MK}), zero


@pytest.mark.parametrize("activation", [None, "gelu", "gelu_new", "relu"])
def test_token_quantization_by_hand(activation):
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([0.01, 0.3, 1.0, 5.0, 40.0])[:, None]
    inputs = torch.randn(5, 200, generator=generator) * sizes
    floor = None
    if activation is not None:
        from msdc.compress.student.model import ACTIVATIONS
        from msdc.export.onnx.graph import FLOORS

        inputs, floor = ACTIVATIONS[activation](inputs), FLOORS[activation]
        assert inputs.min() >= floor
    x_MK = inputs.numpy()
    quantized, step_M1, zero = run_quantizer(x_MK, floor)
    assert quantized.max() <= LEVELS
    back = (quantized.astype(np.float64) - zero) * step_M1
    assert (np.abs(back - x_MK) <= 0.5001 * step_M1).all()
    if activation is None:
        np.testing.assert_allclose(step_M1[:, 0], np.abs(x_MK).max(1) / (LEVELS // 2), rtol=1e-6)


def test_a_token_of_zeros_stays_zero_and_finite():
    quantized, step_M1, zero = run_quantizer(np.zeros((2, 8), np.float32), None)
    assert (((quantized.astype(np.float32) - zero) * step_M1) == 0).all()


def test_a_sentence_of_zero_rows_is_finite(tmp_path):
    """The bottleneck map of a row of zeros (a padding id's, often) is its bias, not 0 / 0."""
    student = tiny.student(place="embedding")
    with torch.no_grad():
        student.embedding.table.weight[5] = 0
        student.embedding.norm.weight.zero_()
        student.embedding.norm.bias.zero_()
    plan = plan_for(student, "int8")
    path = tmp_path / "m.onnx"
    for target in ("linux", "web"):
        write_onnx(not_smoothed(student.to_numpy()), plan, path, max_length=24, target=target)
        vectors = OnnxRunner(path, threads=1).run([[5, 5, 5]])
        assert (vectors * TorchModel(student).vectors([[5, 5, 5]])).sum() > 0.99


@pytest.mark.parametrize("shape", tiny.SHAPES)
def test_runs_as_pytorch_does(shape):
    """Vectors and channel sizes, for every shape of student: recurring, coded, both places of the bottleneck."""
    student = tiny.student(**tiny.SHAPES[shape])
    torch_model, float_program = TorchModel(student), FloatProgram(student.to_numpy())
    np.testing.assert_allclose(
        float_program.vectors(tiny.rows()), torch_model.vectors(tiny.rows()), atol=3e-6, rtol=1e-5
    )
    rows = tiny.tokenizer().encode(calibration_texts()[:8], tiny.MAX_LENGTH)
    if student.layers:
        for actual, expected in zip(float_program.channel_sizes(rows), torch_model.channel_sizes(rows), strict=True):
            np.testing.assert_allclose(np.stack(actual), np.stack(expected), rtol=1e-4)
    smoothed = [
        smooth(model, plan_for(student, "int8"), tiny.tokenizer(), tiny.MAX_LENGTH)
        for model in (torch_model, float_program)
    ]
    for actual, expected in zip(
        [*smoothed[1].entry, *smoothed[1].middle], [*smoothed[0].entry, *smoothed[0].middle], strict=True
    ):
        assert np.array_equal(actual, expected)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4-embed4"])
def test_folders_are_read_as_with_pytorch(precision, tmp_path):
    student = tiny.student()
    plan = None if precision == "fp32" else plan_for(student, precision)
    folder = save_student(student, tiny.tokenizer().path, tmp_path / "s", plan=plan)
    weights, loaded = read_weights(folder), load_student(folder)
    assert set(weights.scales) == set(loaded.stored_scales)
    assert bool(weights.scales) == (plan is not None)
    for name, value in loaded.state_dict().items():
        assert torch.equal(torch.from_numpy(weights.arrays[name].copy()), value), name


def test_an_encoder_without_pytorch(tmp_path, monkeypatch):
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "s")
    encoder, program = load_encoder(folder), load_encoder(folder)
    encoder.module.eval()
    monkeypatch.setattr("msdc.extras.installed", lambda package: False)
    assert isinstance(program, ProgramEncoder)
    texts = ["one", "zwei Texte", "", "drei " * 50]
    np.testing.assert_allclose(program.encode(texts), encoder.encode(texts), atol=3e-6)
    np.testing.assert_allclose(program.encode(texts, truncate_dim=5), encoder.encode(texts, truncate_dim=5), atol=3e-6)
    assert program.fingerprint() == encoder.fingerprint()
    assert repr(program) == repr(encoder)
    with pytest.raises(InputError, match=r"needs PyTorch: pip install '\.\[train\]'"):
        program.module.parameters()
    with pytest.raises(InputError, match="needs PyTorch"):
        program.encode(texts, precision="bfloat16")


def test_hash_of_weights_is_that_of_their_numbers():
    student = tiny.student()
    digest = hashlib.sha256()
    for name, value in sorted(student.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)}\0".encode())
        digest.update(value.float().numpy().tobytes())
    assert student.to_numpy().sha256() == digest.hexdigest()
