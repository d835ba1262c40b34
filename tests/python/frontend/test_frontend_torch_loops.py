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
"""Loops and branches of exported programs: while_loop, scan, map, associative_scan and cond."""

import io
import time
from functools import partial

import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.export import Dim
from tvm import relax

from helpers import exported_checks
from helpers.exported_checks import compiled
from helpers.grids import is_full
from helpers.growth import size_of
from helpers.torch_programs import random as seeded
from tvm_fixes.frontend.torch import from_exported_program


def random(*shape, seed=0):
    return seeded(*shape, dtype=torch.float32, seed=seed)


check_exported = partial(exported_checks.check_exported, by_program=not is_full())


class Counted(nn.Module):
    """A while_loop with a counter, a limit and a layer from around it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, count):
        def more(i, _x):
            return i < count

        def step(i, x):
            return i + 1, torch.tanh(self.linear(x))

        return while_loop(more, step, (torch.zeros((), dtype=torch.int64), x))


def test_while_loop():
    runs = [(random(3, 4), 3), (random(5, 4), 20), (random(2, 4), 0), (random(2, 4), -3)]
    runs = [(x, torch.tensor(count)) for x, count in runs]
    mod = check_exported(Counted(), *runs, dynamic=({0: Dim("batch")}, None))
    # The layer's weights are constants of the body, so that they are prepared only once.
    [iteration] = [f for name, f in mod.functions_items() if "iteration" == name.name_hint[5:]]
    assert all(
        parameter.ty.ndim < 2 or parameter.ty.shape[0] != 4 for parameter in iteration.params[1:]
    )


RANGES = [(3, -5, -2), (0, 10, 1), (5, 5, 1)]


@pytest.mark.parametrize(("start", "stop", "by"), RANGES if is_full() else RANGES[:1])
def test_while_loop_carries_a_python_integer(start, stop, by):
    class Integer(nn.Module):
        def forward(self, x):
            def more(i, _x):
                return i < stop if by > 0 else i > stop

            def step(i, x):
                return i + by, x * 0.5 + i

            return while_loop(more, step, (start, x))[1]

    check_exported(Integer(), [random(3, 4)], [random(7, 4)], dynamic=({0: Dim("batch")},))


def test_while_loop_selects_rows_by_a_carried_integer():
    class Rows(nn.Module):
        def forward(self, x):
            def more(i, _total, x):
                return i < x.shape[0]

            def step(i, total, x):
                torch._check(i >= 0)
                torch._check(i < x.shape[0])
                return i + 1, total + x.select(0, i) * i, x.clone()

            return while_loop(more, step, (0, torch.zeros(4), x))[1]

    check_exported(Rows(), [random(6, 4)], [random(19, 4)], dynamic=({0: Dim("rows")},))


class Reversed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        def step(state, row):
            state = torch.tanh(self.linear(state) + row)
            return state, state * 2

        return scan(step, torch.zeros_like(x[0]), x, dim=0, reverse=True)


@pytest.mark.skipif(not is_full(), reason="the quick tier runs this scan as a saved program")
def test_scan_backwards():
    runs = [[random(5, 3, 4)], [random(1, 2, 4)], [random(33, 1, 4)]]
    check_exported(Reversed(), *runs, dynamic=({0: Dim("steps"), 1: Dim("batch")},))


class Various(nn.Module):
    """A scan along axis 1 that carries and returns tensors of several shapes and dtypes."""

    def forward(self, x, y):
        def step(carried, rows):
            count, state = carried["count"], carried["state"]
            state = state * rows[0].sum(-1).tanh() + rows[1]
            results = state.sum(0)[None], rows[0] > 0, count.clone(), rows[1].half()
            return {"count": count + 2, "state": state}, results

        initial = {"count": torch.zeros((), dtype=torch.int32), "state": torch.ones_like(y[:, 0])}
        return scan(step, initial, (x, y), dim=1)


@pytest.mark.skipif(not is_full(), reason="the quick tier runs this scan with symbolic extents")
@pytest.mark.parametrize("steps", [6, 20])
def test_scan_of_several_tensors(steps):
    check_exported(Various(), (random(3, steps, 4), random(3, steps, seed=1)))


def test_scan_of_several_tensors_with_symbolic_extents():
    axes = {0: Dim("batch"), 1: Dim("steps")}
    runs = [(random(b, t, 4), random(b, t, seed=1)) for b, t in ((3, 6), (5, 11), (1, 1))]
    check_exported(Various(), *runs, dynamic=(axes, axes))


class Products(nn.Module):
    def forward(self, x, y):
        return map_rows(lambda row, y: row @ y + row.shape[0], x, y)


def test_map():
    y = random(4, 3, seed=1)
    for steps in (3, 40) if is_full() else ():
        check_exported(Products(), (random(steps, 2, 4), y))
    runs = [(random(5, 3, 4), y), (random(1, 2, 4), y)]
    check_exported(Products(), *runs, dynamic=({0: Dim("rows"), 1: Dim("columns")}, None))


def combine(decay, total, next_decay, row):
    return [decay * next_decay, total * next_decay + row]


class Serial(nn.Module):
    """An associative_scan as the operator that exports of GPU programs contain."""

    def forward(self, x, y):
        if torch.compiler.is_exporting():
            return torch.ops.higher_order.associative_scan(combine, [x, y], ())
        xs, ys = [x[:1]], [y[:1]]
        for i in range(1, x.shape[0]):
            a, b = combine(xs[-1], ys[-1], x[i : i + 1], y[i : i + 1])
            xs.append(a)
            ys.append(b)
        return torch.cat(xs), torch.cat(ys)


def test_associative_scan_operator():
    for rows in (1, 7, 30) if is_full() else ():
        exported_checks.check_exported(Serial(), (random(rows, 4), random(rows, 4, seed=1)))
    axes = {0: Dim("rows")}
    runs = [(random(rows, 4), random(rows, 4, seed=1)) for rows in (7, 1, 30, 0)]
    exported_checks.check_exported(Serial(), *runs, dynamic=(axes, axes))


class StateSpace(nn.Module):
    """The recurrence of a selective state-space model."""

    def forward(self, x, y):
        def step(a, b):
            return a[0] * b[0], a[1] * b[0] + b[1]

        return associative_scan(step, (torch.sigmoid(x), y), dim=1, combine_mode="generic")


def test_generic_associative_scan():
    check_exported(StateSpace(), (random(2, 13, 4), random(2, 13, 4, seed=1)))


def test_nested_scans_with_branches():
    class Nested(nn.Module):
        def forward(self, x, y):
            def inner(total, row):
                total = torch.cond(
                    row.sum() > 0,
                    lambda a, b: a + b,
                    lambda a, b: a - b * b.shape[0],
                    (total, row),
                )
                return total, total.clone()

            def outer(total, row):
                total, totals = scan(inner, total, y)
                return total * 0.1 + row, totals

            return scan(outer, x[0] * 1, x)

    columns = Dim("columns")
    dynamic = ({0: Dim("rows"), 1: columns}, {0: Dim("inner"), 1: columns})
    runs = [(random(n, k), random(m, k, seed=1)) for n, m, k in ((5, 4, 3), (12, 11, 2))]
    check_exported(Nested(), *runs, dynamic=dynamic)


def test_nested_while_loops():
    class Nested(nn.Module):
        def forward(self, x, count):
            def step(i, x):
                def more(j, x):
                    return (j < i) & (x.sum() < 100)

                zero = torch.zeros((), dtype=torch.int64)
                _, x = while_loop(more, lambda j, x: (j + 1, x + x.relu().mean() + j), (zero, x))
                return i + 1, x * 0.9

            zero = torch.zeros((), dtype=torch.int64)
            return while_loop(lambda i, x: i < count, step, (zero, x))

    runs = [(random(3, 4), torch.tensor(5)), (random(5, 4), torch.tensor(9))]
    check_exported(Nested(), *runs, dynamic=({0: Dim("batch")}, None))


def test_a_loop_that_an_operator_reads_in_another_loop():
    """The outer one counts with an int; the shape of what the inner one carries is known."""

    class Nested(nn.Module):
        def forward(self, x):
            def step(i, x, total):
                zero = torch.zeros((), dtype=torch.int64)
                _, x = while_loop(
                    lambda j, _x: j < 3, lambda j, x: (j + 1, torch.sin(x + j)), (zero, x)
                )
                x = torch.tanh(x)
                return i + 1, x, total + x.sum() + i

            return while_loop(lambda i, _x, _total: i < 4, step, (0, x, torch.zeros(())))[1:]

    runs = [(random(3, 4),), (random(5, 4),)]
    check_exported(Nested(), *runs, dynamic=({0: Dim("batch")},))


class Branches(nn.Module):
    """Branches that compute with sizes, and return several tensors."""

    def forward(self, x, y):
        by_size = torch.cond(
            x.shape[0] > 4,
            lambda x, y: x.sum(0) + y.shape[0],
            lambda x, y: x.mean(0) - y.sum(),
            (x, y),
        )
        by_value = torch.cond(
            x.sum() > 0,
            lambda x, y: (x.flip(0)[1:] * y.shape[0], y * 2),
            lambda x, y: (x[:-1] + y.shape[0], y + 1),
            (x, y),
        )
        return by_size, by_value


def test_branches_with_symbolic_extents():
    dynamic = ({0: Dim("n", min=3)}, {0: Dim("m")})
    runs = [(random(6, 4), random(3)), (random(3, 4), random(2)), (random(7, 4).abs(), random(2))]
    check_exported(Branches(), *runs, dynamic=dynamic)


def test_a_saved_program():
    def reload(program):
        file = io.BytesIO()
        torch.export.save(program, file)
        return torch.export.load(io.BytesIO(file.getvalue()))

    runs = [[random(5, 3, 4)], [random(1, 2, 4)], [random(33, 1, 4)]]
    dynamic = ({0: Dim("steps"), 1: Dim("batch")},)
    check_exported(Reversed(), *runs, dynamic=dynamic, reload=reload)
    if is_full():
        check_exported(Reversed(), runs[0], reload=lambda program: program.run_decompositions())


def test_an_unknown_operator_in_a_body_is_named():
    class Unknown(nn.Module):
        def forward(self, x):
            return map_rows(lambda row: torch.special.airy_ai(row), x)

    program = torch.export.export(Unknown(), (random(3, 4),))
    with pytest.raises(tvm.error.OpNotImplemented, match=r"aten\.special_airy_ai\.default at node"):
        from_exported_program(program)


def test_converters_of_the_caller_apply_in_bodies():
    program = torch.export.export(Products(), (random(9, 2, 4), random(4, 3)))

    def zeros(node, importer):
        return importer.block_builder.emit(relax.op.zeros((2, 3), "float32"))

    mod = from_exported_program(program, custom_convert_map={"matmul.default": zeros})
    [result] = compiled(mod)(random(9, 2, 4), random(4, 3))
    torch.testing.assert_close(result, torch.full((9, 2, 3), 2.0))


def test_import_does_not_depend_on_the_number_of_steps():
    sizes, seconds = [], []
    for steps in (25, 100, 400) if is_full() else (25, 400):
        torch.compiler.reset()
        program = torch.export.export(Reversed(), (random(steps, 3, 4),))
        start = time.process_time()
        mod = from_exported_program(program)
        compiled(mod)
        seconds.append(time.process_time() - start)
        sizes.append(size_of(mod))
    # Only the digits of the number differ.
    assert max(sizes) - min(sizes) < 100, sizes
    assert seconds[-1] < 2 * seconds[0] + 0.5, seconds


if __name__ == "__main__":
    tvm.testing.main()
