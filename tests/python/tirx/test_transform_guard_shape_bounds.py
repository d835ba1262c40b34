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
"""GuardShapeBounds."""

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import tirx as T

from helpers.relax_modules import build, call, integers, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches
from tvm_fixes.tirx.transform import GuardShapeBounds
from tvm_fixes.tirx.transform.guard_shape_bounds import FIX_ID


@I.ir_module
class Before:
    @T.prim_func
    def main(
        whole: T.handle, rest: T.handle, more: T.handle, out: T.Buffer((T.int64(1),), "int64")
    ):
        n = T.int64()
        x = T.match_buffer(whole, (n,), "float32")
        y = T.match_buffer(rest, (n * 2 - 4,), "float32")
        z = T.match_buffer(more, (n * 4 - 5, n * 2 + 1, n - 3, 8), "float32")
        if n >= 4:
            out[0] = T.int64(1)
        else:
            out[0] = T.int64(0)
        if n >= 2:
            x[0] = y[0] + z[0, 0, 0, 0]


@I.ir_module
class Expected:
    @T.prim_func
    def main(
        whole: T.handle, rest: T.handle, more: T.handle, out: T.Buffer((T.int64(1),), "int64")
    ):
        n = T.int64()
        x = T.match_buffer(whole, (n,), "float32")
        y = T.match_buffer(rest, ((n - 2) * 2,), "float32")
        z = T.match_buffer(more, ((n - 2) * 4 + 3, n * 2 + 1, n - 3, 8), "float32")
        if n >= 4:
            out[0] = T.int64(1)
        else:
            out[0] = T.int64(0)
        if n >= 2:
            x[0] = y[0] + z[0, 0, 0, 0]


def guarded(mod):
    with tvm.target.Target("llvm"):
        return GuardShapeBounds()(mod)


def test_before_and_after():
    tvm.ir.assert_structural_equal(guarded(Before), Expected)
    assert guarded(Expected).same_as(Expected)


def test_switch():
    with switches.without([FIX_ID]):
        assert guarded(Before).same_as(Before)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_conditions_are_kept(n):
    @I.ir_module
    class Module:
        @T.prim_func
        def main(whole: T.handle, rest: T.handle, out: T.Buffer((T.int64(1),), "int64")):
            n = T.int64()
            x = T.match_buffer(whole, (n,), "float32")
            y = T.match_buffer(rest, (n * 3 - 7,), "float32")
            if n * 3 - 7 >= 4:
                out[0] = T.int64(1)
            else:
                out[0] = T.int64(0)
            y[0] = x[0]

    library = tvm.compile(guarded(Module), "llvm")
    x, y = (np.ones(count, "float32") for count in (n, n * 3 - 7))
    out = tvm.runtime.tensor(np.full(1, -1))
    library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(y), out)
    np.testing.assert_array_equal(out.numpy(), [n * 3 - 7 >= 4])


def test_transposed_convolution():
    """With 2 columns, the result of a convolution in NHWC is not transposed in vectors."""
    width = tirx.Var("m", "int64")
    weight = integers(4, 4, 3, 1).astype("float32")

    def convolution(_builder, x):
        padding = [1, 1, 2, 2]
        return relax.op.nn.conv2d_transpose(x, relax.const(weight), strides=(3, 2), padding=padding)

    mod = build({"x": tensor(5, 4, 4, width)}, convolution)
    built = [
        relax.build(mod, "llvm", relax_pipeline=pipeline(layout=layout))
        for layout in ("NHWC", "NCHW")
    ]
    for columns in (3, 4, 5, 7):
        x = integers(5, 4, 4, columns).astype("float32")
        got, wanted = (call(relax.VirtualMachine(one, tvm.cpu()), "main", x) for one in built)
        np.testing.assert_array_equal(got, wanted)
        assert got.shape == (5, 4, 9, columns * 2 - 4)


if __name__ == "__main__":
    tvm.testing.main()
