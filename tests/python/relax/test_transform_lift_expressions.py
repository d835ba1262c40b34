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
"""tvm_fixes.transform.LiftTransformParams on random expressions of weights."""

import math

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

from helpers.grids import batched
from helpers.lifting import (
    data,
    function,
    lift,
    machine,
    module,
    prepared_bytes,
    to_tvm,
    together,
    weight_bytes,
)
from helpers.relax_modules import call, tensor

pytestmark = pytest.mark.native

op = relax.op
X = {"x": tensor(4, 4)}


@st.composite
def programs(draw):
    """Random steps, each computing a 4 x 4 matrix from earlier ones; the first are weights."""
    steps = []
    for number in range(3, 3 + draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(KINDS))
        steps.append((kind, draw(st.integers(0, number - 1)), draw(st.integers(0, number - 1))))
    outputs = draw(st.lists(st.integers(0, 2 + len(steps)), min_size=1, max_size=3))
    reads = draw(st.lists(st.integers(0, 2 + len(steps)), max_size=3))
    return steps, outputs, reads


KINDS = ("add", "permute", "reshape", "cast", "concat", "split", "broadcast", "same", "stop")


def step(b, kind, left, right):
    if kind == "add":
        return b.emit(op.add(left, right))
    if kind == "permute":
        return b.emit(op.permute_dims(left))
    if kind == "reshape":
        return b.emit(op.reshape(b.emit(op.reshape(left, (2, 8))), (4, 4)))
    if kind == "cast":
        return b.emit(op.astype(b.emit(op.astype(left, "int8")), "float32"))
    if kind == "concat":
        both = b.emit(op.concat([left, right], axis=0))
        return b.emit(op.strided_slice(both, [0], [2], [6]))
    if kind == "split":
        halves = b.emit(op.split(left, 2, axis=0))
        first, second = (b.emit(relax.TupleGetItem(halves, i)) for i in (0, 1))
        return b.emit(op.concat([second, first], axis=0))
    if kind == "broadcast":
        return b.emit(op.sum(b.emit(op.broadcast_to(left, (3, 4, 4))), axis=0))
    if kind == "stop":
        return b.emit(op.add(b.emit(op.builtin.stop_lift_params(left)), right))
    return left


def of_program(program, with_stops=True):
    steps, outputs, reads = program

    def emit(b, x, *weights):
        values = list(weights)
        for kind, left, right in steps:
            if kind == "stop" and not with_stops:
                values.append(b.emit(op.add(values[left], values[right])))
            else:
                values.append(step(b, kind, values[left], values[right]))
        results = [op.add(values[index], x) for index in outputs]
        return results + [values[index] for index in reads if index > 2]

    return emit


THREE = {name: tensor(4, 4) for name in ("w", "u", "v")}
BATCH = 5


def assert_equal_in(vm, plain, lifted, transform_name):
    (x,), weights = data((4, 4)), data((4, 4), (4, 4), (4, 4))
    expected = call(vm, plain, x, *weights)
    got = call(vm, lifted, x, *vm[transform_name](to_tvm(weights)))
    if not isinstance(expected, list):
        expected, got = [expected], [got]
    for ours, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@batched(2 * BATCH)
@given(st.lists(programs(), min_size=BATCH, max_size=BATCH), st.sampled_from([1.0, 1.2, math.inf]))
def test_random_weight_expressions(many, growth):
    mods = {}
    for number, program in enumerate(many):
        plain = function(X, THREE, of_program(program, with_stops=False))
        before = module(main=function(X, THREE, of_program(program)))
        after = lift(before, max_growth=growth)
        if growth <= 1.2:
            assert prepared_bytes(after) <= growth * weight_bytes(before)
        mods |= {f"before{number}": module(main=plain), f"after{number}": after}
    vm = together(mods)
    for number in range(len(many)):
        after = f"after{number}_main"
        assert_equal_in(vm, f"before{number}_main", after, f"{after}_transform_params")


@batched(2 * BATCH)
@given(st.lists(programs(), min_size=BATCH, max_size=BATCH))
def test_random_weight_expressions_after_legalization(many):
    functions = {
        f"f{number}": function(X, THREE, of_program(program, with_stops=False))
        for number, program in enumerate(many)
    }
    plain = {f"plain_{name}": f.without_attr("num_input") for name, f in functions.items()}
    vm = machine(lift(relax.transform.LegalizeOps()(module(**functions, **plain))))
    for name in functions:
        assert_equal_in(vm, f"plain_{name}", name, f"{name}_transform_params")


@batched(2 * BATCH)
@given(st.lists(st.tuples(programs(), programs()), min_size=BATCH, max_size=BATCH), st.booleans())
def test_random_weight_expressions_shared(pairs, are_same):
    mods = {}
    for number, (first, second) in enumerate(pairs):
        programs_of = {"f": first, "g": first if are_same else second}
        before = module(
            **{
                name: function(X, THREE, of_program(program, with_stops=False))
                for name, program in programs_of.items()
            }
        )
        after = lift(before, True)
        assert prepared_bytes(after, "transform_params") <= 1.2 * weight_bytes(before, "f")
        mods |= {f"before{number}": before, f"after{number}": after}
    vm = together(mods)
    for number in range(len(pairs)):
        for name in ("f", "g"):
            after = f"after{number}"
            assert_equal_in(
                vm, f"before{number}_{name}", f"{after}_{name}", f"{after}_transform_params"
            )


def around_a_branch(first, second, name="main"):
    """Weight expressions in two blocks, with a branch in between that reads the first."""
    builder = relax.BlockBuilder()
    x, *weights = (relax.Var(param, ty) for param, ty in (X | THREE).items())
    flag = relax.Var("flag", relax.TensorType([], "bool"))
    with builder.function(name, [x, flag, *weights], attrs={"num_input": 2}):
        values = list(weights)
        with builder.dataflow():
            for kind, left, right in first:
                values.append(builder.emit_output(step(builder, kind, values[left], values[right])))
        branches = []
        for value, add in ((values[-1], op.add), (values[0], op.multiply)):
            result = relax.Var("r", tensor(4, 4))
            bound = relax.VarBinding(result, builder.normalize(add(x, value)))
            branches.append(relax.SeqExpr([relax.BindingBlock([bound])], result))
        chosen = builder.emit(relax.If(flag, *branches))
        with builder.dataflow():
            for kind, left, right in second:
                left, right = (index % len(values) for index in (left, right))
                values.append(builder.emit(step(builder, kind, values[left], values[right])))
            out = builder.emit_output(op.add(chosen, values[-1]))
        builder.emit_func_output(relax.Tuple([out, values[len(first) + 2], values[0]]))
    return builder.get()[name]


@batched(2 * BATCH)
@given(st.lists(st.tuples(programs(), programs()), min_size=BATCH, max_size=BATCH))
def test_random_weight_expressions_around_a_branch(pairs):
    functions = {}
    for number, ((first, _, _), (second, _, _)) in enumerate(pairs):
        steps = [[s for s in block if s[0] != "stop"] for block in (first, second)]
        # Numbers assigned from the first block on may have gaps.
        steps[0] = [
            (k, left % (3 + i), right % (3 + i)) for i, (k, left, right) in enumerate(steps[0])
        ]
        functions[f"f{number}"] = around_a_branch(*steps, name=f"f{number}")
    plain = {f"plain_{name}": f.without_attr("num_input") for name, f in functions.items()}
    vm = machine(lift(module(**functions, **plain)))
    (x,), weights = data((4, 4)), data((4, 4), (4, 4), (4, 4))
    for name in functions:
        prepared = vm[f"{name}_transform_params"](to_tvm(weights))
        for flag in (np.array(True), np.array(False)):
            expected = call(vm, f"plain_{name}", x, flag, *weights)
            got = call(vm, name, x, flag, *prepared)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


if __name__ == "__main__":
    tvm.testing.main()
