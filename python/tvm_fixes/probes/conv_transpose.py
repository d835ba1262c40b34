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
"""Probes of convolutions and transposed convolutions."""

import re
from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from ..fixes.conv import (
    CONV_INFER_LAYOUT,
    CONV_LEGALIZE,
    CONV_TRANSPOSE_INFER_LAYOUT,
    CONV_TRANSPOSE_LEGALIZE,
    CONV_TRANSPOSE_OUTPUT_PADDING,
    FOLD_PAD_INTO_CONV,
    TRIM_CONV_KERNEL,
)
from ..relax.transform import FoldPadIntoConv, TrimConvKernel
from ._run import run
from .probe import Probe, register


def _run(operator: str, data: np.ndarray, kernel: np.ndarray, **attrs: object) -> np.ndarray:
    """Build and run one call of a convolution."""
    operands = {"x": data, "w": kernel}
    params = [
        relax.Var(name, relax.TensorType(array.shape, str(array.dtype)))
        for name, array in operands.items()
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        call = getattr(relax.op.nn, operator)(*params, **attrs)
        builder.emit_func_output(builder.emit(call))
    return run(builder.get(), data, kernel)


def _run_conv_transpose() -> None:
    rng = np.random.default_rng(0)
    # A kernel as large as the stride: the windows do not overlap.
    layouts = {"data_layout": "NHWC", "kernel_layout": "IOHW"}
    x = rng.standard_normal((1, 2, 2, 3), "float32")
    w = rng.standard_normal((3, 2, 2, 2), "float32")
    expected = np.einsum("nhwi,ioab->nhawbo", x, w).reshape(1, 4, 4, 2)
    got = _run("conv2d_transpose", x, w, strides=2, **layouts)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

    layouts = {"data_layout": "NCW4c", "kernel_layout": "IOW", "out_layout": "NWC"}
    x = rng.standard_normal((1, 2, 3, 4), "float32")
    w = rng.standard_normal((8, 2, 2), "float32")
    expected = np.einsum("nxwi,xioa->nwao", x, w.reshape(2, 4, 2, 2)).reshape(1, 6, 2)
    got = _run("conv1d_transpose", x, w, strides=2, **layouts)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def _check_pads(lowering: tvm.transform.Pass) -> None:
    """Check that no kernel pads the data of a convolution."""
    x = relax.Var("x", relax.TensorType((1, 8, 6, 6), "float32"))
    w = relax.Var("w", relax.TensorType((8, 8, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, w]):
        with builder.dataflow():
            padded = builder.emit(relax.op.nn.pad(x, [0, 0, 0, 0, 0, 1, 0, 1]))
            out = builder.emit_output(relax.op.nn.conv2d(padded, w, strides=[2, 2]))
        builder.emit_func_output(out)
    with tvm.target.Target("llvm"):
        lowered = lowering(builder.get())
    names = [variable.name_hint for variable in lowered.get_global_vars()]
    assert "pad" not in names, "a kernel pads the data"


def _pad_in_conv() -> None:
    passes = [FoldPadIntoConv(), relax.transform.LegalizeOps()]
    _check_pads(tvm.transform.Sequential(passes))


def _check_taps(passes: Sequence[tvm.transform.Pass]) -> None:
    x = relax.Var("x", relax.TensorType((1, 4, 8, 8), "float32"))
    w = relax.const(np.ones((4, 4, 3, 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            conv = relax.op.nn.conv2d(x, w, padding=[9] * 4, dilation=[9, 9])
            out = builder.emit_output(conv)
        builder.emit_func_output(out)
    with tvm.target.Target("llvm"):
        lowered = tvm.transform.Sequential([*passes, relax.transform.LegalizeOps()])(builder.get())
    padded = [v.name_hint for v in lowered.get_global_vars() if "26" in lowered[v].script()]
    assert not padded, "the data is padded to 26 x 26"


def _run_conv() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 3, 3, 4), "float32")
    w = rng.standard_normal((2, 2, 1, 1, 4, 4), "float32")
    expected = np.einsum("nxhwi,yxabio->nyhwo", x, w)
    got = _run("conv2d", x, w, data_layout="NCHW4c", kernel_layout="OIHW4i4o")
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

    x = rng.standard_normal((1, 1, 4, 6), "float32")
    got = _run("conv2d", x, np.ones((1, 1, 1, 1), "float32"), strides=(3, 2), data_layout="NCWH")
    np.testing.assert_array_equal(got, x[:, :, ::2, ::3])

    x, w = np.ones((1, 4096, 1, 1), "float16"), np.ones((1, 4096, 1, 1), "float16")
    np.testing.assert_array_equal(_run("conv2d", x, w), np.full((1, 1, 1, 1), 4096, "float16"))


def _convert_to_packed(operator: str, requests: list[tuple[list[str], int, bool]]) -> None:
    """Convert a convolution with 8 input channels to packed layouts.

    A request consists of layouts, the number of output channels, and whether packing is possible.
    """
    for layouts, channels, possible in requests:
        rank = len(layouts[0].rstrip("4c"))
        op = getattr(relax.op.nn, operator.format(rank - 2))
        kernel = (8, channels) if "transpose" in operator else (channels, 8)
        x = relax.Var("x", relax.TensorType((1, 8) + (3,) * (rank - 2), "float32"))
        w = relax.Var("w", relax.TensorType(kernel + (3,) * (rank - 2), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x, w]):
            with builder.dataflow():
                out = builder.emit_output(op(x, w))
            builder.emit_func_output(out)
        module = builder.get()
        request = {f"relax.nn.{op.__name__}": layouts}
        converted = relax.transform.ConvertLayout(request)(module)
        assert relax.analysis.check_well_formed(converted)
        tvm.ir.assert_structural_equal(converted["main"].ret_ty, module["main"].ret_ty)
        packed = f'data_layout="{layouts[0]}"' in converted.script()
        assert packed is possible, f"{op.__name__} to {layouts}: packed is {packed}"


def _convert_conv() -> None:
    _convert_to_packed(
        "conv{}d",
        [
            (["NCW4c", "OIW4i4o"], 8, True),
            (["NCHW4c", "OIHW4i"], 8, True),
            (["NCHW4c", "OIHW4i"], 6, False),
            (["NCDHW4c", "OIDHW4i4o"], 8, True),
        ],
    )


def _convert_conv_transpose() -> None:
    _convert_to_packed(
        "conv{}d_transpose",
        [
            (["NCW4c", "IOW4i4o"], 8, True),
            (["NCHW4c", "IOHW4i4o"], 8, True),
            (["NCHW4c", "IOHW4i"], 6, False),
            (["NCDHW4c", "IODHW4i4o"], 8, True),
        ],
    )


def _infer_type_with_output_padding() -> None:
    for rank, op in enumerate(
        (relax.op.nn.conv1d_transpose, relax.op.nn.conv2d_transpose, relax.op.nn.conv3d_transpose),
        start=1,
    ):
        x = relax.Var("x", relax.TensorType((1, 2) + (4,) * rank, "float32"))
        w = relax.Var("w", relax.TensorType((2, 3) + (3,) * rank, "float32"))
        call = op(x, w, strides=1, dilation=2, output_padding=1)
        inferred = relax.BlockBuilder().normalize(call).ty
        # (4 - 1) * stride + (3 - 1) * dilation + output_padding + 1
        expected = relax.TensorType((1, 3) + (9,) * rank, "float32")
        tvm.ir.assert_structural_equal(inferred, expected)


_CONVERSION_FAILS = re.compile(
    r"InternalError: .*Axis swap only"
    r"|InternalError: .*Layouts must have the same size"
    r"|InternalError: .*should not rewrite",
    re.DOTALL,
)

register(
    CONV_TRANSPOSE_LEGALIZE,
    Probe(
        stock=_run_conv_transpose,
        fixed=_run_conv_transpose,
        symptom=re.compile(r"InternalError: CodeGenVM cannot emit .*conv2d_transpose", re.DOTALL),
    ),
)

register(
    CONV_LEGALIZE,
    Probe(
        stock=_run_conv,
        fixed=_run_conv,
        symptom=re.compile(r"InternalError: CodeGenVM cannot emit .*conv2d", re.DOTALL),
    ),
)

register(
    FOLD_PAD_INTO_CONV,
    Probe(
        stock=lambda: _check_pads(relax.transform.LegalizeOps()),
        fixed=_pad_in_conv,
        symptom=re.compile(r"AssertionError: a kernel pads the data"),
    ),
)

register(
    TRIM_CONV_KERNEL,
    Probe(
        stock=lambda: _check_taps([]),
        fixed=lambda: _check_taps([TrimConvKernel()]),
        symptom=re.compile(r"AssertionError: the data is padded to 26 x 26"),
    ),
)

register(
    CONV_TRANSPOSE_INFER_LAYOUT,
    Probe(
        stock=_convert_conv_transpose,
        fixed=_convert_conv_transpose,
        symptom=_CONVERSION_FAILS,
    ),
)

register(
    CONV_TRANSPOSE_OUTPUT_PADDING,
    Probe(
        stock=_infer_type_with_output_padding,
        fixed=_infer_type_with_output_padding,
        symptom=re.compile(r"ValueError: .*output padding less than the strides"),
    ),
)

register(
    CONV_INFER_LAYOUT, Probe(stock=_convert_conv, fixed=_convert_conv, symptom=_CONVERSION_FAILS)
)
