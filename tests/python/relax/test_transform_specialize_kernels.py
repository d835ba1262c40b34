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
"""Kernels with the extents of their calls."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, te, tirx

from helpers.onnx_graphs import assert_follows_onnx_runtime, normal, text_model
from helpers.relax_modules import build, run, tensor
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import SpecializeKernels


def doubled(x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *at: x(*at) * 2, name="doubled")


def program(*shape: tirx.Expr | int) -> tvm.IRModule:
    """A kernel of its own, and operators that are fused with it."""

    def emit(builder, x):
        y = builder.emit_te(doubled, builder.emit(relax.op.concat([x, x], 0)))
        return builder.emit(relax.op.exp(y))

    return build({"x": tensor(*shape)}, emit)


def kernel_types(mod: tvm.IRModule) -> list[str]:
    """The shapes of all buffers of the kernel."""
    kernel = next(f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc))
    types = [parameter.ty for parameter in kernel.params]
    return [str(list(ty.shape)) for ty in types if isinstance(ty, tirx.BufferType)]


@pytest.mark.parametrize("binding", [{"n": 3}, {"n": 3, "m": 4}])
def test_bound_symbols_are_constants_of_kernels(binding):
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = relax.transform.BindSymbolicVars(binding, "main")(program(n, m))
    after = SpecializeKernels()(mod)
    expected = program(*(binding.get(str(symbol.name), symbol) for symbol in (n, m)))
    assert kernel_types(after) == kernel_types(expected)
    assert kernel_types(mod) != kernel_types(expected)
    x = normal(3, 4)
    got = run(after, x, pipeline=pipeline())
    tvm.testing.assert_allclose(got, np.exp(np.concatenate([x, x]) * 2), rtol=1e-5)


def test_equal_symbols_are_one():
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    mod = relax.transform.BindSymbolicVars({m: n}, "main")(program(m, n))
    _, columns = SpecializeKernels()(mod)["main"].ret_ty.shape.values
    assert columns.same_as(n)
    x = normal(3, 3)
    got = run(SpecializeKernels()(mod), x, pipeline=pipeline())
    tvm.testing.assert_allclose(got, np.exp(np.concatenate([x, x]) * 2), rtol=1e-5)


def test_others_are_kept():
    mod = program(tirx.Var("n", "int64"), 4)
    assert SpecializeKernels()(mod).same_as(mod)


def test_a_name_that_a_later_node_makes_constant():
    """The one-hot result of Hardmax is fused with the norm, whose parameters say that m is 4."""
    model = text_model(
        """(float[n,m] x) => (float[?,?] y) <float[4] w = {1.0, 2.0, 3.0, 4.0}> {
        one = Hardmax (x)
        y = BatchNormalization (one, w, w, w, w) }""",
        17,
    )
    assert_follows_onnx_runtime(from_onnx, model, [normal(3, 4)], [normal(1, 4)])


if __name__ == "__main__":
    tvm.testing.main()
