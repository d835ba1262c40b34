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
"""Fixes of the transposed convolutions."""

# TVMScript annotates with calls, which are no types to mypy.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from ._run import run
from .record import Fix, Kind, Probe


def _build_and_run_nhwc() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 2, 2, 3), "float32"), w: R.Tensor((3, 2, 2, 2), "float32")
        ) -> R.Tensor((1, 4, 4, 2), "float32"):
            return R.nn.conv2d_transpose(x, w, strides=2, data_layout="NHWC", kernel_layout="IOHW")

    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 2, 3), "float32")
    w = rng.standard_normal((3, 2, 2, 2), "float32")
    # The kernel is as large as the stride, so the windows do not overlap.
    expected = np.einsum("nhwi,ioab->nhawbo", x, w).reshape(1, 4, 4, 2)
    np.testing.assert_allclose(run(Module, x, w), expected, rtol=1e-5, atol=1e-6)


def _convert_to_packed() -> None:
    @I.ir_module
    class Transposed:
        @R.function
        def main(
            x: R.Tensor((1, 4, 4, 4), "float32"), w: R.Tensor((4, 4, 3, 3), "float32")
        ) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                out = R.nn.conv2d_transpose(x, w)
                R.output(out)
            return out

    @I.ir_module
    class AfterPackedConv:
        @R.function
        def main(
            x: R.Tensor((1, 4, 4, 4), "float32"),
            v: R.Tensor((4, 4, 1, 1), "float32"),
            w: R.Tensor((4, 4, 3, 3), "float32"),
        ) -> R.Tensor((1, 4, 6, 6), "float32"):
            with R.dataflow():
                lv = R.nn.conv2d(x, v)
                out = R.nn.conv2d_transpose(lv, w)
                R.output(out)
            return out

    requests: list[tuple[tvm.IRModule, dict[str, list[str]]]] = [
        (Transposed, {"relax.nn.conv2d_transpose": ["NCHW4c", "IOHW4i4o"]}),
        (AfterPackedConv, {"relax.nn.conv2d": ["NCHW4c", "OIHW4i4o"]}),
    ]
    for module, request in requests:
        converted = relax.transform.ConvertLayout(request)(module)
        relax.analysis.well_formed(converted)
        tvm.ir.assert_structural_equal(converted["main"].ret_ty, module["main"].ret_ty)


def _infer_type_with_output_padding() -> None:
    x = relax.Var("x", R.Tensor((1, 2, 4, 4), "float32"))
    w = relax.Var("w", R.Tensor((2, 3, 3, 3), "float32"))
    call = relax.op.nn.conv2d_transpose(x, w, strides=1, dilation=2, output_padding=1)
    inferred = relax.BlockBuilder().normalize(call).ty
    # (4 - 1) * stride + (3 - 1) * dilation + output_padding + 1
    tvm.ir.assert_structural_equal(inferred, relax.TensorType((1, 3, 9, 9), "float32"))


LEGALIZE = Fix(
    id="conv2d-transpose-legalize",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="conv2d_transpose lowers in NCHW and NHWC with every kernel layout",
    upstream=(17890, 19694),
    probe=Probe(
        stock=_build_and_run_nhwc,
        fixed=_build_and_run_nhwc,
        symptom=re.compile(r"InternalError: CodeGenVM cannot emit .*conv2d_transpose", re.DOTALL),
    ),
)

INFER_LAYOUT = Fix(
    id="conv2d-transpose-infer-layout",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="ConvertLayout to a packed layout leaves conv2d_transpose unpacked and does not throw",
    upstream=(17968, 18629),
    probe=Probe(
        stock=_convert_to_packed,
        fixed=_convert_to_packed,
        symptom=re.compile(r"InternalError: .*Layouts must have the same size", re.DOTALL),
    ),
)

OUTPUT_PADDING = Fix(
    id="conv2d-transpose-output-padding",
    family="conv-transpose",
    kind=Kind.OPERATOR_ATTRIBUTE,
    summary="conv2d_transpose takes an output_padding below the dilation, as PyTorch does",
    upstream=(19842,),
    probe=Probe(
        stock=_infer_type_with_output_padding,
        fixed=_infer_type_with_output_padding,
        symptom=re.compile(r"ValueError: .*output padding less than the strides"),
    ),
)
