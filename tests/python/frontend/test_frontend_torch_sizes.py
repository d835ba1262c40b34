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
"""Programs with dynamic dims: their sizes, and operators on them."""

import io
import math

import numpy as np
import pytest
import sympy
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch.utils._sympy import functions
from tvm import relax, tirx
from tvm_ffi import structural_walk

from helpers.grids import few
from helpers.relax_modules import cpu
from helpers.torch_programs import Call, check_function, import_exported, random
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import InputError
from tvm_fixes.frontend.torch import ExportedProgramImporter, from_exported_program
from tvm_fixes.frontend.torch.values.symbols import Symbols
from tvm_fixes.support import switches
from tvm_fixes.tirx.loop_nest import substitute

X = random(5, 3, dtype=torch.float32, seed=0)
OTHERS = [(random(rows, 3, dtype=torch.float32, seed=rows),) for rows in (4, 9)]


def test_slices() -> None:
    check_function(
        lambda x: (
            x[1:],
            x[:-1],
            x[-2:],
            x[-3:-1],
            x[::2],
            x[1 : x.shape[0]],
            x[:, -2:],
            x[..., :2],
            x.narrow(0, 1, 2),
        ),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_elements_from_the_end() -> None:
    check_function(lambda x: (x[-1], x[-4], x[0], x[:, -1]), X, dynamic=(0,), others=OTHERS)


def test_narrow_of_a_program_that_is_not_decomposed() -> None:
    """TVM mistakes the length for the end."""
    mod = import_exported(Call(lambda x: x.narrow(0, 1, 2)), (X,), decompose=False)
    assert mod["main"].ret_ty.shape[0] == 2


def test_sizes_that_are_computed() -> None:
    check_function(
        lambda x: (
            x.new_zeros(max(x.shape[0], 7), 2),
            x.new_ones(min(x.shape[0], 7)),
            x.new_ones(x.shape[0] * 2 + x.shape[0] // 2),
            torch.arange(x.shape[0])[:, None] + x,
            torch.arange(1, x.shape[0] + 1, 2),
            x.reshape(-1).view(x.shape[0] * 3),
            torch.full((x.shape[0], x.shape[0]), -1.0).triu(1),
        ),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_pads() -> None:
    check_function(
        lambda x: (
            F.pad(x, (0, 0, x.shape[0], 1)),
            F.pad(x, (0, 0, 0, 40 - x.shape[0]), value=2.0),
            F.pad(x, (-1, 0)),
            F.pad(x, (1, -2, -1, 2), value=-1.0),
        ),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_parts_and_variances() -> None:
    check_function(
        lambda x: (
            *torch.split(x, [2, x.shape[0] - 2]),
            *torch.split(x.T, 2),
            x.var(0),
            x.std(),
            x.var(0, correction=0),
            x.roll(1, 1),
        ),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_reshapes_of_products() -> None:
    """TVM cannot compare a number with a symbolic extent."""
    check_function(
        lambda x: (x.t().reshape(x.shape[0], 3) * 2, x.t().reshape(-1, 3) * 2),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_extents_that_a_guard_makes_equal() -> None:
    """PyTorch knows from a guard that ``16 - max(16 - n, 0)`` is ``n``; TVM does not.

    ``1 - max(1 - n, 0)`` is 1, and remains so.
    """
    table, row = (random(rows, 3, dtype=torch.float32, seed=3) for rows in (16, 1))
    mask = random(16, 16, dtype=torch.float32, seed=4)

    def function(x: torch.Tensor) -> torch.Tensor:
        rows = table[max(16 - x.shape[0], 0) :]
        joined = torch.cat([x, rows], 1)[None]
        weights = mask[max(16 - x.shape[0], 0) :, max(16 - x.shape[0], 0) :]
        attended = F.scaled_dot_product_attention(joined, joined, joined, weights)
        return attended[0, :, :3] + x + rows + row[max(1 - x.shape[0], 0) :]

    rows = torch.export.Dim.DYNAMIC
    program = torch.export.export(Call(function), (X,), dynamic_shapes=(({0: rows},),))
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for x in (X, *(x for (x,) in OTHERS)):
        [result] = vm["main"](tvm.runtime.from_dlpack(x))
        torch.testing.assert_close(torch.from_dlpack(result), function(x))
    with pytest.raises(RuntimeError, match="match"):
        vm["main"](tvm.runtime.from_dlpack(random(17, 3, dtype=torch.float32, seed=0)))


def test_cat_leaves_out_what_is_empty() -> None:
    check_function(lambda x: (torch.cat([torch.tensor([]), x]),), X)


def test_a_larger_lower_bound_is_checked() -> None:
    rows = torch.export.Dim("rows", min=3)
    program = torch.export.export(Call(torch.neg), (X,), dynamic_shapes=(({0: rows},),))
    model = compile_model(program, compare=False)
    with pytest.raises(InputError, match="must be at least 3"):
        model.run(np.ones((2, 3), "float32"))


def test_inputs_with_expressions() -> None:
    """One input is longer than the other by 1; also loaded from a file."""
    rows = torch.export.Dim("rows", min=4, max=40)
    program = torch.export.export(
        Call(lambda x, y: y[: x.shape[0]] + x),
        (X, random(6, 3, dtype=torch.float32, seed=1)),
        dynamic_shapes=(({0: rows}, {0: rows + 1}),),
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    for exported in (program, torch.export.load(file)):
        main = from_exported_program(exported)["main"]
        extent, more = (param.ty.shape[0] for param in main.params)
        assert isinstance(extent, tirx.Var)
        assert tvm.sym.Analyzer().can_prove_equal(more, extent + 1)


def test_squeezes() -> None:
    """A symbolic extent is not 1."""
    check_function(
        lambda x: (x.unsqueeze(1).squeeze(), x.squeeze(0), x[None].squeeze((0, 1, 2))),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_numbers_of_elements_that_are_found() -> None:
    check_function(
        lambda x: (x.nonzero(), x[x > 0], x[x[:, 0] > 0], (x[x > 9] + 1).sum()),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_masks_beside_indices_are_rejected() -> None:
    with pytest.raises(tvm.error.OpNotImplemented, match="expected integers, or only one tensor"):
        import_exported(Call(lambda x: x[:, x[0] > 0]), (X,))


def test_floats_of_sizes() -> None:
    check_function(
        lambda x: (x / x.shape[0] ** 0.5, x * (1 / x.shape[0])),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_topk_by_a_size() -> None:
    check_function(
        lambda x: (*x.topk(x.shape[0] - 2, 0), *x.topk(x.shape[0] - 2, 0, largest=False)),
        X,
        dynamic=(0,),
        others=OTHERS,
    )


def test_topk_in_any_order() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = x.topk(2, -1, sorted=False)
        return values.sum(-1), x.gather(-1, places).sum(-1), x.topk(3, 0, False, False)[0].sum(0)

    check_function(function, X)


def halves_and_thirds(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.view(2, -1, 3).sum(0) + y[1:].view(-1, 3, 3).sum(1)


def test_multiples() -> None:
    """Multiples of a symbol that no input has; other sizes are rejected at run time."""
    rows = torch.export.Dim("rows", min=2, max=9)
    inputs = [
        (
            random(2 * n, 3, dtype=torch.float32, seed=n),
            random(3 * n + 1, 3, dtype=torch.float32, seed=n),
        )
        for n in (4, 2, 5)
    ]
    program = torch.export.export(
        Call(halves_and_thirds), inputs[0], dynamic_shapes=(({0: 2 * rows}, {0: 3 * rows + 1}),)
    )
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for x, y in inputs:
        got = vm["main"](*map(tvm.runtime.from_dlpack, (x, y)))
        torch.testing.assert_close(torch.from_dlpack(got), halves_and_thirds(x, y))
    for x, y in ((inputs[0][0][1:], inputs[0][1]), (inputs[0][0], inputs[0][1][:-1])):
        with pytest.raises(RuntimeError, match="match_cast error"):
            vm["main"](*(tvm.runtime.from_dlpack(z.clone()) for z in (x, y)))


def test_a_type_that_pytorch_does_not_give_is_rejected() -> None:
    program = torch.export.export(Call(lambda x: (x.argmax(1), x.relu())), (X,))
    importer = ExportedProgramImporter()
    tvm_importer = importer.context.importer
    tvm_importer.convert_map["argmax.default"] = lambda node: tvm_importer.env[node.args[0]]
    with pytest.raises(tvm.error.OpNotImplemented) as raised:
        importer.import_program(program)
    message = str(raised.value)
    assert "aten.argmax.default 'argmax': imported as float32" in message
    assert "PyTorch gives int64 [5]" in message


@few(4)
@pytest.mark.parametrize(
    "expression, expected",
    (
        ("2*s + 1", 15),
        ("FloorDiv(s, 2)", 3),
        ("Mod(s, 4)", 3),
        ("PythonMod(s, 4)", 3),
        ("Max(s, 9)", 9),
        ("Min(s, 9)", 7),
        ("s**2", 49),
        ("CeilToInt(IntTrueDiv(s, 2))", 4),
        ("ModularIndexing(s, 2, 2)", 1),
    ),
)
def test_expressions(expression: str, expected: int) -> None:
    s = sympy.Symbol("s", integer=True, positive=True)
    symbols = Symbols()
    variable = tirx.Var("s", "int64")
    symbols.bind(s, variable)
    got = symbols.convert(eval(expression, vars(functions) | {"s": s}))
    symbols.analyzer.bind(variable, tirx.const(7, "int64"))
    assert int(symbols.analyzer.simplify(got)) == expected


@few(6)
@pytest.mark.parametrize("rounding", ["CeilToInt", "FloorToInt", "TruncToInt"])
@pytest.mark.parametrize(
    ("value", "is_exact"),
    [
        ("IntTrueDiv(s - 9, 4)", True),
        ("FloatTrueDiv(ToFloat(s) - 0.5, 1.0)", True),
        ("IntTrueDiv(100, s)", True),
        ("1.5*ToFloat(s) + 0.25", True),
        ("0.7*ToFloat(s)", False),
        ("3*IntTrueDiv(s, 3) - 8", False),
    ],
)
def test_rounded_floats(rounding: str, value: str, is_exact: bool) -> None:
    s = sympy.Symbol("s", integer=True, positive=True)
    symbols = Symbols()
    variable = tirx.Var("s", "int64")
    symbols.bind(s, variable)
    names = vars(functions) | {"s": s}
    expression = eval(f"{rounding}({value})", names)
    got = symbols.convert(expression)
    is_trunc_of_negative = rounding == "TruncToInt" and "- 9" in value
    assert has_no_floats(got) == (is_exact and not is_trunc_of_negative)
    for n in range(1, 60):
        wanted = getattr(math, rounding[:-5].lower())(float(eval(value, names | {"s": n})))
        place = {variable: tirx.const(n, "int64")}
        found = symbols.analyzer.simplify(substitute(got, place))
        assert int(found) == wanted, (n, got)


def has_no_floats(expression: tirx.Expr) -> bool:
    """Whether an expression has no float; any must be without calls, which Relax rejects."""
    parts: list[tirx.Expr] = []
    structural_walk(expression, (tirx.Expr, parts.append))
    assert not any(isinstance(part, relax.Call) for part in parts)
    return all(part.ty.dtype != "float64" for part in parts)


def test_static_shapes_need_no_fix() -> None:
    with switches.collect() as acted:
        import_exported(Call(lambda x: x[1:, :2].exp()), (X,))
    assert acted == set()


if __name__ == "__main__":
    tvm.testing.main()
