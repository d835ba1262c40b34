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
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import build, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.transform import SplitDataflow
from tvm_fixes.relax.transform.split_dataflow import FIX_ID
from tvm_fixes.support import switches


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((1,), "int64")) -> R.Tensor(dtype="int64", ndim=1):
        n = T.int64()
        with R.dataflow():
            y = R.add(x, R.const(1, "int64"))
            z = R.add(x, R.const(2, "int64"))
            shape = R.tensor_to_shape(z)
            _ = R.match_cast(shape, R.Shape([n]))
            numbers = R.arange(0, n, 1, dtype="int64")
            out = R.multiply(numbers, y)
            R.output(out)
        return out


@I.ir_module
class Checked:
    """Its match_cast binds nothing new."""

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")) -> R.Tensor(
        ("n",), "float32"
    ):
        n = T.int64()
        with R.dataflow():
            z = R.match_cast(y, R.Tensor((n,), "float32"))
            w = R.add(x, z)
            out = R.exp(w)
            R.output(out)
        return out


@I.ir_module
class ReadTwice:
    """Fused with the addition, the product would come after the reader of its check."""

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        with R.dataflow():
            y = R.multiply(x, x)
            z = R.match_cast(y, R.Tensor((T.max(n, 1),), "float32"))
            highest = R.max(z, axis=0, keepdims=True)
            out = R.add(y, highest)
            R.output(out)
        return out


def blocks(mod):
    return [isinstance(block, relax.DataflowBlock) for block in mod["main"].body.blocks]


def test_symbol_definitions_are_between_blocks():
    after = SplitDataflow()(Before)
    assert blocks(after) == [True, False, True]
    assert [len(block.bindings) for block in after["main"].body.blocks] == [3, 1, 2]
    relax.analysis.well_formed(after)  # raises an error if it is not
    shared = after["main"].body.blocks[0].bindings[0].var
    assert not isinstance(shared, relax.DataflowVar)
    assert after["main"].body.blocks[2].bindings[1].value.args[1].same_as(shared)
    others = [binding.var for binding in after["main"].body.blocks[0].bindings[1:2]]
    assert all(isinstance(variable, relax.DataflowVar) for variable in others)


def test_a_field_that_is_checked_and_read():
    def emit(bb, x):
        field = bb.emit(relax.TupleGetItem(bb.emit(relax.op.split(x, 3, 0)), 0))
        numbers = bb.emit(relax.op.astype(field, "int32"))
        # The match_cast checks that it has elements.
        return relax.Tuple(
            [bb.emit(relax.op.negative(numbers)), bb.emit(relax.op.argmax(field, 1))]
        )

    mod = build({"x": tensor(3, tirx.Var("m", "int64"))}, emit)
    x = np.float32([[1, 3, 2, 0], [0, 1, 2, 3], [3, 2, 1, 0]])
    numbers, place = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(numbers, -x[:1])
    assert place.tolist() == [1]


def test_numbers():
    np.testing.assert_array_equal(run(Before, np.array([2]), pipeline=pipeline()), [0, 3, 6, 9])


def test_a_runtime_check_does_not_split_the_block():
    assert SplitDataflow()(Checked).same_as(Checked)


def test_the_pass_is_idempotent():
    once = SplitDataflow()(Before)
    assert SplitDataflow()(once).same_as(once)


def test_switch_restores_stock(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert SplitDataflow()(Before).same_as(Before)
    with pytest.raises(Exception, match=r"not been computed|not defined"):
        run(Before, np.array([2]), pipeline=pipeline())


def test_checked_values_are_computed_before_the_check():
    assert blocks(SplitDataflow()(ReadTwice)) == [True, False, True]
    x = np.arange(3, dtype="float32")
    got = run(ReadTwice, x, pipeline=pipeline())
    np.testing.assert_array_equal(got, x * x + 4)


@I.ir_module
class Guarded:
    """A cast whose symbol is in the extent of its value, and one whose symbol is new."""

    @R.function
    def main(x: R.Tensor(("n", 3), "float32"), y: R.Tensor((8, 3), "float32")):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            rows = R.strided_slice(y, [0], [T.max(0, 8 - n)], [8], assume_inbound=True)
            checked = R.match_cast(rows, R.Tensor((n, 3), "float32"))
            both = R.concat([x, checked])
            every = R.match_cast(both, R.Tensor((m, 3), "float32"))
            numbers = R.astype(R.arange(0, m, 1, dtype="int64"), "float32")
            out = R.add(every, R.expand_dims(numbers, 1))
            R.output(out)
        return out


def test_casts_to_other_extents():
    after = SplitDataflow()(Guarded)
    relax.analysis.well_formed(after)
    casts = [b for b in bindings(after["main"]) if isinstance(b, relax.MatchCast)]
    assert [isinstance(cast.value.ty.shape, relax.ShapeExpr) for cast in casts] == [True, False] * 2
    assert SplitDataflow()(after).same_as(after)
    x = np.arange(15, dtype="float32").reshape(5, 3)
    y = -np.arange(24, dtype="float32").reshape(8, 3)
    got = run(Guarded, x, y, pipeline=pipeline())
    numbers = np.arange(10, dtype="float32")[:, None]
    np.testing.assert_array_equal(got, np.concatenate([x, y[3:]]) + numbers)


if __name__ == "__main__":
    tvm.testing.main()
