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
"""Symbols that fused kernels receive as shapes stay symbols."""

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
from tvm_fixes.relax.kept_symbols import keep_symbols

pytestmark = pytest.mark.filterwarnings("ignore")

DISTANCES = """(float[n] a, float[m] b) => (float[k] c, int64[k, k] y) {
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    first = Constant <value = int64[1] {0}> ()
    second = Constant <value = int64[1] {1}> ()
    c = Add(a, b)
    shape = Shape(c)
    length = Squeeze(shape)
    positions = Range(zero, length, one)
    rows = Unsqueeze(positions, second)
    columns = Unsqueeze(positions, first)
    y = Sub(rows, columns)
}"""
"""Distances between the positions along an axis that two operands broadcast to."""


def test_an_extent_of_a_fused_kernel() -> None:
    model = text_model(DISTANCES)
    mod = from_onnx(model)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for n, m in (3, 1), (1, 4), (5, 5), (1, 1):
        a, b = (np.arange(extent, dtype="float32") for extent in (n, m))
        got = vm["main"](*map(tvm.runtime.tensor, (a, b)))
        for one, expected in zip(got, onnx_runtime(model, a, b), strict=True):
            np.testing.assert_array_equal(one.numpy(), expected)


def test_only_symbols_of_fused_kernels_change() -> None:
    @I.ir_module
    class Before:
        @R.function(private=True)
        def fused(shape: R.Shape(["k"])) -> R.Tensor(("k",), dtype="int64"):
            k = T.int64()
            R.func_attr({"Primitive": True})
            return R.zeros(R.shape([k]), dtype="int64")

        @R.function
        def main(x: R.Tensor(("n",), dtype="int64")) -> R.Tensor(dtype="int64", ndim=1):
            n, k, other = T.int64(), T.int64(), T.int64()
            cls = Before
            double = R.shape([n * 2])
            _ = R.match_cast(double, R.Shape([k]))
            more = R.shape([n + 1])
            _1 = R.match_cast(more, R.Shape([other]))
            return cls.fused(R.shape([k]))

    after = keep_symbols(Before)
    names = [
        value.args[0].global_symbol
        for block in after["main"].body.blocks
        for binding in block.bindings
        if isinstance(value := binding.value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    ]
    assert names == ["relax.run.shape_to_tensor", "vm.builtin.tensor_to_shape"]
    tvm.ir.assert_structural_equal(keep_symbols(after), after)


if __name__ == "__main__":
    tvm.testing.main()
