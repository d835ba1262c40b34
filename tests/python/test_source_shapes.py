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
"""tvm_fixes.compile: sizes and names of dims."""

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import helper
from torch import nn
from tvm import relax

from helpers.compiling import fails
from helpers.models import FLOAT, conv_net, onnx_conv, onnx_model
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import InputError, UsageError
from tvm_fixes.search.trial import Settings
from tvm_fixes.support import switches


@pytest.fixture
def onnx_file(tmp_path):
    onnx.save(onnx_conv(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def test_shape_makes_an_onnx_model_static(onnx_file):
    model = compile_model(onnx_file, shapes={"image.0": (5, 3, 8, 8)})
    assert model.report.equal
    assert model.inputs[0].shape == (5, 3, 8, 8)
    assert model.report.outputs[0].shape == [5, 4, 8, 8]


def test_symbolic_dims_of_onnx_have_a_size_to_compare_at():
    report = compile_model(onnx_conv(("batch", 3, "height", 8))).report
    assert report.equal
    assert report.outputs[0].shape == [2, 4, 32, 8]


def test_symbolic_dims_of_torch_have_the_example_s_size():
    batch = torch.export.Dim("batch", min=2, max=16)
    module, (x,) = nn.Linear(4, 3).eval(), (torch.ones(7, 4),)
    program = torch.export.export(module, (x,), dynamic_shapes=({0: batch},))
    assert compile_model(program).report.outputs[0].shape == [7, 3]
    model = compile_model(program, shapes={"input": (9, 4)})
    assert model.report.outputs[0].shape == [9, 3]
    assert model.run(torch.ones(4, 4)).shape == (4, 3)
    message = fails(program, shapes={"input": (99, 4)})
    assert "got (99, 4)" in message and "must be from 2 to 16" in message


def test_names_and_sizes_of_onnx_dims():
    def chosen(*dims):
        model = compile_model(onnx_conv(("n", 3, "h", "w")), shapes={"image.0": dims})
        assert model.report.equal
        return model.inputs[0].shape

    assert chosen("batch", 3, 8, "w") == ("batch", 3, 8, "w")
    assert chosen("n", 3, "side", "side") == ("n", 3, "side", "side")


def test_expressions_of_onnx_dims():
    def model(x, z):
        return onnx_model(
            [helper.make_node("Neg", [i], [o]) for i, o in (("x", "y"), ("z", "u"))],
            [("x", FLOAT, x), ("z", FLOAT, z)],
            [("y", FLOAT, None), ("u", FLOAT, None)],
        )

    both = model(["a", "b"], ["a + 2*b", "(a + 1) * b"])
    compiled = compile_model(both)
    assert compiled.report.equal
    assert [spec.shape for spec in compiled.report.outputs] == [[2, 32], [66, 96]]
    with pytest.raises(InputError, match=r"'z': expected .*2.*; the inputs have the shapes x "):
        compiled.run(np.ones((2, 3), "float32"), np.ones((12, 9), "float32"))
    assert compile_model(both, shapes={"x": (4, 5)}).inputs[1].shape == (14, 25)
    # If no dim is only a symbol of the expression, the expression becomes a name.
    assert compile_model(model([3], ["2*n"])).inputs[1].shape == ("2*n",)


def test_names_make_dims_of_a_module_symbolic():
    module, (x,) = conv_net()
    assert x.shape[0] == 1
    compiled = compile_model((module, (x,)), shapes={"x": ("batch", 3, "side", "side")})
    assert compiled.report.equal
    assert compiled.inputs[0].shape == ("batch", 3, "side", "side")
    other = torch.rand(5, 3, 9, 9)
    got = compiled.run(other)
    torch.testing.assert_close(torch.as_tensor(got), module(other), rtol=1e-4, atol=1e-5)


def test_a_name_that_torch_cannot_export():
    class Fixed(nn.Module):
        def forward(self, x):
            return x.reshape(3, 4)

    message = fails((Fixed().eval(), (torch.ones(6, 2),)), shapes={"x": ("n", 2)})
    assert "torch.export failed" in message
    assert fails(conv_net(), UsageError, shapes={"x": ("a b", 3, 8, 8)}) == (
        "input 'x' of ConvNet: expected an identifier as name of a dim, got 'a b'"
    )


def test_a_dim_that_is_given_twice():
    model = onnx_conv(("n", 3, "n", 8))
    assert fails(model, UsageError, shapes={"image.0": (4, 3, 5, 8)}) == (
        "dim 'n' of graph is given twice: 4 and 5"
    )


def test_static():
    batch = torch.export.Dim("batch", min=2, max=16)
    program = torch.export.export(
        nn.Linear(4, 3).eval(), (torch.ones(7, 4),), dynamic_shapes=({0: batch},)
    )
    assert compile_model(program, static=True).inputs[0].shape == (7, 4)
    sized = compile_model(program, shapes={"input": (9, 4)}, static=True)
    assert sized.inputs[0].shape == (9, 4) and sized.report.equal
    named = compile_model(program, shapes={"input": ("rows", 4)})
    assert named.inputs[0].shape == ("rows", 4)
    assert named.manifest.bounds == {"rows": (2, 16)}

    with_limit = fails(program, shapes={"input": (17, 4)}, static=True, compare=False)
    assert "torch.export failed" in with_limit

    model = onnx_conv(("n", 3, "h", 8))
    assert fails(model, UsageError, static=True) == (
        "input 'image.0' of graph: give a size for n, h"
    )
    assert fails(model, UsageError, shapes={"image.0": (1, 3, "h", 8)}, static=True) == (
        "input 'image.0' of graph: give a size for h"
    )
    compiled = compile_model(model, shapes={"image.0": (1, 3, 8, 8)}, static=True)
    assert compiled.inputs[0].shape == (1, 3, 8, 8)


@pytest.mark.parametrize("form", ["module", "program", "value"])
@pytest.mark.parametrize("shapes", [None, {"x": (5, 4)}])
def test_a_pytorch_model_is_static_at_the_import(form, shapes):
    """Otherwise, converters of symbolic extents would import it."""

    class Rows(nn.Module):
        def forward(self, x, index):
            return torch.var(x.reshape(x.shape[0] * 2, -1), 0)[index] * 2

    args, rows = (torch.randn(3, 4), torch.tensor([0, 1])), torch.export.Dim("rows", max=9)
    model = (Rows().eval(), args, None, ({0: rows}, None))
    if form == "program":
        model = torch.export.export(*model[:2], dynamic_shapes=model[3])
    settings = Settings(shapes=shapes, options={"static": True}, value="var" * (form == "value"))
    source = settings.open(model)
    extent = 5 if shapes else 3
    assert [spec.shape for spec in source.inputs] == [(extent, 4), (2,)]
    nodes = source.program.graph.nodes
    assert not any(isinstance(node.meta.get("val"), torch.SymInt) for node in nodes)
    with switches.collect() as applied:
        mod = source.to_relax()
    assert "torch-dynamic-shapes" not in applied
    assert mod["main"].params[0].ty.shape[0] == extent
    x, *_ = inputs = source.example_inputs(np.random.default_rng(0))
    [got] = source.reference()[1](inputs)
    variance = torch.tensor(x).reshape(2 * extent, -1).var(0)
    expected = variance if form == "value" else variance[torch.tensor(inputs[1])] * 2
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_a_relax_module_with_symbols_is_not_made_static():
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 3), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.negative(x)))
    message = fails(builder.get(), UsageError, static=True, compare=False)
    assert "cannot make input 'x' static" in message


def test_wrong_shape(onnx_file):
    assert fails(onnx_file, UsageError, shapes={"image.0": (1, 4, 8, 8)}) == (
        "input 'image.0' of model.onnx: expected shape (batch, 3, 8, 8), got (1, 4, 8, 8)"
    )
    assert fails(onnx_file, UsageError, shapes={"image.0": (1, 3, 8)}) == (
        "input 'image.0' of model.onnx: expected shape (batch, 3, 8, 8), got (1, 3, 8)"
    )
    assert fails(onnx_file, UsageError, shapes={"image": (1, 3, 8, 8)}) == (
        "shape given for unknown input 'image'; inputs of model.onnx: image.0"
    )
    assert fails(conv_net(), UsageError, shapes={"x": (2, 3, 8, 8)}) == (
        "input 'x' of ConvNet: expected shape (1, 3, 8, 8), got (2, 3, 8, 8)"
    )


def test_unknown_rank():
    model = onnx_model([helper.make_node("Relu", ["x"], ["y"])], [("x", 1, None)], [("y", 1, [])])
    assert "input 'x' of graph has an unknown rank; give its shape" in fails(model, UsageError)
    compiled = compile_model(model, shapes={"x": (2, 3)})
    assert compiled.inputs[0].shape == (2, 3)


def test_unnamed_dims():
    node = helper.make_node("Concat", ["a", "b"], ["y"], axis=0)
    inputs = [("a", FLOAT, [None, 4]), ("b", FLOAT, [None, 4])]
    compiled = compile_model(onnx_model([node], inputs, [("y", FLOAT, None)]))
    assert compiled.report.equal
    assert compiled.inputs[0].shape == ("dim0", 4)


def test_shape_of_one_of_two_inputs_with_a_common_dim():
    def model(shape):
        return onnx_model(
            [helper.make_node("Concat", ["x", "z"], ["y"], axis=1)],
            [("x", FLOAT, ["b", 3]), ("z", FLOAT, shape)],
            [("y", FLOAT, ["b", None])],
        )

    compiled = compile_model(model(["b", 3]), shapes={"x": (5, 3)})
    assert compiled.report.equal
    assert [spec.shape for spec in compiled.inputs] == [(5, 3), (5, 3)]
    compiled = compile_model(model(["b", "c"]), shapes={"x": (5, 3)}, compare=False)
    assert [spec.shape for spec in compiled.inputs] == [(5, 3), (5, "c")]


def test_dims_that_wrongly_have_one_name():
    """ONNX Runtime does not compare sizes with names; `shapes` separates the dims."""
    model = onnx_model(
        [helper.make_node("Concat", ["x", "z"], ["y"], axis=0)],
        [("x", FLOAT, ["n", 3]), ("z", FLOAT, ["n", 3])],
        [("y", FLOAT, None)],
    )
    x, z = np.ones((2, 3), "float32"), np.zeros((5, 3), "float32")
    with pytest.raises(InputError, match=r"input 'z'.*n"):
        compile_model(model).run(x, z)
    compiled = compile_model(model, shapes={"x": ("a", 3), "z": ("b", 3)})
    assert [spec.shape for spec in compiled.inputs] == [("a", 3), ("b", 3)]
    np.testing.assert_array_equal(compiled.run(x, z), np.concatenate([x, z]))
    assert "'n' of graph is given twice" in fails(
        model, UsageError, shapes={"x": (2, 3), "z": (5, 3)}
    )


if __name__ == "__main__":
    tvm.testing.main()
