# Licensed to the Apache Software Foundation (ASF) under one or more contributor license
# agreements.  See the NOTICE file distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file to you under the Apache License,
# Version 2.0 (the "License"); you may not use this file except in compliance with the
# License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the
# License is distributed on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND,
# either express or implied.  See the License for the specific language governing permissions
# and limitations under the License.
"""Fixes of layout conversion: permutes that ConvertLayout need not leave."""

# TVMScript annotates with calls, which are no types to mypy.
# mypy: disable-error-code="valid-type"

import re
from collections.abc import Callable

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from ..relax.analysis import activation_transforms
from ..relax.transform import FuseTransposeMatmul, PrepareLayout
from ._run import run
from .record import Fix, Kind, Probe


def _draw() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x, kernel, bias = (
        rng.standard_normal(shape, "float32") for shape in ((1, 4, 3, 5), (4, 4, 1, 1), (4,))
    )
    return x, kernel, bias


def _convolve_1x1(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    return np.einsum("oi,nihw->nohw", kernel[:, :, 0, 0], x)


def _convert_to_nhwc(module: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "OHWI"]})(module)


def _check_in_nhwc(module: tvm.IRModule, x: np.ndarray, expected: np.ndarray) -> None:
    """One permute where the activation enters, one where it leaves, and the right numbers."""
    # The identities that are left are dropped where the fixes are on.
    converted = PrepareLayout()(_convert_to_nhwc(module))
    count = len(activation_transforms(converted))
    assert count == 2, f"{count} permutes of activations where 2 suffice"
    np.testing.assert_allclose(run(converted, x), expected, rtol=1e-5, atol=1e-5)


def _convert_around_reshape() -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.reshape(lv, (1, 4, 15))
                lv2 = R.nn.relu(lv1)
                lv3 = R.reshape(lv2, (1, 4, 3, 5))
                out = R.nn.conv2d(lv3, kernel)
                R.output(out)
            return out

    expected = _convolve_1x1(np.maximum(_convolve_1x1(x, weight), 0), weight)
    _check_in_nhwc(Module, x, expected)


def _convert_around_permutes() -> None:
    x, weight, _ = _draw()
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.permute_dims(lv, [0, 2, 1, 3])
                lv2 = R.nn.relu(lv1)
                lv3 = R.permute_dims(lv2, [0, 2, 1, 3])
                out = R.nn.conv2d(lv3, kernel)
                R.output(out)
            return out

    expected = _convolve_1x1(np.maximum(_convolve_1x1(x, weight), 0), weight)
    _check_in_nhwc(Module, x, expected)


def _convert_around_squeeze() -> None:
    _, weight, _ = _draw()
    x = np.random.default_rng(1).standard_normal((1, 4, 3, 1), "float32")
    kernel = relax.const(weight)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 1), "float32")) -> R.Tensor((1, 4, 3), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                out = R.squeeze(lv, [-1])
                R.output(out)
            return out

    expected = _convolve_1x1(x, weight).squeeze(-1)
    np.testing.assert_allclose(run(_convert_to_nhwc(Module), x), expected, rtol=1e-5, atol=1e-5)


def _convert_around_norm() -> None:
    x, weight, _ = _draw()
    scale_and_offset = np.random.default_rng(1).standard_normal((2, 4, 3, 5), "float32")
    kernel, scale, offset = map(relax.const, (weight, *scale_and_offset))

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                out = R.nn.layer_norm(lv, scale, offset, axes=[1, 2, 3])
                R.output(out)
            return out

    convolved = _convolve_1x1(x, weight)
    normal = (convolved - convolved.mean()) / np.sqrt(convolved.var() + 1e-5)
    expected = normal * scale_and_offset[0] + scale_and_offset[1]
    np.testing.assert_allclose(run(_convert_to_nhwc(Module), x), expected, rtol=1e-4, atol=1e-5)


def _convert_bias_and_dead_code(prepare: Callable[[tvm.IRModule], tvm.IRModule]) -> None:
    x, weight, offsets = _draw()
    kernel, bias = relax.const(weight), relax.const(offsets)

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 5), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, kernel)
                lv1 = R.reshape(bias, (1, 4, 1, 1))
                lv2 = R.add(lv, lv1)
                unused = R.zeros_like(lv2)  # noqa: F841
                out = R.nn.conv2d(lv2, kernel)
                R.output(out)
            return out

    expected = _convolve_1x1(_convolve_1x1(x, weight) + offsets.reshape(4, 1, 1), weight)
    _check_in_nhwc(prepare(Module), x, expected)


def _convert_alone() -> None:
    _convert_bias_and_dead_code(lambda module: module)


def _prepare_and_convert() -> None:
    _convert_bias_and_dead_code(PrepareLayout())


def _multiply_by_own_transpose(fuse: tvm.transform.Pass) -> None:
    x, _, _ = _draw()

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 4, 3, 5), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
            with R.dataflow():
                transposed = R.permute_dims(x, [0, 1, 3, 2])
                out = R.matmul(x, transposed)
                R.output(out)
            return out

    np.testing.assert_allclose(run(fuse(Module), x), x @ x.swapaxes(2, 3), rtol=1e-5, atol=1e-5)


def _fuse_stock() -> None:
    _multiply_by_own_transpose(relax.transform.FuseTransposeMatmul())


def _fuse_guarded() -> None:
    _multiply_by_own_transpose(FuseTransposeMatmul())


RESHAPE_INFER_LAYOUT = Fix(
    id="reshape-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="a reshape that merges or splits spatial axes follows its operand's layout",
    upstream=(),
    probe=Probe(
        stock=_convert_around_reshape,
        fixed=_convert_around_reshape,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

PERMUTE_DIMS_INFER_LAYOUT = Fix(
    id="permute-dims-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="a permute in the model is a change of layout, not a transposition",
    upstream=(),
    probe=Probe(
        stock=_convert_around_permutes,
        fixed=_convert_around_permutes,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

SQUEEZE_INFER_LAYOUT = Fix(
    id="squeeze-infer-layout",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="ConvertLayout takes a squeeze of axes that are counted from the end",
    upstream=(),
    probe=Probe(
        stock=_convert_around_squeeze,
        fixed=_convert_around_squeeze,
        # A write out of bounds: what comes of it is not certain.
        symptom=re.compile(r"bad_alloc|InternalError|SIG\w+: crashed"),
    ),
)

LAYOUT_GUARDS = Fix(
    id="layout-guards",
    family="layout",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="an operator that goes wrong in a converted layout keeps the original one",
    upstream=(),
    probe=Probe(
        stock=_convert_around_norm,
        fixed=_convert_around_norm,
        # Reads out of bounds: what comes of them is not certain.
        symptom=re.compile(r"Not equal to tolerance|SIG\w+: crashed"),
    ),
)

PREPARE_LAYOUT = Fix(
    id="prepare-layout",
    family="layout",
    kind=Kind.PASS,
    summary="dead code is removed and reshape(const) folded before ConvertLayout",
    upstream=(),
    probe=Probe(
        stock=_convert_alone,
        fixed=_prepare_and_convert,
        symptom=re.compile(r"AssertionError: \d permutes"),
    ),
)

FUSE_TRANSPOSE_MATMUL = Fix(
    id="fuse-transpose-matmul",
    family="layout",
    kind=Kind.PASS,
    summary="FuseTransposeMatmul leaves matmul(x, x^T) alone in place of raising",
    upstream=(),
    probe=Probe(
        stock=_fuse_stock,
        fixed=_fuse_guarded,
        symptom=re.compile(r"IndexError: Index out of range"),
    ),
)
