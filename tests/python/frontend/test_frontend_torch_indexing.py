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
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import sample
from helpers.relax_modules import call, cpu, merge
from helpers.torch_programs import Call, import_exported, run_functions
from tvm_fixes.fixes.torch_importer import INDEXING
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches

INDEX, J = torch.tensor([-1, 0, 2]), torch.tensor([[1], [-2]], dtype=torch.int32)
K = torch.tensor([1, 1, 0])
DIAGONAL = torch.tensor([0, 2])
MASK = torch.tensor([[True, False, True], [False, False, True]])


def data(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assigned(x, index, value):
    result = x.clone()
    result[index] = value
    return result


def check(functions, **tolerance):
    """Assert that each function equals PyTorch on its inputs."""
    mods, inputs, expected = {}, {}, {}
    for name, (function, *arguments) in sample(list(functions.items()), 7):
        expected[name] = function(*arguments)
        mods[name] = import_exported(Call(function), arguments)
        inputs[name] = arguments
    results = run_functions(mods, inputs)
    for name, result in results.items():
        assert isinstance(result, torch.Tensor), f"{name}: {result}"
        torch.testing.assert_close(result, expected[name], msg=f"{name}: {result}", **tolerance)


def test_reading_by_several_indices():
    x = data(3, 4, 3, 5)
    check(
        {
            "first": (lambda x: x[INDEX], x),
            "last": (lambda x: x[:, [-1]], x),
            "falcon": (lambda x: x[..., [-2], :], x),
            "matrix": (lambda x: x[:, J], x),
            "together": (lambda x: x[:, INDEX, J], x),
            "at_the_end": (lambda x: x[..., J, INDEX], x),
            "apart": (lambda x: x[INDEX, :, J], x),
            "apart_behind": (lambda x: x[:, INDEX, :, J], x),
            "three": (lambda x: x[INDEX, :, K, J], x),
            "new_axis": (lambda x: x[:, None, INDEX, None, J], x),
            "with_slices": (lambda x: x[1:, INDEX, ::2, J], x),
            "scalar": (lambda x: x[torch.tensor(-1), :, torch.tensor(1)], x),
            "all": (lambda x: x[INDEX, K, INDEX, K], x),
            "none": (lambda x: x[:, INDEX[:0], :, J[:, :0]], x),
            "inputs": (lambda x, i, j: x[:, i, :, j], x, INDEX, J.long()),
            "take": (lambda x: torch.take(x, torch.tensor([[-1, 0], [179, -180]])), x),
            "take_scalar": (torch.take, x, torch.tensor(-2)),
            "gather": (lambda x: torch.gather(x, 1, torch.zeros(2, 7, 1, 3).long()), x),
            "index_select": (lambda x: x.index_select(2, K), x),
            "embedding": (
                lambda x, i: torch.nn.functional.embedding(i, x),
                data(5, 3),
                J.long() + 2,
            ),
        }
    )


def test_writing_by_indices():
    x, row = data(3, 4, 3, 5), data(3, 3, 5, seed=1)

    def put(index, value, accumulate=False):
        put_to = torch.ops.aten.index_put.default
        return (lambda x, v: put_to(x, list(index), v, accumulate), x, value)

    unique = torch.tensor([[-1], [1]])
    check(
        {
            "rows": put((None, torch.tensor([-1, 0, 2])), row),
            "diagonal": (
                lambda x, v: assigned(x, (..., DIAGONAL, DIAGONAL), v),
                x,
                data(2, seed=2),
            ),
            "apart": put((INDEX, None, unique), data(2, 3, 4, 5, seed=3)),
            "broadcast": put((INDEX, None, unique), data(4, 1, seed=3)),
            "elements": put((INDEX, INDEX, INDEX, INDEX), data(3, seed=3)),
            "scalar": (lambda x: assigned(x, (INDEX, INDEX), 2.5), x),
            "numbers": (lambda x, v: assigned(x, (..., 1, 1), v), x, data(3, 4, seed=5)),
            "one": (lambda x: assigned(x, (slice(None), -1, 2), 1.0), x),
            "accumulated": put((K,), data(3, 4, 3, 5, seed=3), True),
            "accumulated_apart": put((None, K, None, K), data(3, 1, 1, seed=3), True),
            "index_add": (lambda x, v: x.index_add(2, K, v, alpha=2), x, data(3, 4, 3, 5, seed=4)),
            "index_copy": (lambda x, v: x.index_copy(2, INDEX % 3, v), x, data(3, 4, 3, 5, seed=4)),
            "index_fill": (lambda x: x.index_fill(3, K, -1.0), x),
            "half": (lambda x, v: x.index_put((INDEX,), v), x.half(), row[0].half()),
        }
    )


def test_writing_by_masks():
    x, values = data(2, 3, 4), data(3, 4, seed=1)
    check(
        {
            "number": (lambda x, m: assigned(x, m, 0.5), x, MASK),
            "row": (lambda x, m, v: assigned(x, m, v), x, MASK, data(4, seed=1)),
            "one_row": (lambda x, m, v: assigned(x, m, v), x, MASK, data(1, 4, seed=1)),
            "rows": (lambda x, m, v: assigned(x, m, v), x, MASK, values),
            "elements": (lambda x, m, v: assigned(x, m, v), x[..., 0], MASK, data(3, seed=2)),
            "behind": (
                lambda x, m, v: assigned(x, (slice(None), m), v),
                x,
                torch.tensor([True, False, True]),
                data(2, 2, 4, seed=3),
            ),
            "none": (lambda x, m: assigned(x, m, 1.0), x, torch.zeros_like(MASK)),
            "added": (lambda x, m, v: x.index_put((m,), v, True), x, MASK, values),
            "computed": (lambda x: assigned(x, x > 0, 0.0), x),
        }
    )


def test_mask_of_a_dim_of_its_own():
    def program(x, mask):
        return assigned(x, mask, 0.5)

    x, mask = data(4, 5), torch.tensor([True, False, True, False])
    auto = torch.export.Dim.AUTO
    exported = torch.export.export(
        Call(program), (x, mask), dynamic_shapes=(({0: auto}, {0: auto}),)
    )
    mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for rows in (4, 2):
        got = call(vm, "main", x[:rows].numpy(), mask[:rows].numpy())
        np.testing.assert_array_equal(got, program(x[:rows], mask[:rows]).numpy())
    with pytest.raises(RuntimeError, match="match_cast"):
        call(vm, "main", x.numpy(), mask[:1].numpy())


@pytest.mark.parametrize("mask", ([True, True, True], [True, False, False]))
def test_a_mask_names_as_many_elements_as_there_are_values(mask):
    def program(x, mask, values):
        return assigned(x, mask, values)

    x, values, right = data(3), data(2, seed=1), torch.tensor([True, False, True])
    mod = import_exported(Call(program), (x, right, values))
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    got = call(vm, "main", x.numpy(), right.numpy(), values.numpy())
    np.testing.assert_array_equal(got, program(x, right, values).numpy())
    with pytest.raises(RuntimeError, match="match_cast"):
        call(vm, "main", x.numpy(), np.array(mask), values.numpy())


def test_scatters():
    x, source = data(3, 4, 5), data(4, 4, 6, seed=1)
    index = torch.randint(0, 3, (4, 2, 3), generator=torch.Generator().manual_seed(0))

    def reduced(kind, include_self=True, axis=0, x=x, source=source):
        return (
            lambda x, i, s: x.scatter_reduce(axis, i, s, kind, include_self=include_self),
            x,
            index[:3, :2, :3],
            source,
        )

    unique = torch.stack(
        [torch.randperm(5, generator=torch.Generator().manual_seed(i)) for i in range(6)]
    )
    unique = unique.reshape(2, 3, 5)[:, :, :4]
    check(
        {
            "src": (lambda x, i, s: x.scatter(-1, i, s), x, unique, data(3, 4, 4, seed=2)),
            "value": (lambda x, i: x.scatter(2, i, 7.0), x, unique),
            "add": (lambda x, i, s: x.scatter_add(0, i, s), x, index, source),
            "multiply": (lambda x, i: x.scatter(0, i, 2.0, reduce="multiply"), x, index),
            **{
                f"{k}_{s}": reduced(k, s)
                for k in ("sum", "prod", "amin", "amax", "mean")
                for s in (True, False)
            },
            "integers": reduced("amax", False, x=(x * 9).long(), source=(source * 9).long()),
            "number": (lambda x: x.scatter_add(0, torch.tensor(0), x * 2), torch.tensor(3.0)),
        }
    )


FROM_START = {
    "embedding": lambda x, rows, i: F.embedding(i, x),
    "embedding_bag": lambda x, rows, i: F.embedding_bag(i, x, torch.tensor([0, 2])),
    "gather": lambda x, rows, i: x.gather(1, i.reshape(3, 1)),
    "index_add": lambda x, rows, i: x.index_add(0, i, rows, alpha=2),
    "index_copy": lambda x, rows, i: x.index_copy(1, i, rows.T),
    "index_select": lambda x, rows, i: x.index_select(1, i),
    "index_reduce": lambda x, rows, i: x.index_reduce(0, i, rows, "amax"),
    "nll_loss": lambda x, rows, i: F.nll_loss(rows, i, ignore_index=1),
    "scatter": lambda x, rows, i: x.scatter(0, i.reshape(3, 1), rows),
}


def test_negative_indices_are_out_of_range_where_pytorch_rejects_them():
    x, rows = data(4, 4), data(3, 4, seed=1)
    index, wrong = torch.tensor([2, 0, 1]), torch.tensor([2, -1, 1])
    mods = {n: import_exported(Call(f), (x, rows, index)) for n, f in FROM_START.items()}
    vm = relax.VirtualMachine(relax.build(merge(mods), cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for name, function in FROM_START.items():
        got = call(vm, name, x.numpy(), rows.numpy(), index.numpy())
        torch.testing.assert_close(torch.from_numpy(got), function(x, rows, index))
        with pytest.raises((IndexError, RuntimeError)):
            function(x, rows, wrong)
        with pytest.raises(AssertionError, match="index -1 is out of range"):
            call(vm, name, x.numpy(), rows.numpy(), wrong.numpy())


def test_scatters_of_booleans():
    x, source = torch.tensor([[True, False, True]]), torch.tensor([[False, True, False, True]])
    index = torch.tensor([[0, 0, 1, 2]])
    functions = {
        f"{kind}_{include_self}": (
            lambda x, i, s, kind=kind, include_self=include_self: x.scatter_reduce(
                1, i, s, kind, include_self=include_self
            ),
            *(x, index, source),
        )
        for kind in ("sum", "prod", "amin", "amax")
        for include_self in (True, False)
    }
    functions["rows"] = (lambda x, i, s: x.index_add(1, i[0], s), x, index, source)
    functions["put"] = (lambda x, i, s: x.put(i, s, accumulate=True), x, index, source)
    check(functions)


def test_extrema_of_scatters_keep_nan():
    nan = float("nan")
    x, source = torch.tensor([1, nan, 3, 4]), torch.tensor([nan, 5, nan, 9])
    functions = {
        f"{kind}_{include_self}": (
            lambda x, i, s, kind=kind, include_self=include_self: x.scatter_reduce(
                0, i, s, kind, include_self=include_self
            ),
            x,
            torch.arange(4),
            source,
        )
        for kind in ("amax", "amin")
        for include_self in (True, False)
    }
    check(functions, equal_nan=True, rtol=0, atol=0)


def test_gathers_of_scalars():
    scalar, zero = torch.tensor(3.0), torch.tensor(0)
    check(
        {
            "both": (lambda x, i: torch.gather(x, 0, i), scalar, zero),
            "data": (lambda x, i: torch.gather(x, -1, i), scalar, torch.tensor([0, 0])),
            "index": (lambda x, i: torch.gather(x, 0, i), data(4), torch.tensor(2)),
            "select": (lambda x, i: torch.index_select(x, 0, i), scalar, zero),
        }
    )


def test_slices_of_dynamic_dims():
    def program(x, y):
        result = torch.zeros_like(x)
        result[:, : y.shape[1]] = y
        result[0, -1] = 5.0
        result[1:, y.shape[1] - 1 :] = x[1:, y.shape[1] - 1 :]
        return result

    x, y = data(3, 7), data(3, 4, seed=1)
    long, short = torch.export.Dim("long", min=5, max=90), torch.export.Dim("short", min=2, max=4)
    program = torch.export.export(
        Call(program), (x, y), dynamic_shapes=((({1: long}), {1: short}),)
    )
    from tvm_fixes.frontend import torch as importers

    mod = importers.from_exported_program(program, unwrap_unit_return_tuple=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for first, second in ((7, 4), (9, 2)):
        x, y = data(3, first), data(3, second, seed=1)
        got = call(vm, "main", x.numpy(), y.numpy())
        np.testing.assert_array_equal(got, program.module()(x, y).numpy())


def test_slices_of_static_dims():
    x = data(3, 6)
    check(
        {
            "step": (lambda x, v: assigned(x, (slice(None), slice(-5, None, 2)), v), x, data(3, 3)),
            "beyond": (lambda x, v: assigned(x, (slice(None), slice(2, 99)), v), x, data(3, 4)),
            "whole": (lambda x, v: assigned(x, slice(None), v) * 2, x, data(6)),
            "select": (lambda x, v: x.select_scatter(v, 1, -2), x, data(3)),
            "another dtype": (lambda x, v: x.select_scatter(v, 1, 0), x.half(), data(3)),
        }
    )


def test_switched_off(monkeypatch):
    x = data(3, 4)
    for is_off in (False, True):
        monkeypatch.setenv("TVM_FIXES_DISABLE", INDEXING if is_off else "")
        with switches.collect() as used:
            import_exported(Call(lambda x: x[INDEX]), (x,))
        assert (INDEXING in used) is not is_off


def test_several_masks_are_rejected():
    x = data(2, 3, 4)
    with pytest.raises(Exception, match="only one tensor of booleans"):
        import_exported(Call(lambda x, m, v: x.index_put((m, K[:1]), v)), (x, MASK, data(1)))


if __name__ == "__main__":
    tvm.testing.main()
