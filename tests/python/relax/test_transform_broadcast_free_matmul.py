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
"""tvm_fixes.transform.BroadcastFreeMatmul."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx

from helpers.relax_modules import build, call, calls, count, cpu, integers, merge, tensor
from tvm_fixes import transform
from tvm_fixes.support import switches

pytestmark = pytest.mark.native

op = relax.op
n, m = (tirx.Var(name, "int64") for name in "nm")


def apply(before: tvm.IRModule) -> tvm.IRModule:
    after = transform.BroadcastFreeMatmul()(before)
    assert relax.analysis.check_well_formed(after)
    # The same functions, not only equal ones.
    assert transform.BroadcastFreeMatmul()(after)["main"].same_as(after["main"])
    return after


def check(inputs, before, expected) -> None:
    tvm.ir.assert_structural_equal(apply(build(inputs, before)), build(inputs, expected))


def check_same(inputs, emit) -> None:
    before = build(inputs, emit)
    assert apply(before)["main"].same_as(before["main"])


def test_the_weight_of_a_linear_layer():
    """PyTorch's decomposition for a transposed input, followed by bias and activation."""

    def before(b, x, w, bias):
        x = b.emit(op.broadcast_to(b.emit(op.permute_dims(x, [0, 2, 1])), (16, 7, 64)))
        w = b.emit(op.broadcast_to(b.emit(op.permute_dims(w)), (16, 64, 96)))
        return op.nn.relu(b.emit(op.add(b.emit(op.matmul(x, w)), bias)))

    def expected(b, x, w, bias):
        x, w = b.emit(op.permute_dims(x, [0, 2, 1])), b.emit(op.permute_dims(w))
        return op.nn.relu(b.emit(op.add(b.emit(op.matmul(x, w)), bias)))

    check({"x": tensor(16, 64, 7), "w": tensor(96, 64), "bias": tensor(96)}, before, expected)


def test_merged_axes_of_the_batch():
    def before(b, x, w):
        x = b.emit(op.reshape(b.emit(op.broadcast_to(x, (4, 5, 6, 8))), (20, 6, 8)))
        w = b.emit(op.reshape(b.emit(op.broadcast_to(w, (4, 5, 8, 9))), (20, 8, 9)))
        return op.reshape(b.emit(op.matmul(x, w)), (4, 5, 6, 9))

    def expected(b, x, w):
        x = b.emit(op.reshape(x, (20, 6, 8)))
        return op.reshape(b.emit(op.matmul(x, w)), (4, 5, 6, 9))

    check({"x": tensor(4, 5, 6, 8), "w": tensor(8, 9)}, before, expected)


def test_a_buffer_on_the_left():
    def before(b, x, w):
        return op.matmul(b.emit(op.broadcast_to(w, (n, 3, 4))), x)

    inputs = {"x": tensor(n, 4, m), "w": tensor(3, 4)}
    check(inputs, before, lambda b, x, w: op.matmul(w, x))


def test_symbolic_axes_that_are_merged():
    def before(b, _, x, w):
        w = b.emit(op.reshape(b.emit(op.broadcast_to(w, (n, 2, 8, 9))), (n * 2, 8, 9)))
        return op.matmul(x, w)

    inputs = {"s": tensor(n), "x": tensor(n * 2, 6, 8), "w": tensor(8, 9)}
    check(inputs, before, lambda b, _, x, w: op.matmul(x, w))


def test_permuted_behind_the_broadcast():
    """The permute moves to the smaller tensor, in place; two matmuls read it."""

    def before(b, x, y, w):
        w = b.emit(op.permute_dims(b.emit(op.broadcast_to(w, (4, 9, 8))), [0, 2, 1]))
        return op.add(b.emit(op.matmul(x, w)), b.emit(op.matmul(y, w)))

    def expected(b, x, y, w):
        w = b.emit(op.permute_dims(w, [1, 0]))
        return op.add(b.emit(op.matmul(x, w)), b.emit(op.matmul(y, w)))

    check({"x": tensor(4, 6, 8), "y": tensor(4, 6, 8), "w": tensor(9, 8)}, before, expected)


def test_heads_that_share_keys():
    """Only a factor of the heads axis is repeated."""

    def before(b, q, k):
        k = b.emit(op.broadcast_to(b.emit(op.expand_dims(k, 2)), (n, 2, 3, 7, 8)))
        k = b.emit(op.permute_dims(b.emit(op.reshape(k, (n, 6, 7, 8))), [0, 1, 3, 2]))
        return op.matmul(q, k)

    before = build({"q": tensor(n, 6, 5, 8), "k": tensor(n, 2, 7, 8)}, before)
    after = apply(before)
    for mod in (before, after):
        assert count(mod, "relax.permute_dims") == 1
    [matmul] = calls(after, "relax.matmul")
    assert [prod(map(int, list(a.ty.shape)[1:])) for a in matmul.args] == [6 * 5 * 8, 2 * 7 * 8]
    assert count(after, "relax.broadcast_to") == 0


def test_rows_that_are_repeated():
    def before(b, x, w):
        return op.matmul(b.emit(op.repeat(b.emit(op.tile(x, (4, 1))), 3, 0)), w)

    def expected(b, x, w):
        out = b.emit(op.reshape(b.emit(op.matmul(x, w)), (1, 2, 1, 9)))
        return op.reshape(b.emit(op.broadcast_to(out, (4, 2, 3, 9))), (24, 9))

    check({"x": tensor(2, 8), "w": tensor(8, 9)}, before, expected)


def test_neither_varies():
    def before(b, x, w):
        x, w = (b.emit(op.broadcast_to(v, (n, *v.ty.shape))) for v in (x, w))
        return op.matmul(x, w)

    def expected(b, x, w):
        # One operand must keep the extent of the result.
        return op.broadcast_to(b.emit(op.matmul(x, w)), (n, 6, 9))

    inputs = {"x": tensor(6, 8), "w": tensor(8, 9), "s": tensor(n)}
    check(inputs, lambda b, x, w, s: before(b, x, w), lambda b, x, w, s: expected(b, x, w))


def test_the_dtype_of_the_result_is_kept():
    def before(b, x, w):
        return op.matmul(x, b.emit(op.broadcast_to(w, (4, 8, 9))), "float32")

    def expected(b, x, w):
        return op.matmul(x, w, "float32")

    inputs = {"x": tensor(4, 6, 8, dtype="float16"), "w": tensor(8, 9, dtype="float16")}
    check(inputs, before, expected)


class TestStays:
    def test_a_repeated_reduction_axis(self):
        check_same(
            {"x": tensor(4, 6, 8), "w": tensor(1, 9)},
            lambda b, x, w: op.matmul(x, b.emit(op.broadcast_to(w, (4, 8, 9)))),
        )

    def test_operands_that_vary_along_the_batch(self):
        check_same(
            {"x": tensor(4, 6, 8), "w": tensor(4, 8, 1)},
            lambda b, x, w: op.matmul(x, b.emit(op.broadcast_to(w, (4, 8, 1)))),
        )

    def test_extents_that_may_be_equal(self):
        """The broadcast of n and m has an unknown shape."""
        check_same(
            {"x": tensor(n, 6, 8), "w": tensor(8, 9), "s": tensor(m)},
            lambda b, x, w, s: op.matmul(x, b.emit(op.broadcast_to(w, (m, 8, 9)))),
        )

    def test_a_permute_that_something_else_reads(self):
        def emit(b, x, w):
            w = b.emit(op.permute_dims(b.emit(op.broadcast_to(w, (4, 8, 8))), [0, 2, 1]))
            return op.add(w, b.emit(op.matmul(x, w)))

        check_same({"x": tensor(4, 8, 8), "w": tensor(8, 8)}, emit)

    def test_a_permute_read_by_a_repeated_reduction(self):
        def emit(b, x, w):
            w = b.emit(op.permute_dims(b.emit(op.broadcast_to(w, (8, 8, 4))), [0, 2, 1]))
            w = b.emit(op.reshape(w, (8, 4, 8)))
            first = b.emit(op.matmul(x, b.emit(op.permute_dims(w, [0, 2, 1]))))
            return op.matmul(w, first)

        before = build({"x": tensor(8, 8, 8), "w": tensor(8, 1, 4)}, emit)
        after = apply(before)
        assert count(after, "relax.permute_dims") <= count(before, "relax.permute_dims")

    def test_another_operator(self):
        check_same(
            {"x": tensor(4, 8, 9), "w": tensor(8, 9)},
            lambda b, x, w: op.add(x, b.emit(op.broadcast_to(w, (4, 8, 9)))),
        )


def test_a_broadcast_with_another_reader_is_kept():
    def before(b, x, w):
        w = b.emit(op.broadcast_to(w, (4, 8, 8)))
        return op.add(w, b.emit(op.matmul(x, w)))

    def expected(b, x, w):
        wide = b.emit(op.broadcast_to(w, (4, 8, 8)))
        return op.add(wide, b.emit(op.matmul(x, w)))

    check({"x": tensor(4, 8, 8), "w": tensor(8, 8)}, before, expected)


def test_outputs_of_a_block_are_read_unchanged_after_it():
    """The small tensor is in scope only in the block."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor(4, 6, 8)), relax.Var("w", tensor(9, 8))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            small = builder.emit(op.permute_dims(w))
            wide = builder.emit_output(op.broadcast_to(small, (4, 8, 9)))
        with builder.dataflow():
            out = builder.emit_output(op.matmul(x, wide))
        builder.emit_func_output(out)
    before = builder.get()
    assert apply(before)["main"].same_as(before["main"])


def test_branches():
    """The broadcast precedes the branch that reads it."""
    builder = relax.BlockBuilder()
    x, w = relax.Var("x", tensor(4, 6, 8)), relax.Var("w", tensor(8, 9))
    c = relax.Var("c", tensor(dtype="bool"))

    def branch(value):
        var = relax.Var("out", tensor(4, 6, 9))
        return relax.SeqExpr([relax.BindingBlock([relax.VarBinding(var, value)])], var)

    with builder.function("main", [c, x, w]):
        wide = builder.emit(op.broadcast_to(w, (4, 8, 9)))
        product = builder.normalize(op.matmul(x, wide))
        zeros = builder.normalize(op.zeros((4, 6, 9), "float32"))
        out = builder.emit(relax.If(c, branch(product), branch(zeros)))
        builder.emit_func_output(out)
    after = apply(builder.get())
    assert count(after, "relax.broadcast_to") == 0
    [matmul] = calls(after, "relax.matmul")
    assert matmul.args[1].same_as(after["main"].params[2])


def test_switched_off(monkeypatch):
    mod = build(
        {"x": tensor(4, 6, 8), "w": tensor(8, 9)},
        lambda b, x, w: op.matmul(x, b.emit(op.broadcast_to(w, (4, 8, 9)))),
    )
    with switches.collect() as used:
        apply(mod)
    assert used == {"broadcast-free-matmul"}
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "broadcast-free-matmul")
    assert transform.BroadcastFreeMatmul()(mod)["main"].same_as(mod["main"])


def test_log(caplog):
    def emit(b, x, w):
        return b.emit(op.matmul(x, b.emit(op.broadcast_to(w, (4, 8, 9)))), name_hint="product")

    with caplog.at_level(logging.DEBUG, logger="tvm_fixes.BroadcastFreeMatmul"):
        apply(build({"x": tensor(4, 6, 8), "w": tensor(1, 9)}, emit))
    assert caplog.messages[0] == "main: `product`: the reduction axis is repeated"


# Random operands. Most run in a NumPy interpreter, since building is much slower.

_FUNCTIONS = {
    "relax.permute_dims": lambda c, x, _: x.transpose(
        None if c.attrs.axes is None else [int(axis) for axis in c.attrs.axes]
    ),
    "relax.broadcast_to": lambda c, x, dims: np.broadcast_to(x, dims),
    "relax.reshape": lambda c, x, dims: x.reshape(dims),
    "relax.expand_dims": lambda c, x, dims: x.reshape(dims),
    "relax.tile": lambda c, x, _: np.tile(x, [int(r) for r in c.attrs.repeats]),
    "relax.repeat": lambda c, x, _: np.repeat(x, int(c.attrs.repeats), int(c.attrs.axis)),
}


def interpret(mod: tvm.IRModule, arrays: Sequence[np.ndarray], sizes: dict[Any, int]) -> np.ndarray:
    """Run ``main``, of one dataflow block, with these values of its symbols."""
    main = mod["main"]
    values = dict(zip(main.params, arrays, strict=True))

    analyzer = tvm.sym.Analyzer()
    for symbol, size in sizes.items():
        analyzer.bind(symbol, tirx.IntImm("int64", size))

    def extents(expr: relax.Expr) -> list[int]:
        return [int(analyzer.simplify(dim)) for dim in expr.ty.shape]

    for binding in main.body.blocks[0].bindings:
        c, dims = binding.value, extents(binding.var)
        if c.op.name == "relax.matmul":
            value = np.matmul(values[c.args[0]], values[c.args[1]])
        else:
            value = _FUNCTIONS[c.op.name](c, values[c.args[0]], dims)
        assert list(value.shape) == dims
        values[binding.var] = value
    return values[main.body.body]


@dataclass
class Part:
    """A factor of an axis of an operand."""

    extent: Any
    is_repeated: bool = False


@dataclass
class Chain:
    """An operand: its axes, and their order in its source."""

    axes: list[list[Part]]
    order: list[int] = field(default_factory=list)
    way: str = "broadcast_to"

    @property
    def parts(self) -> list[Part]:
        return [part for axis in self.axes for part in axis]

    @property
    def source(self) -> list[Any]:
        """The shape of the source: its parts in source order, 1 if repeated."""
        return [1 if self.parts[i].is_repeated else self.parts[i].extent for i in self.order]

    def emit(self, builder: relax.BlockBuilder, x: relax.Var) -> relax.Var:
        wide = [self.parts[i].extent for i in self.order]
        if self.way == "tile":
            pairs = zip(self.order, wide, strict=True)
            x = builder.emit(op.tile(x, [e if self.parts[i].is_repeated else 1 for i, e in pairs]))
        elif self.way == "repeat":
            for axis, i in enumerate(self.order):
                if self.parts[i].is_repeated:
                    x = builder.emit(op.repeat(x, wide[axis], axis))
        else:
            x = builder.emit(op.broadcast_to(x, wide))
        if self.order:
            x = builder.emit(op.permute_dims(x, list(np.argsort(self.order))))
        if all(len(axis) == 1 for axis in self.axes):
            return x
        return builder.emit(op.reshape(x, [product([p.extent for p in a]) for a in self.axes]))


def product(extents: Sequence[Any]) -> Any:
    result: Any = 1
    for extent in extents:
        result = result * extent
    return result


@st.composite
def chains(draw, batch: list[list[Any]], matrix: list[Any], symbols: bool) -> Chain:
    """A random operand with batch axes of these factors, followed by the `matrix` axes."""
    rank = draw(st.integers(0, len(batch))) if len(matrix) == 2 else 0
    axes = []
    for factors in batch[len(batch) - rank :]:
        if draw(st.integers(0, 5)) == 0:
            axes.append([Part(1)])
        else:
            axes.append([Part(extent, draw(st.booleans())) for extent in factors])
    axes += [[Part(extent, draw(st.integers(0, 4)) == 0)] for extent in matrix]
    chain = Chain(axes)
    chain.order = list(draw(st.permutations(range(len(chain.parts)))))
    # No symbolic repeats, and none to 0 elements.
    if not symbols and all(part.extent for part in chain.parts):
        chain.way = draw(st.sampled_from(["broadcast_to", "tile", "repeat"]))
    return chain


@st.composite
def matmuls(draw) -> tuple[Chain, Chain, bool]:
    symbols = draw(st.booleans())
    # A reshape cannot name an extent of 0.
    is_empty = draw(st.integers(0, 5)) == 0
    extents = st.sampled_from([0 if is_empty else 1, 2, 2, 3, 3, *([n, n, m] if symbols else [])])
    most = 1 if is_empty else 2
    batch = draw(st.lists(st.lists(extents, min_size=1, max_size=most), max_size=3))
    rows, summed, columns = draw(extents), draw(extents), draw(extents)
    lhs_matrix = draw(st.sampled_from([[rows, summed], [rows, summed], [summed]]))
    rhs_matrix = draw(st.sampled_from([[summed, columns], [summed, columns], [summed]]))
    lhs = draw(chains(batch, lhs_matrix, symbols))
    rhs = draw(chains(batch, rhs_matrix, symbols))
    return lhs, rhs, symbols


def module_of(lhs: Chain, rhs: Chain) -> tvm.IRModule:
    def emit(b, x, y, *_):
        return op.matmul(lhs.emit(b, x), rhs.emit(b, y))

    # The symbols are those of the last parameter.
    inputs = {"x": tensor(*lhs.source), "y": tensor(*rhs.source), "s": tensor(n, m)}
    return build(inputs, emit)


@given(matmuls(), st.integers(0, 3), st.integers(0, 3))
def test_random_operands(case, size_n, size_m):
    """The results are unchanged, and a matmul reads no more elements than before."""
    lhs, rhs, _ = case
    before = module_of(lhs, rhs)
    after = apply(before)
    sizes = {n: size_n, m: size_m}
    numbers = [[sizes.get(e, e) for e in chain.source] for chain in (lhs, rhs)]
    arrays = [*(integers(*dims, seed=i) for i, dims in enumerate(numbers))]
    arrays.append(np.zeros((size_n, size_m), "float32"))
    expected = interpret(before, arrays, sizes)
    np.testing.assert_array_equal(interpret(after, arrays, sizes), expected)

    def elements(mod):
        [matmul] = calls(mod, "relax.matmul")
        return [product(list(arg.ty.shape)) for arg in matmul.args]

    if all(isinstance(part.extent, int) for chain in (lhs, rhs) for part in chain.parts):
        for small, wide in zip(elements(after), elements(before), strict=True):
            assert int(small) <= int(wide)


@given(matmuls())
def test_random_operands_are_read_small(case):
    """A matmul reads nothing repeated, except along its reduction axis."""
    lhs, rhs, symbols = case
    summed = [*lhs.axes[-1], *rhs.axes[-2 if len(rhs.axes) > 1 else -1]]
    if symbols or any(part.is_repeated for part in summed):
        return
    if any(part.extent == 0 for chain in (lhs, rhs) for part in chain.parts):
        return
    after = apply(module_of(lhs, rhs))
    [matmul] = calls(after, "relax.matmul")
    for arg, chain in zip(matmul.args, (lhs, rhs), strict=True):
        assert prod(map(int, arg.ty.shape)) == prod(chain.source)


def test_built_and_run():
    """All kinds of operands in one library, on exact integers."""

    def repeated(*extents):
        return [[Part(e, True)] for e in extents]

    def varying(*extents):
        return [[Part(e)] for e in extents]

    pairs = [
        (Chain(varying(4, 3, 5)), Chain(repeated(4) + varying(5, 2))),
        (Chain(repeated(4) + varying(3, 5)), Chain(varying(4, 5, 2))),
        (Chain(varying(6, 3, 5)), Chain([[Part(2), Part(3, True)], *varying(5, 2)])),
        (Chain(repeated(4) + varying(3, 5)), Chain(repeated(4) + varying(5, 2))),
        (Chain(varying(4) + repeated(3) + varying(5)), Chain(varying(5) + repeated(2))),
        (Chain(varying(n, 3, 5)), Chain(repeated(n) + varying(5, 2))),
        (Chain(varying(5)), Chain(repeated(4) + varying(5, 2))),
        (Chain(varying(1, 3, 5)), Chain(repeated(4) + varying(5, 2))),
        (Chain(varying(n, 3, 1)), Chain(repeated(n) + varying(1, 2))),
    ]
    before, arrays = {}, {}
    for i, pair in enumerate(pairs):
        for chain in pair:
            chain.order = list(range(len(chain.parts)))[::-1]
        before[f"f{i}"] = module_of(*pair)
        shapes = ([4 if e is n else e for e in chain.source] for chain in pair)
        arrays[f"f{i}"] = [
            *(integers(*shape, seed=i) for shape in shapes),
            np.zeros((4, 1), "float32"),
        ]
    after = transform.BroadcastFreeMatmul()(merge(before))
    vm = relax.VirtualMachine(relax.build(after, cpu()), tvm.cpu())
    for name, values in arrays.items():
        assert not after[name].same_as(merge(before)[name])
        expected = interpret(before[name], values, {n: 4, m: 1})
        np.testing.assert_array_equal(call(vm, name, *values), expected)


if __name__ == "__main__":
    tvm.testing.main()
