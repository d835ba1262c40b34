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
"""Checks of the virtual machine that always hold."""

import time
from collections import Counter

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.growth import assert_linear
from helpers.relax_modules import build, cpu, integers, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.known_checks import without_known_checks
from tvm_fixes.support import switches


def lowered(mod):
    """The function that the virtual machine runs."""
    with cpu():
        return pipeline()(mod)["main"]


def instructions(function):
    """The number of calls of each operator or packed function, without branches."""
    calls = [binding.value for block in function.body.blocks for binding in block.bindings]
    names = [
        str(getattr(call.op, "global_symbol", getattr(call.op, "name", "")))
        for call in calls
        if isinstance(call, relax.Call)
    ]
    return Counter(names)


def two_results(rows):
    """A model with two results, the second one of known size if `rows` is."""

    def emit(builder, x):
        first = builder.emit(relax.op.nn.softmax(x))
        return relax.Tuple([builder.emit(relax.op.sum(x, 1)), first])

    return build({"x": tensor(rows, 200)}, emit)


@pytest.mark.parametrize("rows", [tirx.Var("n", "int64"), 3])
def test_allocated_results_are_not_checked(rows, monkeypatch):
    mod = two_results(rows)
    counts = instructions(lowered(mod))
    assert counts["relax.vm.alloc_tensor"] >= 2
    # Of the input's shape.
    assert counts["vm.builtin.match_shape"] == 1
    assert not counts["relax.vm.kill_object"]
    x = integers(3, 200).astype("float32")
    sums, shares = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(sums, x.sum(1))
    np.testing.assert_allclose(shares.sum(1), np.ones(3), rtol=1e-6)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "vm-shape-lower-weights")
    stock = instructions(lowered(mod))
    assert stock["relax.vm.kill_object"] >= 4
    assert stock["vm.builtin.match_shape"] == (1 if rows == 3 else 3)


def test_memory_between_kernels_is_freed():
    """A long row is no result: its memory serves the next kernel."""

    def emit(builder, x):
        order = builder.emit(relax.op.argsort(x, 1))
        return relax.op.sum(builder.emit(relax.op.astype(order, "float32")), 1)

    mod = build({"x": tensor(tirx.Var("n", "int64"), 9000)}, emit)
    counts = instructions(lowered(mod))
    assert counts["relax.vm.kill_object"]
    x = integers(2, 9000).astype("float32")
    np.testing.assert_array_equal(run(mod, x, pipeline=pipeline()), [8999 * 4500] * 2)


@I.ir_module
class Packed:
    @R.function(pure=False)
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        return R.call_packed("tests.known_checks", x, ty_args=[R.Tensor(None, "float32", ndim=2)])


def test_results_of_others_are_checked():
    wrong = tvm.runtime.tensor(np.zeros((7, 4), "float32"))
    tvm.register_global_func("tests.known_checks", lambda _x: wrong, override=True)
    assert instructions(lowered(Packed))["vm.builtin.match_shape"] == 2
    vm = relax.VirtualMachine(relax.build(Packed, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    with pytest.raises(Exception, match="return"):
        vm["main"](tvm.runtime.tensor(np.zeros((3, 4), "float32")))


@pytest.mark.parametrize(
    ("allocated", "checked", "is_kept"),
    [
        ((1, 0, 0, 4), (3, 0, 0, 4), False),
        ((1, 0, 0, 4), (3, 1, 0, 4), True),  # another symbol
        ((1, 0, 0, 4), (3, 0, 0, 5), True),
        ((0, 0, 0, 4), (3, 0, 0, 4), True),  # a number, not a place in the heap
        ((1, 0, 0, 4), (1, 0, 0, 4), True),  # binds a symbol
        ((1, 0, 0, 4), (3, 0), True),  # of another rank
    ],
)
def test_only_equal_shapes_are_known(allocated, checked, is_kept):
    heap = relax.Var("heap", relax.TensorType(None, "int64", ndim=1))
    storage = relax.Var("storage", relax.AnyType())

    def packed(name, *arguments, ty):
        values = [
            relax.prim_value(argument) if isinstance(argument, int) else argument
            for argument in arguments
        ]
        return relax.Call(relax.ExternFunc(f"vm.builtin.{name}"), values, ty_args=[ty])

    bb = relax.BlockBuilder()
    with bb.function("main", [heap, storage], pure=False):
        pairs = len(allocated) // 2
        shape = bb.emit(packed("make_shape", heap, pairs, *allocated, ty=relax.ShapeType(ndim=2)))
        result = bb.emit(relax.op.vm.alloc_tensor(storage, 0, shape, "float32"))
        whole = bb.emit(relax.Tuple([result]))
        field = bb.emit(relax.TupleGetItem(whole, 0))
        text = tvm.ir.StringImm("ErrorContext")
        check = ("match_shape", field, heap, len(checked) // 2, *checked, text)
        bb.emit(packed(*check, ty=relax.TupleType([])))
        bb.emit_func_output(result)
    function = bb.get()["main"]
    after = without_known_checks(function)
    assert instructions(after)["vm.builtin.match_shape"] == int(is_kept)
    if is_kept:
        assert after.same_as(function)
    else:  # and nothing is left of the tuple that only the check read
        assert [len(block.bindings) for block in after.body.blocks] == [2]


def chain(length):
    """A function that returns `length` allocated tensors."""
    heap = relax.Var("heap", relax.TensorType(None, "int64", ndim=1))
    bb = relax.BlockBuilder()
    with bb.function("main", [heap], pure=False):
        results = []
        for _ in range(length):
            size = relax.op.vm.alloc_storage(relax.ShapeExpr([64]), 0, "uint8")
            storage = bb.emit(size)
            shape = relax.ShapeExpr([4, 4])
            results.append(bb.emit(relax.op.vm.alloc_tensor(storage, 0, shape, "float32")))
            bb.emit(relax.op.vm.kill_object(storage))
        bb.emit_func_output(relax.Tuple(results))
    return bb.get()["main"]


def test_the_time_is_linear_in_the_number_of_results():
    seconds = {}
    for count in (100, 200, 400, 800):
        function = chain(count)
        start = time.process_time()
        after = without_known_checks(function)
        seconds[count] = time.process_time() - start
        assert not instructions(after)["relax.vm.kill_object"]
        assert instructions(after)["relax.vm.alloc_storage"] == count
    assert_linear(seconds, factor=5, slack=2e-4)


if __name__ == "__main__":
    tvm.testing.main()
