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
"""Fields of known tuples are read directly; symbols keep their names."""

import numpy as np
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers.relax_modules import run
from tvm_fixes.relax.transform import ReadTupleFields


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tuple(R.Tensor((2,), "float32"))) -> R.Tensor(
        (2,), "float32"
    ):
        with R.dataflow():
            pair = (x, x)
            first = pair[0]
            given = y[0]
            out = R.add(first, given)
            R.output(out)
        return out


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor((2,), "float32"), y: R.Tuple(R.Tensor((2,), "float32"))) -> R.Tensor(
        (2,), "float32"
    ):
        with R.dataflow():
            pair = (x, x)
            given = y[0]
            out = R.add(x, given)
            R.output(out)
        return out


@I.ir_module
class Named:
    """A symbol stands for the sum of two; a kernel takes it as a scalar."""

    @R.function
    def main(a: R.Tensor(("n",), "float32"), b: R.Tensor(("m",), "float32")) -> R.Tensor(
        None, "float32", ndim=1
    ):
        n = T.int64()
        m = T.int64()
        k = T.int64()
        shape: R.Shape([k]) = R.match_cast(R.shape([n + m]), R.Shape([k]))
        with R.dataflow():
            ones = R.broadcast_to(R.const(1.0), R.shape([k]))
            pair = (R.cumsum(ones, axis=0), a)
            padded = R.nn.pad(pair[0], [0, 3])
            out = R.add(R.exp(padded), R.const(1.0))
            R.output(out)
        return out


def test_before_and_expected() -> None:
    tvm.ir.assert_structural_equal(ReadTupleFields()(Before), Expected)


def test_another_name_of_a_variable() -> None:
    @R.function
    def named(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = a
            out = R.tanh(b)
            R.output(out)
        return out

    @R.function
    def expected(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            out = R.tanh(a)
            R.output(out)
        return out

    before, after = (
        tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
        for function in (named, expected)
    )
    tvm.ir.assert_structural_equal(ReadTupleFields()(before), after)


def test_a_field_that_is_freed_before_the_read() -> None:
    """TVM's VMShapeLower reads the results after their registers are cleared."""

    @R.function(pure=False)
    def freed(x: R.Tensor(("n",), "float32")):
        kept = R.call_packed("vm.builtin.copy", x, ty_args=R.Tensor(dtype="float32", ndim=1))
        other = R.call_packed("vm.builtin.copy", x, ty_args=R.Tensor(dtype="float32", ndim=1))
        both = (kept, other)
        first = both[0]
        R.vm.kill_object(other)
        second = both[1]
        return (first, second)

    mod = ReadTupleFields()(tvm.IRModule({"main": freed.with_attr("global_symbol", "main")}))
    values = {b.var.name: b.value for b in mod["main"].body.blocks[0].bindings}
    assert isinstance(values["first"], relax.Var)
    assert isinstance(values["second"], relax.TupleGetItem)


def test_unchanged() -> None:
    once = ReadTupleFields()(Before)
    tvm.ir.assert_structural_equal(ReadTupleFields()(once), once)
    without = tvm.IRModule({"main": relax.Function([], relax.const(1.0))})
    assert ReadTupleFields()(without).same_as(without)


def test_symbol_that_stands_for_an_extent() -> None:
    """TVM's CanonicalizeBindings replaces it in types only, and FuseTIR fails."""
    passes = [relax.transform.LegalizeOps(), relax.transform.AnnotateTIROpPattern()]
    passes += [ReadTupleFields(), relax.transform.FuseOps(), relax.transform.FuseTIR()]
    mod = tvm.transform.Sequential(passes)(Named)
    got = run(mod, *(np.zeros(size, "float32") for size in (2, 1)))
    np.testing.assert_allclose(got, np.exp(np.float32([1, 2, 3, 0, 0, 0])) + 1, rtol=1e-6)


if __name__ == "__main__":
    tvm.testing.main()
