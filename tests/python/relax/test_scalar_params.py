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
"""Numbers that fused kernels receive beside symbols of extents."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.onnx_graphs import onnx_runtime, text_model
from helpers.relax_modules import cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.relax.scalar_params import scalars_in_shapes

pytestmark = pytest.mark.filterwarnings("ignore")

# The rows of a slice are an expression of m, and a second slice begins at a computed row.
TWO_SLICES = """(float[m, 3] x, int64[1] first) => (float[k, 3] y) {
    begin = Constant <value = int64[1] {-3}> ()
    end = Constant <value = int64[1] {-2}> ()
    last = Constant <value = int64[1] {9}> ()
    axis = Constant <value = int64[1] {0}> ()
    part = Slice(x, begin, end, axis)
    sum = Add(part, part)
    y = Slice(sum, first, last, axis)
}"""


def test_a_slice_of_a_slice() -> None:
    model = text_model(TWO_SLICES)
    mod = from_onnx(model)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for rows, first in (5, 0), (5, 1), (2, 0), (3, -1):
        x, place = np.ones((rows, 3), "float32"), np.array([first])
        got = vm["main"](*map(tvm.runtime.tensor, (x, place)))
        np.testing.assert_array_equal(got.numpy(), onnx_runtime(model, x, place)[0])


def test_numbers_of_fused_functions_become_symbols_of_the_shape() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def fused(
            x: R.Tensor(("k",), "float32"), first: T.int64, symbols: R.Shape(["n"])
        ) -> R.Tensor(("n",), "float32"):
            R.func_attr({"Primitive": True})
            n = T.int64()
            return R.full(R.shape([n]), R.const(0, "float32"))

        @R.function
        def main(x: R.Tensor(("k",), "float32"), shape: R.Shape(["first", "n"])) -> R.Tensor(
            ("n",), "float32"
        ):
            first, n = T.int64(), T.int64()
            cls = Before
            return cls.fused(x, first, R.shape([n]))

    after = scalars_in_shapes(Before)
    [fused] = [f for _, f in after.functions_items() if (f.attrs or {}).get("Primitive")]
    assert [str(param.ty) for param in fused.params] == [
        'R.Tensor((k,), dtype="float32")',
        "R.Shape([n, first])",
    ]
    *_, result = after["main"].body.blocks[0].bindings
    assert str(result.value.args[1]) == "R.shape([n, first])"
    tvm.ir.assert_structural_equal(scalars_in_shapes(after), after)


if __name__ == "__main__":
    tvm.testing.main()
