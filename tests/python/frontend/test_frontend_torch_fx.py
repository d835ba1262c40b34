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
"""``from_fx``: against PyTorch in every dtype; its signature, options and results are TVM's."""

import inspect
import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing
from torch import fx, nn
from tvm import relax, tirx
from tvm.relax.frontend import torch as tvm_torch
from tvm.script import ir as I
from tvm.script import relax as R
from tvm_ffi import structural_equal

from helpers.grids import is_full, sample, share
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


def test_function_has_the_type_of_tvms() -> None:
    for name, (module, shapes) in sample(list(modules().items()), 3):
        inputs = [torch.zeros(shape) for shape in shapes]
        ours, stock = (import_fx(module.eval(), inputs, of=of) for of in (importers, tvm_torch))
        assert structural_equal(ours["main"].ty, stock["main"].ty), name


DTYPES = (torch.float16, torch.bfloat16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_dtype(dtype: torch.dtype) -> None:
    cases = {}
    chosen = share(modules(), DTYPES.index(dtype), len(DTYPES))
    for name, (module, shapes) in chosen.items():
        if name != "bilinear":
            inputs = tuple(random(*s, dtype=dtype, seed=seed) for seed, s in enumerate(shapes))
            cases[name] = randomize(module, dtype), inputs
    check_all(cases, import_fx)


def test_instance_norm() -> None:
    cases = {}
    kinds = list(itertools.product((1, 2, 3), (False, True), (False, True)))
    for rank, batched, tracked in kinds if is_full() else kinds[::5]:
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


@pytest.mark.parametrize("dtype", FLOATS if is_full() else FLOATS[1::2], ids=name_of)
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


OPTIONS = ("keep_params_as_input", "unwrap_unit_return_tuple", "no_bind_return_tuple")
RESULTS = ("nested", "tensor", "tuple of one", "tuple of two")


@pytest.mark.parametrize(
    "results, option",
    list(itertools.product(RESULTS, OPTIONS))
    if is_full()
    else [*zip(RESULTS[1:], OPTIONS, strict=True), ("nested", "keep_params_as_input")],
)
def test_options_are_those_of_tvm(option: str, results: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)
            self.scale = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> object:
            y = self.layer(x)
            if results == "tensor":
                return y
            if results == "nested":
                return y * self.scale, (y, x)
            return (y,) if results == "tuple of one" else (y, x)

    x = torch.zeros(2, 4)
    graph = fx.symbolic_trace(Model().eval())
    ours, stock = (
        of.from_fx(graph, [((2, 4), "float32")], **{option: True})["main"]
        for of in (importers, tvm_torch)
    )
    assert structural_equal(ours.ty, stock.ty)
    assert [p.name for p in ours.params] == [p.name for p in stock.params]
    assert isinstance(ours.body.body, relax.Tuple) == isinstance(stock.body.body, relax.Tuple)
    assert set(ours.attrs.keys()) == set(stock.attrs.keys())
    if option == "keep_params_as_input":
        pairs = zip(ours.attrs["params"], stock.attrs["params"], strict=True)
        assert all((one.numpy() == other.numpy()).all() for one, other in pairs)
        assert ours.attrs["num_input"] == len([x])


def test_signature_is_that_of_tvm() -> None:
    def parameters(function: Callable) -> list:
        signature = inspect.signature(function)
        return [(p.name, p.kind, p.default) for p in signature.parameters.values()]

    assert parameters(from_fx) == parameters(tvm_torch.from_fx)


def test_caller_converter_goes_first() -> None:
    def convert(node: torch.fx.Node, importer: importers.ExportedProgramImporter) -> relax.Var:
        x, weight = importer.retrieve_args(node)
        assert node.target is F.linear
        return importer.block_builder.emit(relax.op.linear(x, weight))

    graph = trace(Call(lambda x, w: torch.relu(F.linear(x + 1, w)) * 2))
    x, weight = torch.randn(2, 4), torch.randn(3, 4)
    mod = from_fx(
        graph,
        [((2, 4), "float32"), ((3, 4), "float32")],
        custom_convert_map={"linear": convert},
    )
    # TVM's importer transposes the weight; `relax.op.linear` does not name the dtype.
    [product] = [call for call in calls(mod) if call.op.name == "relax.matmul"]
    assert product.attrs.out_dtype is None
    torch.testing.assert_close(run(mod, x, weight), F.relu(F.linear(x + 1, weight)) * 2)


@pytest.mark.parametrize("key", (nn.ReLU, "relu"), ids=str)
def test_caller_converter_of_a_module_or_a_method(key: type[nn.Module] | str) -> None:
    def convert(node: fx.Node) -> relax.Expr:
        assert node.op == ("call_module" if key is nn.ReLU else "call_method")
        return relax.const(torch.full((2, 4), 5.0).numpy())

    module = nn.Sequential(nn.ReLU()) if key is nn.ReLU else Call(lambda x: x.relu())
    mod = from_fx(trace(module), [((2, 4), "float32")], custom_convert_map={key: convert})
    assert (run(mod, torch.zeros(2, 4)) == 5).all()


def test_dropout_returns_its_operand() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(x) + F.dropout(x, 0.9, training=True)

    x = torch.randn(3, 4)
    assert torch.equal(run(import_fx(Model().train(), (x,)), x), 2 * x)


def test_results_that_are_not_tensors() -> None:
    rows = tirx.Var("rows", "int64")
    graph = fx.symbolic_trace(lambda x: (x.size(), (x.numel(), x.shape[0]), [x], x.dim()))
    static = from_fx(graph, [((2, 3), "float32")])["main"].ret_ty.fields
    assert list(static[0].values) == [2, 3]
    assert str(static[1].fields[0].dtype) == "int32"
    dynamic = from_fx(graph, [((rows, 3), "float32")])["main"]
    [first, second] = dynamic.ret_ty.fields[0].values
    assert first.same_as(dynamic.params[0].ty.shape[0])
    assert first.same_as(rows)
    assert second == 3


def test_symbolic_dims_are_the_callers() -> None:
    n, m = tirx.Var("n", "int64"), tirx.Var("m", "int64")
    graph = fx.symbolic_trace(lambda x, y, z: (torch.cat([x, y]) + z).reshape(-1, 4))
    mod = from_fx(graph, [((n, 2), "float32"), ((m, 2), "float32"), ((n + m, 2), "float32")])
    main = mod["main"]
    assert main.params[0].ty.shape[0].same_as(n)
    assert structural_equal(main.params[2].ty.shape[0], n + m)
    inputs = torch.randn(4, 2), torch.randn(6, 2), torch.randn(10, 2)
    expected = (torch.cat(inputs[:2]) + inputs[2]).reshape(-1, 4)
    torch.testing.assert_close(run(mod, *inputs), expected)


@pytest.mark.parametrize(
    "info, message",
    (
        ([((2, 4), "float32")], "input_info has 1 element"),
        ([((2, 4), "float32"), ((2, 4), "floating")], "has the dtype floating"),
        ([((2, 4), "float32"), ((3, 4), "float32")], "at node 'add'"),
        ([((tirx.Var("n", "int64"), 4), "float32"), ((2, 4), "float32")], "n|at node 'add'"),
        ([((tirx.Var("n", "int64") * 2, 4), "float32"), ((1, 4), "float32")], "no dim is n itself"),
    ),
)
def test_inputs_that_do_not_fit(info: list, message: str) -> None:
    graph = fx.symbolic_trace(lambda x, y: x + y)
    with pytest.raises(tvm.error.OpAttributeInvalid, match=message):
        from_fx(graph, info)


def test_inputs_without_a_placeholder() -> None:
    main = from_fx(fx.symbolic_trace(lambda x: x + 1), [((2,), "float32"), ((3,), "int64")])["main"]
    assert [p.name for p in main.params] == ["inp_0", "inp_1"]


def test_module_without_inputs() -> None:
    mod = from_fx(fx.symbolic_trace(lambda: torch.arange(3) * 2), [])
    vm = relax.VirtualMachine(relax.build(mod, "llvm", relax_pipeline="tvm_fixes"), tvm.cpu())
    assert list(vm["main"]().numpy()) == [0, 2, 4]


def test_module_that_cannot_be_exported() -> None:
    graph = fx.symbolic_trace(lambda x: torch.linalg.svdvals(x) + x.nonzero().sum().tolist())
    with pytest.raises(tvm.error.OpNotImplemented, match="at node"):
        from_fx(graph, [((3, 3), "float32")])


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    module, x = Call(lambda x: torch.std(x, dim=1, correction=0)), torch.randn(2, 4)
    check(module, x, importer=import_fx)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-fx")
    ours, stock = (import_fx(module, (x,), of=of) for of in (importers, tvm_torch))
    tvm.ir.assert_structural_equal(ours, stock)


if __name__ == "__main__":
    tvm.testing.main()
