# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.

import numpy as np
import pytest

import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax.backend import DispatchSortScan


def dispatch(op, shape, axis, exclusive):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            gv = bb.emit_output(op(x, axis=axis, exclusive=exclusive))
        bb.emit_func_output(gv)
    with tvm.target.Target("llvm"):
        return DispatchSortScan()(bb.get())


@pytest.mark.parametrize(
    "op, axis, exclusive",
    [
        (relax.op.cumsum, 0, False),
        (relax.op.cumprod, 1, True),
        (relax.op.cumprod, None, False),
    ],
)
def test_empty_at_run_time(op, axis, exclusive):
    n = tirx.Var("n", "int64")
    shape, empty = ((4, n), (4, 0)) if axis == 1 else ((n, 4), (0, 4))
    mod = dispatch(op, shape, axis, exclusive)
    (kernel,) = (func for func in mod.functions.values() if isinstance(func, tirx.PrimFunc))
    scan = tvm.compile(kernel.with_attr("global_symbol", "scan"), "llvm")["scan"]

    # The result is an empty view at the start of other data.
    data = tvm.runtime.tensor(np.full((4, 4), 7, "float32"))
    result = data._create_view((0,) if axis is None else empty)
    scan(tvm.runtime.tensor(np.ones((4, 4), "float32"))._create_view(empty), result)
    tvm.testing.assert_allclose(data.numpy(), np.full((4, 4), 7, "float32"))


@pytest.mark.parametrize("shape, axis", [((4, 0), 1), ((4, 0), None)])
def test_empty_at_compile_time(shape, axis):
    mod = dispatch(relax.op.cumsum, shape, axis, exclusive=False)
    vm = relax.VirtualMachine(relax.build(mod, "llvm"), tvm.cpu())
    got = vm["main"](tvm.runtime.tensor(np.empty(shape, "float32"))).numpy()
    assert got.shape == np.cumsum(np.empty(shape, "float32"), axis).shape


if __name__ == "__main__":
    tvm.testing.main()
