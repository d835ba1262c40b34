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
"""Unproven requirements are checked at run time."""

import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fixes import verify
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import InsertRuntimeChecks

pytestmark = pytest.mark.native

n, m = (tvm.tirx.Var(name, "int64") for name in "nm")


def tensor(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorType(shape, dtype))


def module(params, compute):
    """A module whose ``main`` is one dataflow block, emitted by `compute`."""
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(compute(builder))
        builder.emit_func_output(result)
    return builder.get()


def build(mod):
    checked = InsertRuntimeChecks()(mod)
    assert not verify(checked).errors
    relax.analysis.well_formed(checked)
    executable = relax.build(checked, "llvm", relax_pipeline=pipeline())
    machine = relax.VirtualMachine(executable, tvm.cpu())
    return lambda *arrays: machine["main"](*(tvm.runtime.tensor(x) for x in arrays)).numpy()


def data(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype="float32")


def test_a_check_of_inputs_is_at_the_start():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((3, n), "float32"), w: R.Tensor((m, 4), "float32")) -> R.Tensor(
            (3, 4), "float32"
        ):
            with R.dataflow():
                lv = R.nn.relu(x)
                lv1 = R.matmul(lv, w)
                R.output(lv1)
            return lv1

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((3, n), "float32"), w: R.Tensor((m, 4), "float32")) -> R.Tensor(
            (3, 4), "float32"
        ):
            R.func_attr({"relax.force_pure": True})
            R.assert_op(
                m == n,
                [n, m],
                format="`lv1` = relax.matmul: dim 0 of argument 1: expected {}, got {}",
            )
            with R.dataflow():
                lv = R.nn.relu(x)
                lv1 = R.matmul(lv, w)
                R.output(lv1)
            return lv1

    tvm.ir.assert_structural_equal(InsertRuntimeChecks()(Before), Expected)


def test_columns_and_rows_of_a_product():
    x, w = tensor("x", 3, n), tensor("w", m, 4)
    run = build(module([x, w], lambda builder: builder.emit(relax.op.matmul(x, w))))
    left, right = data(3, 5), data(5, 4)
    np.testing.assert_allclose(run(left, right), left @ right, rtol=1e-5)
    message = "`lv` = relax.matmul: dim 0 of argument 1: expected 5, got 6"
    with pytest.raises(AssertionError, match=f"^{re.escape(message)}$"):
        run(left, data(6, 4))


def test_channels_of_a_convolution():
    x, w = tensor("x", 1, n, 4, 4), tensor("w", 2, m, 3, 3)
    run = build(module([x, w], lambda builder: builder.emit(relax.op.nn.conv2d(x, w))))
    assert run(data(1, 3, 4, 4), data(2, 3, 3, 3)).shape == (1, 2, 2, 2)
    with pytest.raises(AssertionError, match=r"relax.nn.conv2d: .*expected (3, got 4|4, got 3)$"):
        run(data(1, 3, 4, 4), data(2, 4, 3, 3))


def test_the_number_of_elements_of_a_reshape():
    x = tensor("x", 3, n)
    shape = relax.ShapeExpr([4, 3])

    def reshape(builder):
        return builder.emit(relax.Call(tvm.ir.Op.get("relax.reshape"), [x, shape], None))

    run = build(module([x], reshape))
    np.testing.assert_array_equal(run(data(3, 4)), data(3, 4).reshape(4, 3))
    with pytest.raises(AssertionError, match=r"= relax.reshape: .*: expected 15, got 12"):
        run(data(3, 5))


@pytest.mark.parametrize("extent", [n, 5])
def test_computed_indices(extent):
    """The check is after the computation of the indices and before their use."""
    x, i = tensor("x", 3, extent), tensor("i", m, dtype="int64")

    def take(builder):
        doubled = builder.emit(relax.op.add(i, i))
        return builder.emit(relax.op.take(builder.emit(relax.op.nn.relu(x)), doubled, axis=1))

    run = build(module([x, i], take))
    values = data(3, 5)
    indices = np.array([0, 2, 1], "int64")
    np.testing.assert_array_equal(run(values, indices), np.maximum(values, 0)[:, 2 * indices])
    for wrong, least, greatest in ([3, 0], 0, 6), ([0, -3], -6, 0):
        message = f"expected less than 5, got {least} to {greatest}"
        with pytest.raises(AssertionError, match=f"= relax.take: the indices .*{message}$"):
            run(values, np.array(wrong, "int64"))


@pytest.mark.parametrize("indices, got", [([0, -2, 3], None), ([0, -2, 9], "0 to 9")])
def test_indices_that_are_computed_from_constants(indices, got):
    """Negative indices normalized by an importer: only unproven ones are checked."""
    x, i = tensor("x", 4, 3), relax.const(np.array(indices), "int64")

    def take(builder):
        is_negative = builder.emit(relax.op.less(i, relax.const(0, "int64")))
        from_end = builder.emit(relax.op.add(i, relax.const(4, "int64")))
        chosen = builder.emit(relax.op.where(is_negative, from_end, i))
        return builder.emit(relax.op.take(x, chosen, axis=0))

    mod = module([x], take)
    checked = InsertRuntimeChecks()(mod)
    assert checked.same_as(mod) == (got is None)
    machine = relax.VirtualMachine(relax.build(checked, "llvm"), tvm.cpu())
    values = data(4, 3)
    if got is None:
        result = machine["main"](tvm.runtime.tensor(values)).numpy()
        np.testing.assert_array_equal(result, values[indices])
        return
    with pytest.raises(AssertionError, match=f"the indices .*: expected less than 4, got {got}$"):
        machine["main"](tvm.runtime.tensor(values))


def test_a_symbol_that_a_cast_defines():
    """Symbols defined in the middle are checked there."""
    x, w = tensor("x", 3, 5), relax.Var("w", relax.TensorType(dtype="float32", ndim=2))

    def product(builder):
        rows = builder.match_cast(w, relax.TensorType((m, 4), "float32"))
        return builder.emit(relax.op.matmul(builder.emit(relax.op.nn.relu(x)), rows))

    mod = module([x, w], product)
    run = build(mod)
    assert run(data(3, 5), data(5, 4)).shape == (3, 4)
    with pytest.raises(AssertionError, match=r"relax.matmul: .*expected 5, got 6"):
        run(data(3, 5), data(6, 4))


def test_a_choice_of_extents_is_not_checked():
    """A select, which TVM treats as a call, cannot be an argument of the check."""
    x, w = tensor("x", 3, 5), relax.Var("w", relax.TensorType(dtype="float32", ndim=2))

    def product(builder):
        rows = builder.match_cast(w, relax.TensorType((m, 4), "float32"))
        extent = tvm.tirx.if_then_else(m > 4, m, tvm.tirx.IntImm("int64", 4))
        padded = builder.match_cast(rows, relax.TensorType((extent, 4), "float32"))
        return builder.emit(relax.op.matmul(x, padded))

    mod = module([x, w], product)
    assert [diagnostic.rule for diagnostic in verify(mod)] == ["op.matmul"]
    assert InsertRuntimeChecks()(mod).same_as(mod)


def test_a_branch_that_is_not_taken_is_not_checked():
    @I.ir_module
    class Module:
        @R.function
        def main(
            c: R.Tensor((), "bool"),
            x: R.Tensor((3, n), "float32"),
            w: R.Tensor((m, 4), "float32"),
        ) -> R.Tensor((3, 4), "float32"):
            if c:
                y: R.Tensor((3, 4), "float32") = R.matmul(x, w)
            else:
                y: R.Tensor((3, 4), "float32") = R.zeros(R.shape([3, 4]), "float32")
            return y

    run = build(Module)
    assert not run(np.array(False), data(3, 5), data(6, 4)).any()
    with pytest.raises(AssertionError, match=r"relax.matmul: .*expected 5, got 6"):
        run(np.array(True), data(3, 5), data(6, 4))


def test_equal_requirements_share_one_check():
    x, w = tensor("x", 3, n), tensor("w", m, 4)

    def compute(builder):
        first = builder.emit(relax.op.matmul(x, w))
        return builder.emit(relax.op.add(first, builder.emit(relax.op.matmul(x, w))))

    checked = InsertRuntimeChecks()(module([x, w], compute))
    assert checked.script(show_meta=False).count("R.assert_op") == 1


def test_the_same_module_where_all_is_proved():
    x, w = tensor("x", 3, n), tensor("w", n, 4)
    mod = module([x, w], lambda builder: builder.emit(relax.op.matmul(x, w)))
    assert InsertRuntimeChecks()(mod).same_as(mod)


def test_checks_are_inserted_once():
    """Checks of extents, of the indices of two calls with equal names, and of a scalar index."""
    x, w = tensor("x", 3, n), tensor("w", m, 4)
    i, k = tensor("i", 5, dtype="int64"), relax.Var("k", tvm.ir.PrimType("int64"))

    def compute(builder):
        product = builder.emit(relax.op.matmul(x, w))
        first = builder.emit(relax.op.take(product, i, axis=1), name_hint="taken")
        row = builder.emit(relax.op.take(first, k, axis=0))
        return builder.emit(relax.op.take(row, i, axis=0), name_hint="taken")

    checked = InsertRuntimeChecks()(module([x, w, i, k], compute))
    assert checked.script(show_meta=False).count("R.assert_op") == 4
    assert InsertRuntimeChecks()(checked).same_as(checked)


def test_a_call_added_after_an_equal_one_was_checked():
    """The checks of the first run belong to the first call."""
    x, i = tensor("x", 4), tensor("i", 5, dtype="int64")
    mod = module([x, i], lambda b: b.emit(relax.op.take(x, i, axis=0), name_hint="taken"))
    checked = InsertRuntimeChecks()(mod)
    call = checked["main"].body.blocks[-1].bindings[-1]
    more = relax.Var("taken", call.var.ty)
    block = relax.BindingBlock([relax.VarBinding(more, call.value)])
    body = relax.SeqExpr([*checked["main"].body.blocks, block], more)
    main = relax.Function(checked["main"].params, body, more.ty, attrs=checked["main"].attrs)
    again = InsertRuntimeChecks()(tvm.IRModule({"main": main}))
    assert again.script(show_meta=False).count("R.assert_op") == 2


if __name__ == "__main__":
    tvm.testing.main()
