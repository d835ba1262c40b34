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
"""``from_fx``: against PyTorch in every dtype, and as TVM's where TVM is right; whole models."""

import inspect
import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import nn
from tvm import relax
from tvm.relax.frontend import torch as tvm_torch
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.relax_modules import calls
from helpers.torch_programs import (
    FLOATS,
    Call,
    Reference,
    check,
    check_all,
    import_fx,
    name_of,
    random,
    randomize,
    run,
    trace,
)
from tvm_fixes.frontend import torch as importers
from tvm_fixes.frontend.torch import from_fx
from tvm_fixes.support import switches


def modules() -> dict[str, tuple[nn.Module, list[tuple[int, ...]]]]:
    """Modules, and the shapes of their inputs, that TVM imports right in float32."""
    return {
        "linear": (nn.Linear(4, 3), [(2, 4)]),
        "linear without bias": (nn.Linear(4, 3, bias=False), [(2, 5, 4)]),
        "conv1d": (nn.Conv1d(4, 6, 3, stride=2, padding=1), [(2, 4, 8)]),
        "conv2d": (nn.Conv2d(4, 6, 3, dilation=2, groups=2), [(2, 4, 8, 9)]),
        "conv2d without bias": (nn.Conv2d(4, 6, 3, bias=False), [(2, 4, 8, 9)]),
        "conv3d": (nn.Conv3d(4, 6, 3), [(2, 4, 5, 6, 7)]),
        "conv_transpose1d": (nn.ConvTranspose1d(4, 6, 3, stride=2), [(2, 4, 8)]),
        "conv_transpose2d": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1), [(2, 4, 8, 9)]),
        "matmul": (Call(lambda a, b: torch.matmul(a, b)), [(5, 2, 4), (4, 3)]),
        "operator matmul": (Call(lambda a, b: a @ b), [(5, 2, 4), (4, 3)]),
        "bmm": (Call(lambda a, b: torch.bmm(a, b)), [(5, 2, 4), (5, 4, 3)]),
        "addmm": (Call(lambda c, a, b: torch.addmm(c, a, b, alpha=2)), [(3,), (2, 4), (4, 3)]),
        "baddbmm": (
            Call(lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5)),
            [(3,), (5, 2, 4), (5, 4, 3)],
        ),
        "bilinear": (
            Call(lambda x: F.interpolate(x, (9, 5), mode="bilinear", align_corners=True)),
            [(1, 2, 4, 7)],
        ),
        "tile": (Call(lambda x: torch.tile(x, (2, 1))), [(2, 3)]),
    }


@pytest.mark.parametrize("name", modules())
def test_float32_is_imported_as_by_tvm(name: str) -> None:
    module, shapes = modules()[name]
    inputs = [torch.zeros(shape) for shape in shapes]
    with switches.collect() as acted:
        ours = import_fx(module.eval(), inputs)
    tvm.ir.assert_structural_equal(ours, import_fx(module, inputs, of=tvm_torch))
    assert acted == set()


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float64), ids=name_of)
def test_dtype(dtype: torch.dtype) -> None:
    cases = {}
    for name, (module, shapes) in modules().items():
        if name != "bilinear":
            inputs = tuple(random(*s, dtype=dtype, seed=seed) for seed, s in enumerate(shapes))
            cases[name] = randomize(module, dtype), inputs
    check_all(cases, import_fx)


def test_instance_norm() -> None:
    cases = {}
    for rank, batched, tracked in itertools.product((1, 2, 3), (False, True), (False, True)):
        module = getattr(nn, f"InstanceNorm{rank}d")(3, affine=True, track_running_stats=tracked)
        module = randomize(module, torch.float32)
        if tracked:
            module.running_mean.copy_(torch.tensor([1.0, -2.0, 0.5]))
            module.running_var.copy_(torch.tensor([0.5, 2.0, 1.5]))
        shape = ((2, 3) if batched else (3,)) + (4, 3, 5)[:rank]
        x = random(*shape, dtype=torch.float32, seed=rank)
        cases[f"{rank}-{batched}-{tracked}"] = module, (x,)
    check_all(cases, import_fx)


def test_alpha() -> None:
    def module(f: Callable) -> Call:
        return Call(lambda x, y: f(x, y, alpha=2.5) + f(x, 2, alpha=3) + f(x, y))

    inputs = random(2, 3, dtype=torch.float32, seed=0), torch.tensor([1, -2, 3])
    cases = {f.__name__: (module(f), inputs) for f in (torch.add, torch.sub, torch.rsub)}
    cases["methods"] = Call(lambda x, y: x.add(y, alpha=2.5).sub(y, alpha=3)), inputs
    with switches.collect() as acted:
        check_all(cases, import_fx)
    assert "torch-promotion" in acted


def test_names_of_arguments() -> None:
    x, weight, bias = torch.randn(2, 4), torch.randn(3, 4), torch.randn(3)
    module = Call(lambda x, weight, bias: F.linear(x, weight=weight, bias=bias))
    check(module, x, weight, bias, importer=import_fx)


@pytest.mark.parametrize("dtype", FLOATS, ids=name_of)
def test_parameters_as_inputs(dtype: torch.dtype) -> None:
    """The values of the parameters are the attribute ``params``, in the order of their names."""
    module = randomize(nn.Sequential(nn.Linear(4, 3)), dtype)
    x = random(2, 4, dtype=dtype, seed=0)
    mod = import_fx(module, (x,), keep_params_as_input=True)
    assert mod["main"].attrs["num_input"] == 1
    assert [param.name for param in mod["main"].params[1:]] == [
        name for name, _ in sorted(module.named_parameters())
    ]
    params = [torch.from_dlpack(value) for value in mod["main"].attrs["params"]]
    got = run(mod, x, *params)
    Reference.of(module, (x,)).check(got)


def test_parameters_as_inputs_of_float64() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((2, 4), "float64"),
            bias: R.Tensor((3,), "float64"),
            weight: R.Tensor((3, 4), "float64"),
        ) -> R.Tensor((2, 3), "float64"):
            R.func_attr({"num_input": 1})
            with R.dataflow():
                transposed = R.permute_dims(weight)
                product = R.matmul(x, transposed, out_dtype="float64")
                biased = R.add(product, bias)
                out: R.Tensor((2, 3), "float64") = biased
                R.output(out)
            return out

    graph = trace(nn.Linear(4, 3).double())
    mod = from_fx(graph, [((2, 4), "float64")], keep_params_as_input=True)
    mod["main"] = mod["main"].without_attr("params")
    tvm.ir.assert_structural_equal(mod, Expected)


def test_constants_are_copies() -> None:
    """A later change of the module does not reach the imported one."""
    module = randomize(nn.Linear(4, 3), torch.bfloat16)
    x = random(2, 4, dtype=torch.bfloat16, seed=0)
    mod = import_fx(module, (x,))
    expected = module(x).detach()
    with torch.no_grad():
        module.weight.zero_()
    torch.testing.assert_close(run(mod, x), expected)


@pytest.mark.parametrize(
    "option",
    (
        "keep_params_as_input",
        "unwrap_unit_return_tuple",
        "no_bind_return_tuple",
    ),
)
def test_options_are_those_of_tvm(option: str) -> None:
    module, x = nn.Linear(4, 3).eval(), torch.zeros(2, 4)
    ours, stock = (
        import_fx(module, (x,), of=of, **{option: True}) for of in (importers, tvm_torch)
    )
    for mod in (ours, stock):
        if option == "keep_params_as_input":
            mod["main"] = mod["main"].without_attr("params")
    tvm.ir.assert_structural_equal(ours, stock)


def test_signature_is_that_of_tvm() -> None:
    def parameters(function: Callable) -> list:
        signature = inspect.signature(function)
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(from_fx) == parameters(tvm_torch.from_fx)


def test_caller_converter_goes_first() -> None:
    def convert(node: torch.fx.Node, importer: importers.FXImporter) -> relax.Var:
        return importer.block_builder.emit(relax.op.zeros((2, 3), "float16"))

    graph = trace(Call(lambda x, w: F.linear(x, w)))
    mod = from_fx(
        graph,
        [((2, 4), "float16"), ((3, 4), "float16")],
        custom_convert_map={"linear": convert},
    )
    assert [call.op.name for call in calls(mod)] == ["relax.zeros"]


if __name__ == "__main__":
    tvm.testing.main()
