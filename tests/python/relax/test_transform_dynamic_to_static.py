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
"""The individual rewrites of DynamicToStatic, and what must stay unchanged."""

import logging

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from helpers import relax_modules
from helpers.grids import few
from helpers.relax_modules import count, tensor
from helpers.verifying import put
from tvm_fixes import verify
from tvm_fixes.relax.transform import DynamicToStatic

pytestmark = pytest.mark.native


def resolve(mod):
    """Run the pass on a module; assert that it is idempotent."""
    resolved = DynamicToStatic()(mod)
    assert not verify(resolved).errors
    relax.analysis.well_formed(resolved)
    assert DynamicToStatic()(resolved).same_as(resolved)
    return resolved


def check(before, expected):
    tvm.ir.assert_structural_equal(resolve(before), expected)


def stays(mod):
    assert DynamicToStatic()(mod).same_as(mod)


def data(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype="float32")


def test_a_shape_from_tensors():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            rows, columns = T.int64(), T.int64()
            with R.dataflow():
                extents = R.shape_of(x)
                shape = R.shape_to_tensor(extents)
                doubled = R.multiply(shape, R.const([2, 1], "int64"))
                target = R.tensor_to_shape(doubled)
                _ = R.match_cast(target, R.Shape([rows, columns]))
                pair = R.concat((x, x), axis=0)
                gv = R.reshape(pair, R.shape([rows, columns]))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 2", 4), "float32"):
            n = T.int64()
            with R.dataflow():
                pair = R.concat((x, x), axis=0)
                gv = R.reshape(pair, R.shape([n * 2, 4]))
                R.output(gv)
            return gv

    check(Before, Expected)
    for rows in (2, 5):
        x = data(rows, 4)
        np.testing.assert_array_equal(relax_modules.run(resolve(Before), x), np.concatenate([x, x]))


def test_a_shape_that_is_read_without_a_cast():
    @I.ir_module(check_well_formed=False)
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=1):
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape_of(x))
                size = R.prod(shape, axis=[0], keepdims=True)
                flat = R.reshape(x, R.tensor_to_shape(size))
                gv = R.nn.relu(flat)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 4",), "float32"):
            n = T.int64()
            with R.dataflow():
                flat = R.reshape(x, R.shape([n * 4]))
                gv = R.nn.relu(flat)
                R.output(gv)
            return gv

    check(Before, Expected)


def test_an_open_extent():
    @I.ir_module(check_well_formed=False)
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4, 6), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            rows, columns = T.int64(), T.int64()
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape_of(x))
                first = R.strided_slice(shape, axes=[0], begin=[0], end=[1])
                pair = R.concat((first, R.const([-1], "int64")), axis=0)
                target = R.tensor_to_shape(pair)
                _ = R.match_cast(target, R.Shape([rows, columns]))
                gv = R.reshape(x, target)
                R.output(gv)
            return gv

    resolved = resolve(Before)
    n = resolved["main"].params[0].ty.shape[0]
    tvm.ir.assert_structural_equal(resolved["main"].ret_ty, tensor(n, 24))
    assert relax_modules.run(resolved, data(3, 4, 6)).shape == (3, 24)


def test_symbols_in_types_and_in_the_bounds_of_an_arange():
    @I.ir_module
    class Before:
        @T.prim_func(private=True)
        def copy(a: T.handle, b: T.handle):
            k = T.int64()
            A = T.match_buffer(a, (k,), "int64")
            B = T.match_buffer(b, (k,), "int64")
            for i in range(k):
                B[i] = A[i]

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="int64", ndim=1):
            cls = Before
            k = T.int64()
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape_of(x))
                first = R.strided_slice(shape, axes=[0], begin=[0], end=[1])
                _ = R.match_cast(R.tensor_to_shape(first), R.Shape([k]))
                positions = R.arange(0, k, 1, dtype="int64")
                copied = R.call_tir(cls.copy, (positions,), out_ty=R.Tensor((k,), "int64"))
                gv = R.add(copied, R.arange(k, k * 2, 1, dtype="int64"))
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @T.prim_func(private=True)
        def copy(a: T.handle, b: T.handle):
            k = T.int64()
            A = T.match_buffer(a, (k,), "int64")
            B = T.match_buffer(b, (k,), "int64")
            for i in range(k):
                B[i] = A[i]

        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n",), "int64"):
            n = T.int64()
            cls = Expected
            with R.dataflow():
                positions = R.arange(0, n, 1, dtype="int64")
                copied = R.call_tir(cls.copy, (positions,), out_ty=R.Tensor((n,), "int64"))
                gv = R.add(copied, R.arange(n, n * 2, 1, dtype="int64"))
                R.output(gv)
            return gv

    check(Before, Expected)


def test_a_cast_of_a_tensor():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            with R.dataflow():
                same = R.match_cast(x, R.Tensor((k, 4), "float32"))
                gv = R.concat((same, R.ones(R.shape([k, 4]), "float32")), axis=0)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n * 2", 4), "float32"):
            n = T.int64()
            with R.dataflow():
                gv = R.concat((x, R.ones(R.shape([n, 4]), "float32")), axis=0)
                R.output(gv)
            return gv

    check(Before, Expected)


@pytest.mark.parametrize("dims", [("m", 4), (4, 4)])
def test_a_check_that_is_not_proved_is_kept(dims):
    symbols = {name: tvm.tirx.Var(name, "int64") for name in "nm"}
    x = relax.Var("x", tensor(symbols["n"], 4))
    y = relax.Var("y", tensor(symbols["m"], 4))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, y]):
        with builder.dataflow():
            wanted = tensor(*(symbols.get(dim, dim) for dim in dims))
            gv = builder.emit_output(builder.match_cast(x, wanted))
        builder.emit_func_output(gv)
    stays(builder.get())


def test_a_symbol_that_is_known_only_at_run_time():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Tensor((2,), "int64")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            rows, columns = T.int64(), T.int64()
            with R.dataflow():
                target = R.tensor_to_shape(s)
                _ = R.match_cast(target, R.Shape([rows, columns]))
                gv = R.reshape(x, R.shape([rows, columns]))
                R.output(gv)
            return gv

    stays(Mod)


def test_one_known_and_one_unknown_extent():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Tensor((1,), "int64")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            rows, columns = T.int64(), T.int64()
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape_of(x))
                second = R.strided_slice(shape, axes=[0], begin=[1], end=[2])
                target = R.tensor_to_shape(R.concat((s, second), axis=0))
                _ = R.match_cast(target, R.Shape([rows, columns]))
                gv = R.reshape(x, R.shape([rows, columns]))
                R.output(gv)
            return gv

    resolved = resolve(Before)
    assert int(resolved["main"].body.body.ty.shape[1]) == 4
    assert relax_modules.run(resolved, data(3, 4), np.array([3])).shape == (3, 4)


@few(5)
@pytest.mark.parametrize(
    "begin, end, step, extent",
    [
        (0, 3, 1, "min(n, 3)"),
        (1, 2**63 - 1, 1, "max(n - 1, 0)"),
        (-2, 2**63 - 1, 1, None),
        (3, 1, 1, "0"),
        (2**63 - 1, -(2**63), -1, "n"),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_dynamic_strided_slice(begin, end, step, extent, rows):
    n = tvm.tirx.Var("n", "int64")

    def emit(builder, x):
        bounds = [
            relax.const([bound, full], "int64") for bound, full in ((begin, 0), (end, 4), (step, 1))
        ]
        return builder.emit(relax.op.dynamic_strided_slice(x, *bounds))

    resolved = resolve(relax_modules.build({"x": tensor(n, 4)}, emit))
    assert count(resolved, "relax.dynamic_strided_slice") == 0
    x = data(rows, 4)
    end = None if end == -(2**63) else end
    np.testing.assert_array_equal(relax_modules.run(resolved, x), x[begin:end:step])


def test_bounds_of_a_slice_from_the_shape():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 8), "float32"), w: R.Tensor(("m",), "float32")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            with R.dataflow():
                end = R.concat((R.shape_to_tensor(R.shape_of(w)), R.const([2], "int64")), axis=0)
                gv = R.dynamic_strided_slice(
                    x, R.const([0, 0], "int64"), end, R.const([1, 1], "int64")
                )
                R.output(gv)
            return gv

    resolved = resolve(Before)
    for rows, stop in ((5, 3), (3, 5)):
        x = data(rows, 8)
        got = relax_modules.run(resolved, x, data(stop))
        np.testing.assert_array_equal(got, x[:stop, :2])


def test_bounds_that_cross():
    """TVM computes a negative length or rejects the slice."""
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")

    def emit(builder, x, w):
        return builder.emit(relax.op.strided_slice(x, [0], [m], [2]))

    resolved = resolve(relax_modules.build({"x": tensor(n, 4), "w": tensor(m)}, emit))
    for rows, start in ((5, 1), (5, 4), (1, 3)):
        x = data(rows, 4)
        got = relax_modules.run(resolved, x, data(start))
        np.testing.assert_array_equal(got, x[start:2])
    literal = relax_modules.build(
        {"x": tensor(3, 4)}, lambda b, x: b.emit(relax.op.strided_slice(x, [0], [2], [1]))
    )
    assert relax_modules.run(resolve(literal), data(3, 4)).shape == (0, 4)


def test_bounds_of_a_slice_backwards():
    """TVM computes the length as if the bounds never crossed."""
    n = tvm.tirx.Var("n", "int64")

    def backwards(start, stop):
        def emit(builder, x):
            shape = builder.emit(relax.op.shape_to_tensor(builder.emit(relax.op.shape_of(x))))
            bounds = [start(builder, shape), stop(builder, shape), relax.const([-1], "int64")]
            return builder.emit(relax.op.dynamic_strided_slice(x, *bounds))

        return relax_modules.build({"x": tensor(n)}, emit)

    def part(divisor):
        return lambda b, s: b.emit(relax.op.floor_divide(s, relax.const(divisor, "int64")))

    resolved = resolve(backwards(part(1), part(2)))
    assert count(resolved, "relax.dynamic_strided_slice") == 0
    for rows in (1, 2, 5):
        got = relax_modules.run(resolved, data(rows))
        np.testing.assert_array_equal(got, data(rows)[: rows // 2 : -1])
    may_cross = DynamicToStatic()(backwards(part(3), part(2)))
    assert count(may_cross, "relax.dynamic_strided_slice") == 1


def test_assume_inbound_that_is_false():
    n = tvm.tirx.Var("n", "int64")

    def emit(builder, x):
        return builder.emit(relax.op.strided_slice(x, [0], [1], [n + 3], assume_inbound=True))

    resolved = resolve(relax_modules.build({"x": tensor(n, 4)}, emit))
    for rows in (1, 6):
        x = data(rows, 4)
        np.testing.assert_array_equal(relax_modules.run(resolved, x), x[1 : rows + 3])


def test_assume_inbound_that_may_hold():
    n, m = (tvm.tirx.Var(name, "int64") for name in "nm")

    def emit(builder, x, w):
        return builder.emit(relax.op.strided_slice(x, [0], [0], [m], assume_inbound=True))

    stays(relax_modules.build({"x": tensor(n, 4), "w": tensor(m)}, emit))


def test_if_that_is_decided():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4, 1), "float32")) -> R.Tensor(dtype="float32"):
            with R.dataflow():
                shape = R.shape_to_tensor(R.shape_of(x))
                last = R.take(shape, R.const(2, "int64"), axis=0)
                is_one = R.equal(last, R.const(1, "int64"))
                R.output(is_one)
            if is_one:
                with R.dataflow():
                    lv = R.squeeze(x, axis=[2])
                    gv = R.nn.relu(lv)
                    R.output(gv)
                y = gv
            else:
                y = R.nn.relu(x)
            with R.dataflow():
                z = R.negative(y)
                R.output(z)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4, 1), "float32")) -> R.Tensor(("n", 4), "float32"):
            with R.dataflow():
                lv = R.squeeze(x, axis=[2])
                gv = R.nn.relu(lv)
                R.output(gv)
            with R.dataflow():
                z = R.negative(gv)
                R.output(z)
            return z

    check(Before, Expected)
    x = data(2, 4, 1)
    got = relax_modules.run(resolve(Before), x)
    np.testing.assert_array_equal(got, -np.maximum(x[..., 0], 0))


def test_if_inside_if():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            if c:
                if R.const(False, "bool"):
                    inner = R.negative(x)
                else:
                    inner = R.nn.relu(x)
                y = R.add(inner, x)
            else:
                y = x
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            (2, 3), "float32"
        ):
            if c:
                inner = R.nn.relu(x)
                y = R.add(inner, x)
            else:
                y = x
            return y

    resolved = resolve(Before)
    tvm.ir.assert_structural_equal(resolved, Expected)


def test_one_symbol_in_both_branches():
    """A symbol defined in a branch is not in scope in the other branch, or afterwards."""

    @I.ir_module(check_well_formed=False)
    class Before:
        @R.function
        def main(
            x: R.Tensor(("n", 4), "float32"),
            y: R.Tensor(("m", 4), "float32"),
            c: R.Tensor((), "bool"),
        ) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            if c:
                left = R.match_cast(x, R.Tensor((k, 4), "float32"))
                z = R.add(left, R.ones(R.shape([k, 4]), "float32"))
            else:
                right = R.match_cast(y, R.Tensor((k, 4), "float32"))
                z = R.subtract(right, R.ones(R.shape([k, 4]), "float32"))
            return z

    resolved = resolve(Before)
    for flag in (True, False):
        x, y = data(2, 4), data(3, 4)
        got = relax_modules.run(resolved, x, y, np.array(flag))
        np.testing.assert_array_equal(got, x + 1 if flag else y - 1)


def test_a_symbol_of_a_branch_that_is_redefined_later():
    @I.ir_module
    class Before:
        @R.function
        def main(s: R.Tensor((1,), "int64"), t: R.Tensor((1,), "int64")) -> R.Tensor(
            dtype="float32", ndim=1
        ):
            k = T.int64()
            if R.const(True, "bool"):
                _ = R.match_cast(R.tensor_to_shape(s), R.Shape([k]))
                y = R.ones(R.shape([k]), "float32")
            else:
                y = R.ones(R.shape([1]), "float32")
            _ = R.match_cast(R.tensor_to_shape(t), R.Shape([k]))
            z = R.concat((y, R.zeros(R.shape([k]), "float32")), axis=0)
            return z

    resolved = resolve(Before)
    got = relax_modules.run(resolved, np.array([2]), np.array([3]))
    np.testing.assert_array_equal(got, [1, 1, 0, 0, 0])


def test_if_of_one_rank():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            if c:
                y = R.concat((x, x), axis=0)
            else:
                y = R.nn.relu(x)
            z = R.nn.softmax(y, axis=1)
            return z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            rows = T.int64()
            if c:
                y = R.concat((x, x), axis=0)
            else:
                y = R.nn.relu(x)
            joined = R.match_cast(y, R.Tensor((rows, 4), "float32"))
            z: R.Tensor((rows, 4), "float32") = R.nn.softmax(joined, axis=1)
            return z

    check(Before, Expected)
    for flag in (True, False):
        x = data(3, 4)
        got = relax_modules.run(resolve(Before), x, np.array(flag))
        exponents = np.exp(np.concatenate([x, x]) if flag else np.maximum(x, 0))
        expected = exponents / exponents.sum(1, keepdims=True)
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_if_with_a_returned_result():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            if c:
                y = R.concat((x, x), axis=0)
            else:
                y = R.nn.relu(x)
            return y

    stays(Mod)


def test_squeeze_of_a_symbol():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                row = R.squeeze(x, axis=[0])
                gv = R.nn.relu(row)
                R.output(gv)
            return gv

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                row_squeezed = R.match_cast(x, R.Tensor((1, 4), "float32"))
                row = R.squeeze(row_squeezed, axis=[0])
                gv = R.nn.relu(row)
                R.output(gv)
            return gv

    check(Before, Expected)
    x = data(1, 4)
    np.testing.assert_array_equal(relax_modules.run(resolve(Before), x), np.maximum(x[0], 0))
    with pytest.raises(RuntimeError, match=r"match_cast .*shape\[0\] mismatch"):
        relax_modules.run(resolve(Before), data(2, 4))


def test_a_broadcast_of_two_symbols_is_kept():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("m",), "float32")) -> R.Tensor(
            dtype="float32", ndim=1
        ):
            with R.dataflow():
                gv = R.add(x, y)
                R.output(gv)
            return gv

    stays(Mod)


def test_code_that_was_dead_is_kept():
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
            dead = R.add(x, x)
            y = R.nn.relu(x)
            return y

    stays(Mod)


def test_side_effects_are_kept():
    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=1):
            shape = R.shape_to_tensor(R.shape_of(x))
            size = R.prod(shape, axis=[0], keepdims=True)
            _ = R.print(size, format="size: {}")
            flat = R.reshape(x, R.tensor_to_shape(size))
            return flat

    resolved = resolve(Before)
    n = resolved["main"].params[0].ty.shape[0]
    tvm.ir.assert_structural_equal(resolved["main"].ret_ty, tensor(n * 4))
    assert count(resolved, "relax.print") == 1 and count(resolved, "relax.prod") == 1


def test_several_functions():
    @I.ir_module
    class Before:
        @R.function(private=True)
        def flatten(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=1):
            size = R.prod(R.shape_to_tensor(R.shape_of(x)), axis=[0], keepdims=True)
            flat = R.reshape(x, R.tensor_to_shape(size))
            return flat

        @R.function
        def main(x: R.Tensor((3, 4), "float32")) -> R.Tensor(dtype="float32", ndim=1):
            cls = Before
            y = cls.flatten(x)
            return y

    resolved = DynamicToStatic()(Before)
    assert not verify(resolved).errors
    assert resolved["flatten"].ret_ty.shape is not None
    x = data(3, 4)
    np.testing.assert_array_equal(relax_modules.run(resolved, x), x.ravel())


def test_a_local_function():
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            k = T.int64()
            _ = R.match_cast(R.tensor_to_shape(R.shape_to_tensor(R.shape_of(x))), R.Shape([k, 4]))

            @R.function
            def inner(y: R.Tensor((k, 4), "float32")) -> R.Tensor((k, 4), "float32"):
                z = R.add(y, R.ones(R.shape([k, 4]), "float32"))
                return z

            w = inner(x)
            return w

    resolved = DynamicToStatic()(Before)
    assert count(resolved, "relax.tensor_to_shape") == 0
    x = data(3, 4)
    lifted = relax.transform.LambdaLift()(resolved)
    np.testing.assert_array_equal(relax_modules.run(lifted, x), x + 1)


def test_a_call_that_tvm_rejects_once_more_is_known():
    """The call is in a branch that may never run."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), c: R.Tensor((), "bool")) -> R.Tensor(
            dtype="float32", ndim=2
        ):
            a, b = T.int64(), T.int64()
            _ = R.match_cast(R.tensor_to_shape(R.shape_to_tensor(R.shape_of(x))), R.Shape([a, b]))
            if c:
                y = R.matmul(x, R.ones(R.shape([a, b]), "float32"))
            else:
                y = R.nn.relu(x)
            return y

    resolved = resolve(Before)
    assert count(resolved, "relax.matmul") == 1


def test_an_open_extent_beside_a_literal_of_0():
    """In relax.op.reshape, 0 copies the operand's extent; in the operator it means 0."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(dtype="float32", ndim=2):
            shape = R.tensor_to_shape(R.const(np.array([0, -1]), "int64"))
            y = R.reshape(x, shape)
            return y

    stays(Before)


@pytest.mark.parametrize(
    "emit, attribute, value",
    [
        (lambda x, y: relax.op.concat([x, y], axis=0), "axis", 2),
        (lambda x, y: relax.op.split(x, 2), "indices_or_sections", tirx.IntImm("int64", 2**40)),
    ],
)
def test_calls_that_contradict_their_types(emit, attribute, value):
    """Calls for which TVM cannot infer a type are not tracked."""
    builder = relax.BlockBuilder()
    with builder.function("main", [relax.Var("p", tensor(2))]):
        x, y = relax.const(np.array([1, 2])), relax.const(np.array([3, 4]))
        made = builder.emit(emit(x, y))
        last = made if isinstance(made.ty, relax.TensorType) else relax.TupleGetItem(made, 0)
        builder.emit_func_output(builder.emit(last))
    mod = builder.get()
    call = mod["main"].body.blocks[0].bindings[0].value
    put(call.attrs, attribute, value)
    if attribute == "axis":
        put(call.args[0], "fields", [x, relax.const(np.ones((1, 1, 2), "int64"))])
    stays(mod)


def test_switch(monkeypatch):
    @I.ir_module
    class Mod:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32")) -> R.Shape(ndim=2):
            s = R.tensor_to_shape(R.shape_to_tensor(R.shape_of(x)))
            return s

    assert not DynamicToStatic()(Mod).same_as(Mod)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "dynamic-to-static")
    stays(Mod)


def test_log(caplog):
    n, c = tvm.tirx.Var("n", "int64"), relax.Var("c", tensor(dtype="bool"))
    x = relax.Var("x", tensor(n, 4))
    builder = relax.BlockBuilder()
    with builder.function("main", [x, c]):
        branch = relax.SeqExpr([], x)
        builder.emit_func_output(builder.emit(relax.If(c, branch, branch), "chosen"))
    with caplog.at_level(logging.DEBUG, logger="tvm_fixes.DynamicToStatic"):
        stays(builder.get())
    assert caplog.messages == ["main: `chosen`: the condition is known only at run time"]


def test_modules_without_anything_to_resolve():
    empty = tvm.IRModule()
    stays(empty)
    stays(tvm.IRModule({"f": relax.ExternFunc("f")}))


if __name__ == "__main__":
    tvm.testing.main()
