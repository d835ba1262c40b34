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

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers import relax_modules as helpers
from helpers.relax_modules import cpu
from tvm_fixes import verify
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import InsertRuntimeChecks, LowerAssertOp


@I.ir_module
class Scalars:
    @R.function
    def main(x: R.Tensor((3,), "int32"), c: R.Tensor((), "bool")) -> R.Tensor((3,), "int32"):
        R.func_attr({"relax.force_pure": True})
        greatest = R.max(x)
        wide = R.astype(greatest, "int64")
        small = R.less(wide, R.const(8, "int64"))
        ok = R.logical_and(small, c)
        R.assert_op(ok, [wide, R.const(8, "int64")], format="x: got {}, less than {}")
        return x


def test_computations_for_an_assertion_move_into_its_kernel():
    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def assert_op(
            value0: T.Buffer((), "int32", layout=None), value1: T.Buffer((), "bool", layout=None)
        ):
            if not (T.Cast("int64", value0[()]) < T.int64(8) and value1[()]):
                T.call_packed(
                    "relax.run.assert_op",
                    T.bool(False),
                    "x: got {}, less than {}",
                    T.Cast("int64", value0[()]),
                    T.int64(8),
                )

        @R.function
        def main(x: R.Tensor((3,), "int32"), c: R.Tensor((), "bool")) -> R.Tensor((3,), "int32"):
            R.func_attr({"relax.force_pure": True})
            cls = Expected
            greatest = R.max(x)
            cls.assert_op(greatest, c)
            return x

    lowered = LowerAssertOp()(Scalars)
    assert not verify(lowered).errors
    tvm.ir.assert_structural_equal(lowered, Expected, map_free_vars=True)


def test_numbers_are_parameters():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor(("m", 3), "float32")) -> R.Tuple():
            n, m = T.int64(), T.int64()
            R.func_attr({"relax.force_pure": True})
            x_ = R.match_cast(x, R.Tensor((n, 3), "float32"))
            y_ = R.match_cast(y, R.Tensor((m, 3), "float32"))
            R.assert_op(n == m, [n, m], format="{} and {}")
            return R.tuple()

    run = build(Before)
    run(np.zeros((2, 3), "float32"), np.zeros((2, 3), "float32"))
    with pytest.raises(AssertionError, match="2 and 4"):
        run(np.zeros((2, 3), "float32"), np.zeros((4, 3), "float32"))


def build(mod):
    executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return lambda *arrays: machine["main"](*(tvm.runtime.tensor(array) for array in arrays))


def test_runs():
    run = build(Scalars)
    x, holds = np.array([1, 7, 3], "int32"), np.array(True)
    np.testing.assert_array_equal(run(x, holds).numpy(), x)
    with pytest.raises(AssertionError, match="x: got 7, less than 8"):
        run(x, np.array(False))
    with pytest.raises(AssertionError, match="x: got 9, less than 8"):
        run(x + 2, holds)


def test_other_values_are_kept():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "int32"), c: R.Tensor((), "bool")) -> R.Tensor((3,), "int32"):
            R.func_attr({"relax.force_pure": True})
            R.assert_op(c, [x], format="got {}")
            return x

    tvm.ir.assert_structural_equal(LowerAssertOp()(Before), Before)
    with pytest.raises(AssertionError, match=r"got .*1.*2.*3"):
        build(Before)(np.array([1, 2, 3], "int32"), np.array(False))


def test_nothing_to_do():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3,), "int32")) -> R.Tensor((3,), "int32"):
            return R.add(x, x)

    assert LowerAssertOp()(Before).same_as(Before)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_operands_of_a_condition_become_block_outputs(dtype):
    mod = helpers.build(
        {"x": helpers.tensor(10, 4), "i": helpers.tensor(3, dtype=dtype)},
        lambda builder, x, i: builder.emit(relax.op.take(x, i, axis=0)),
    )
    lowered = LowerAssertOp()(InsertRuntimeChecks()(mod))
    assert "R.assert_op" not in str(lowered)
    assert not verify(lowered).errors
    x = np.arange(40, dtype="float32").reshape(10, 4)
    got = helpers.run(mod, x, np.array([9, 0, 3], dtype), pipeline=pipeline(runtime_checks=True))
    np.testing.assert_array_equal(got, x[[9, 0, 3]])
    with pytest.raises(AssertionError, match="expected less than 10, got 1 to 10"):
        helpers.run(mod, x, np.array([9, 10, 1], dtype), pipeline=pipeline(runtime_checks=True))


if __name__ == "__main__":
    tvm.testing.main()
