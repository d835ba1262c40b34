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
"""Calls of a compiled PyTorch program: numbers, strings, None and nested arguments and results."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from torch import nn
from torch.export import Dim, export
from tvm import relax

from helpers.compiling import fails
from helpers.relax_modules import cpu
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import CompileError, InputError
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.runtime import CompiledModel


class Scale(nn.Module):
    """Takes each kind of argument that ``torch.export`` accepts."""

    def forward(self, x, n, nested, factor=0.5, flag=True, activation="relu", nothing=None):
        y = x * n + factor + nested["k"][0]
        if activation == "relu" and flag:
            y = y.relu()
        return y


class Results(nn.Module):
    """Returns each kind of result that ``torch.export`` accepts."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(3))

    def forward(self, x, n):
        y = x * 2
        return {
            "y": y,
            "int": n,
            "float": 0.5,
            "bool": True,
            "nothing": None,
            "text": "relu",
            "input": x,
            "nested": [y, (self.table, x.shape[0])],
            "computed": n * 2 + 1,
            "half": n * 0.5,
        }


X, N, NESTED = torch.randn(3, 4), 3, {"k": [torch.randn(4)]}
DYNAMIC = {"x": {0: Dim.DYNAMIC}, "n": Dim.DYNAMIC, "nested": {"k": [None]}}
RESULTS = "y int float bool input nested.0 nested.1.0 nested.1.1 computed half".split()


@pytest.fixture(scope="module")
def constant():
    """With all plain arguments as constants."""
    defaults = {"factor": 0.5, "flag": True, "activation": "relu", "nothing": None}
    return compile_model((Scale().eval(), (X, N), {"nested": NESTED, **defaults}))


@pytest.fixture(scope="module")
def dynamic():
    """With a dynamic size and a dynamic int."""
    return compile_model(export(Scale(), (X, N, NESTED), dynamic_shapes=DYNAMIC))


def run_module(mod, *inputs):
    machine = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    return machine["main"](*inputs)


class TestImport:
    def test_constants_vanish(self):
        program = export(Scale(), (X, N, NESTED, 0.25, False, "none", None))
        main = from_exported_program(program, unwrap_unit_return_tuple=True)["main"]
        assert [str(param.name) for param in main.params] == ["x", "nested_k_0"]
        tensors = [tvm.runtime.tensor(value.numpy()) for value in (X, NESTED["k"][0])]
        expected = X * N + 0.25 + NESTED["k"][0]
        result = run_module(tvm.IRModule({"main": main}), *tensors)
        np.testing.assert_allclose(result.numpy(), expected.numpy(), rtol=1e-6)

    def test_a_dynamic_int_is_a_shape(self):
        mod = from_exported_program(export(Results(), (X, N), dynamic_shapes=(None, Dim.DYNAMIC)))
        assert isinstance(mod["main"].params[1].ty, relax.ShapeType)
        x = tvm.runtime.tensor(X.numpy())
        results = run_module(mod, x, tvm.runtime.ShapeTuple([7]))
        assert results[4] is None
        assert results[5] == "relu"
        plain = [results[place].numpy() for place in (1, 2, 3, 9, 10, 11)]
        assert [value.tolist() for value in plain] == [7, 0.5, True, 3, 15, 3.5]
        dtypes = ["int64", "float64", "bool", "int64", "int64", "float64"]
        assert [value.dtype.name for value in plain] == dtypes

    def test_an_int_that_is_an_extent(self):
        class Repeat(nn.Module):
            def forward(self, x, n):
                torch._check(x.shape[0] == n)
                return x[: n - 1].repeat(n, 1)

        dims = ({0: Dim.DYNAMIC}, Dim.DYNAMIC)
        model = compile_model(export(Repeat(), (X, 3), dynamic_shapes=dims))
        assert model.report.equal
        x = torch.randn(5, 4)
        torch.testing.assert_close(model.run(x, 5), x[:4].repeat(5, 1))
        with pytest.raises(InputError, match=r"input 'n' is 4: s\d+ is 5 on axis 0 of input"):
            model.run(x, 4)


class TestCalls:
    @pytest.mark.parametrize(
        "args, kwargs",
        [
            ((X, N, NESTED), {}),
            ((X, N, NESTED, 0.5, True, "relu", None), {}),
            ((X,), {"nested": NESTED}),
            ((), {"x": X, "nested.k.0": NESTED["k"][0], "flag": True}),
            ((X, NESTED["k"][0]), {}),
            ((X, N), {"nested": {"k": (NESTED["k"][0],), "unused": None}}),
        ],
    )
    def test_constants(self, constant, args, kwargs):
        assert constant.report.equal
        assert [spec.name for spec in constant.inputs] == ["x", "nested.k.0"]
        torch.testing.assert_close(constant.run(*args, **kwargs), Scale()(X, N, NESTED))

    @pytest.mark.parametrize(
        "args, kwargs, message",
        [
            ((X, 4, NESTED), {}, "argument 'n': the model was compiled for 3, got 4"),
            ((X, N, NESTED), {"nothing": 0}, "'nothing': the model was compiled for None, got 0"),
            ((X, X, NESTED), {}, "argument 'n': .* 3, got a Tensor"),
            ((X, N), {}, "missing input 'nested.k.0'"),
            ((X, N, {"k": [X, X]}), {}, "unknown input 'nested.k.1'"),
            ((X, N, NESTED), {"x": X}, "input 'x' is given twice"),
            ((X, N, NESTED), {"other": 1}, "unknown input 'other'"),
            ((X, N, NESTED, *range(5)), {}, "expected 7 arguments"),
        ],
    )
    def test_wrong_arguments(self, constant, args, kwargs, message):
        with pytest.raises(InputError, match=message):
            constant.run(*args, **kwargs)

    @pytest.mark.parametrize("n", [0, 4, np.int64(5), np.array(6), torch.tensor(7)])
    def test_dynamic_int(self, dynamic, n):
        assert dynamic.report.equal
        assert str(dynamic.inputs[1]) == "n: int64 ()"
        x = torch.randn(5, 4)
        torch.testing.assert_close(dynamic.run(x, n, NESTED), Scale()(x, int(n), NESTED))
        torch.testing.assert_close(dynamic.run(x, nested=NESTED, n=n), Scale()(x, int(n), NESTED))

    @pytest.mark.parametrize("n", [True, 2.0, "2", None, np.ones(1, "int64"), -1])
    def test_an_argument_that_is_not_a_size(self, dynamic, n):
        with pytest.raises(InputError, match="input 'n'"):
            dynamic.run(X, n, NESTED)

    def test_saved(self, dynamic, tmp_path):
        dynamic.save(tmp_path / "out")
        loaded = CompiledModel.load(tmp_path / "out")
        assert loaded.manifest.arguments == dynamic.manifest.arguments
        torch.testing.assert_close(loaded.run(X, 4, NESTED), Scale()(X, 4, NESTED))
        assert loaded.bound(X.numpy(), np.array(4), NESTED["k"][0].numpy())().shape == (3, 4)

    def test_static(self):
        program = export(Scale(), (X, N, NESTED), dynamic_shapes=DYNAMIC)
        model = compile_model(program, static=True)
        assert model.report.equal
        torch.testing.assert_close(model.run(X, N, NESTED), Scale()(X, N, NESTED))
        with pytest.raises(InputError, match="input 'n' is 4: expected 3"):
            model.run(X, 4, NESTED)

    def test_several_arguments_of_one_parameter(self):
        class Variadic(nn.Module):
            def forward(self, x, *rest, **options):
                return x * rest[0] + rest[1] - options["bias"]

        module, rest = Variadic().eval(), (torch.randn(4), 2.5)
        model = compile_model((module, (X, *rest), {"bias": X}))
        assert [spec.name for spec in model.inputs] == ["x", "rest_0", "bias"]
        torch.testing.assert_close(model.run(X, *rest, bias=X), module(X, *rest, bias=X))

    def test_an_updated_input_that_is_nested(self):
        class Write(nn.Module):
            def forward(self, state, x):
                state["rows"][0].add_(x)
                return state["rows"][0] * 2

        rows = torch.ones(3)
        model = compile_model((Write().eval(), ({"rows": [rows.clone()]}, torch.ones(3))))
        assert model.manifest.updates == {"state.rows.0": 1}
        assert model.report.equal
        torch.testing.assert_close(
            model.run({"rows": [rows]}, torch.ones(3)), torch.full((3,), 4.0)
        )
        torch.testing.assert_close(rows, torch.full((3,), 2.0))


class TestResults:
    @pytest.mark.parametrize("dims", [None, ({0: Dim.DYNAMIC}, Dim.DYNAMIC)])
    def test_kinds(self, dims):
        model = compile_model(export(Results(), (X, N), dynamic_shapes=dims))
        assert model.report.equal
        assert [spec.name for spec in model.outputs] == RESULTS
        [warning] = [text for text in model.report.warnings if "string" in text]
        assert warning.startswith("output 'text' of ExportedProgram is the string 'relu'")
        results = dict(zip(RESULTS, model.run(X, N), strict=True))
        torch.testing.assert_close(results["nested.0"], X * 2)
        torch.testing.assert_close(results["nested.1.0"], torch.arange(3))
        names = ("int", "float", "bool", "nested.1.1", "computed", "half")
        assert [results[name].item() for name in names] == [3, 0.5, True, 3, 7, 1.5]

    def test_none_results_are_omitted(self):
        class Pair(nn.Module):
            def forward(self, x):
                return None, x + 1

        model = compile_model((Pair().eval(), (X,)))
        assert [spec.name for spec in model.outputs] == ["output1"]
        torch.testing.assert_close(model.run(X), X + 1)

    def test_a_model_without_tensor_results_is_rejected(self):
        class Nothing(nn.Module):
            def forward(self, x):
                return None, "text"

        message = fails((Nothing().eval(), (X,)), CompileError)
        expected = "Nothing: expected an output that is a tensor or a number, got None, 'text'"
        assert message == expected

    def test_dataclass(self):
        @dataclass
        class Output:
            hidden: torch.Tensor
            pooled: torch.Tensor | None = None

        class Model(nn.Module):
            def forward(self, x):
                return Output(x.exp(), x.sum(0))

        torch.export.register_dataclass(Output, serialized_type_name="tests.Output")
        model = compile_model((Model().eval(), {"x": X}))
        assert model.report.equal
        assert [spec.name for spec in model.outputs] == ["hidden", "pooled"]


def test_caches_of_transformers():
    transformers = pytest.importorskip("transformers")
    size = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 96, "n_positions": 8}
    ends = {"bos_token_id": 1, "eos_token_id": 2}
    module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, **ends)).eval()
    ids = torch.randint(0, 96, (1, 5))
    model = compile_model((module, {"input_ids": ids, "use_cache": True}))
    assert model.report.equal
    caches = [f"past_key_values.{layer}.{part}" for layer in (0,) for part in ("key", "value")]
    assert [spec.name for spec in model.outputs] == ["logits", *caches]
    expected = module(ids).past_key_values.layers[0].values
    torch.testing.assert_close(model.run(input_ids=ids, use_cache=True)[-1], expected)


if __name__ == "__main__":
    tvm.testing.main()
