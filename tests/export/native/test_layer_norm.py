"""The core's layer norm, as compiled for each kind of processor, against float64 NumPy."""

import ctypes
import platform

import numpy as np
import pytest
from native_core import CORE, STRICT
from programs import run
from tiny_models import once

from msdc.machine import read_machine

SOURCE = """
#include "layer_norm.h"
extern "C" void run(int way, const float* x, long rows, long width, const float* weight, const float* bias, float* y,
                    float* means, float* scales) {
  const msdc::LayerNorm norm = {x,    static_cast<size_t>(rows), static_cast<size_t>(width), weight, bias, 1e-5f,
                                y,    means, scales};
  if (way == 0) return msdc::layer_norm(norm);
  if (way == 1) return msdc::run_layer_norm<msdc::Lanes4>(norm);
#ifdef __x86_64__
  if (way == 2) return msdc::layer_norm_avx2(norm);
  if (way == 3) return msdc::layer_norm_avx512(norm);
#endif
}
"""
WAYS = {"chosen": 0, "baseline": 1, "avx2": 2, "avx512f": 3}


def library(target):
    source = target.with_suffix(".cpp")
    source.write_text(SOURCE)
    run("g++", *STRICT, "-O2", "-shared", "-fPIC", f"-I{CORE / 'src'}", source, "-o", target)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("width", [1, 15, 64, 65, 200, 384])
def test_rows_are_normalised(way, width):
    if way.startswith("avx") and (platform.machine() != "x86_64" or not {"fma", way} <= set(read_machine().isa)):
        pytest.skip(f"this processor has no {way}")
    random = np.random.default_rng(width)
    # An odd offset: rows of a program's memory are aligned to 16 bytes, not to 64.
    x_RD = (random.standard_normal(5 * width + 1).astype(np.float32)[1:] * 3 + 20).reshape(5, width)
    weight_D, bias_D = random.standard_normal((2, width)).astype(np.float32)
    y_RD, means_R, scales_R = np.empty_like(x_RD), np.empty(5, np.float32), np.empty(5, np.float32)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (x_RD, weight_D, bias_D, y_RD, means_R, scales_R)]
    core = ctypes.CDLL(str(once("liblayer_norm.so", library)))
    core.run(WAYS[way], pointers[0], ctypes.c_long(5), ctypes.c_long(width), *pointers[1:])
    exact_RD = x_RD.astype(np.float64)
    mean_R, scale_R = exact_RD.mean(1), 1 / np.sqrt(exact_RD.var(1) + 1e-5)
    expected_RD = (exact_RD - mean_R[:, None]) * scale_R[:, None] * weight_D + bias_D
    np.testing.assert_allclose(y_RD, expected_RD, rtol=1e-5, atol=3e-5)
    np.testing.assert_allclose(means_R, mean_R, rtol=1e-6)
    np.testing.assert_allclose(scales_R, scale_R, rtol=2e-5)
