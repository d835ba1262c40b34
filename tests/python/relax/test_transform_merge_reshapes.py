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
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.relax_modules import build, calls, integers, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.transform import MergeReshapes
from tvm_fixes.relax.transform.merge_reshapes import FIX_ID
from tvm_fixes.support import switches

op = relax.op


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((1, 2, 6), "float32")) -> R.Tensor((3, 4), "float32"):
        with R.dataflow():
            wide = R.expand_dims(x, axis=[2])
            narrow = R.squeeze(wide, axis=[0])
            flat = R.flatten(narrow)
            rows = R.reshape(flat, R.shape([3, 4]))
            R.output(rows)
        return rows


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor((1, 2, 6), "float32")) -> R.Tensor((3, 4), "float32"):
        with R.dataflow():
            rows = R.reshape(x, R.shape([3, 4]))
            R.output(rows)
        return rows


def test_a_chain_becomes_one_reshape(monkeypatch):
    tvm.ir.assert_structural_equal(MergeReshapes()(Before), Expected)
    assert MergeReshapes()(Expected).same_as(Expected)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    assert MergeReshapes()(Before).same_as(Before)


def test_data_of_another_block_become_its_result():
    """Two blocks are one unless other bindings are between them."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, "n"), "float32")) -> R.Tensor((3, 4), "float32"):
            with R.dataflow():
                negative = R.negative(x)
                wide = R.expand_dims(negative, axis=[1])
                R.output(wide)
            known = R.match_cast(wide, R.Tensor((2, 1, 6), "float32"))
            with R.dataflow():
                rows = R.reshape(wide, R.shape([3, 4]))
                R.output(rows)
            return rows

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, "n"), "float32")) -> R.Tensor((3, 4), "float32"):
            with R.dataflow():
                negative = R.negative(x)
                wide = R.expand_dims(negative, axis=[1])
                R.output(negative, wide)
            known = R.match_cast(wide, R.Tensor((2, 1, 6), "float32"))
            with R.dataflow():
                rows = R.reshape(negative, R.shape([3, 4]))
                R.output(rows)
            return rows

    tvm.ir.assert_structural_equal(MergeReshapes()(Before), Expected)
    x = integers(2, 6)
    np.testing.assert_array_equal(run(Before, x, pipeline=pipeline()), -x.reshape(3, 4))


def names(mod):
    return [call.op.name.removeprefix("relax.") for call in calls(MergeReshapes()(mod))]


def test_a_step_with_another_reader_is_kept():
    def emit(b, x):
        wide = b.emit(op.expand_dims(x, [1]))
        rows = b.emit(op.reshape(wide, (3, 4)))
        return relax.Tuple([rows, b.emit(op.negative(wide))])

    mod = build({"x": tensor(2, 6)}, emit)
    assert names(mod) == ["expand_dims", "reshape", "negative"]
    assert MergeReshapes()(mod)["main"].body.blocks[0].bindings[1].value.args[0].name == "x"
    x = integers(2, 6)
    rows, negative = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(rows, x.reshape(3, 4))
    np.testing.assert_array_equal(negative, -x[:, None])


@pytest.mark.parametrize("extent", [1, 5])
def test_symbolic_extents(extent):
    n = tirx.Var("n", "int64")

    def emit(b, x, weight):
        rows = b.emit(op.reshape(b.emit(op.reshape(x, (n, 2, 6))), (2 * n, 6)))
        return op.matmul(rows, weight)

    mod = build({"x": tensor(n, 12), "weight": tensor(6, 3)}, emit)
    assert names(mod) == ["reshape", "matmul"]
    x, weight = integers(extent, 12), integers(6, 3, seed=1)
    got = run(mod, x, weight, pipeline=pipeline())
    np.testing.assert_array_equal(got, x.reshape(-1, 6) @ weight)


def test_other_programs_do_not_change():
    programs = {
        "permuted": lambda b, x: op.reshape(b.emit(op.permute_dims(x)), (12,)),
        "expanded": lambda b, x: op.expand_dims(b.emit(op.reshape(x, (3, 4))), [0]),
        "empty": lambda b, x: op.reshape(
            b.emit(op.expand_dims(b.emit(op.zeros((0, 4), "float32")), 0)), (4, 0)
        ),
    }
    for emit in programs.values():
        mod = build({"x": tensor(2, 6)}, emit)
        assert MergeReshapes()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
