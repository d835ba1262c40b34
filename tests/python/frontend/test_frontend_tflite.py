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
"""The importer of TFLite models: shapes, names, errors, and the model as a source."""

from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_fixes
from helpers import tflite_operators_page
from helpers.relax_modules import run
from helpers.tflite_models import Case, Graph, litert_outputs, needs_litert
from tvm_fixes import pipeline
from tvm_fixes.errors import CompileError, TfliteError, UnsupportedOperatorError, UsageError
from tvm_fixes.frontend.tflite import from_tflite
from tvm_fixes.source.preflight import check


def _classifier() -> Graph:
    """A network on a batch of any size, which computes the shape of a reshape."""
    graph = Graph()
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> int:
        return graph.constant(rng.standard_normal(shape).astype("float32"))

    def ints(*values: int) -> int:
        return graph.constant(np.array(values, "int32"))

    x = graph.input([-1, 8, 8, 3])
    hidden, vector, scalar = (
        graph.tensor([-1, 4, 4, 6]),
        graph.tensor([4], "int32"),
        graph.tensor([], "int32"),
    )
    options = {"stride_h": 2, "stride_w": 2, "padding": "SAME", "fused_activation_function": "RELU"}
    operands = [x, weights(6, 3, 3, 3), weights(6)]
    graph.add("CONV_2D", operands, hidden, ("Conv2DOptions", options), is_output=False)
    graph.add("SHAPE", [hidden], vector, ("ShapeOptions", {"out_type": "int32"}), is_output=False)
    bounds = [ints(0), ints(1), ints(1)]
    first = ("StridedSliceOptions", {"shrink_axis_mask": 1})
    graph.add("STRIDED_SLICE", [vector, *bounds], scalar, first, is_output=False)
    shape, flat = graph.tensor([2], "int32"), graph.tensor([-1, 96])
    rest = graph.constant(np.array(96, "int32"))
    graph.add("PACK", [scalar, rest], shape, ("PackOptions", {"values_count": 2}), is_output=False)
    graph.add("RESHAPE", [hidden, shape], flat, is_output=False)
    logits = graph.tensor([-1, 5])
    operands = [flat, weights(5, 96), weights(5)]
    graph.add("FULLY_CONNECTED", operands, logits, ("FullyConnectedOptions", {}), is_output=False)
    graph.add("SOFTMAX", [logits], graph.tensor([-1, 5]), ("SoftmaxOptions", {"beta": 1.0}))
    return graph


def test_a_batch_of_any_size():
    data = _classifier().file()
    mod = from_tflite(data)
    [param] = mod["main"].params
    batch, *others = param.ty.shape
    assert str(batch.name) == "batch" and others == [8, 8, 3]
    assert mod["main"].attrs["num_input"] == 1
    x = np.random.default_rng(1).standard_normal((3, 8, 8, 3)).astype("float32")
    found = run(mod, x, pipeline=pipeline())
    assert found.shape == (3, 5)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)
    static = from_tflite(data, {"t0": [3, 8, 8, 3]}, {"t0": "float32"})
    assert static["main"].ret_ty.shape.values[0] == 3
    np.testing.assert_allclose(run(static, x, pipeline=pipeline()), found, rtol=1e-5, atol=1e-6)


@needs_litert
def test_a_batch_of_any_size_as_in_litert():
    data = _classifier().file()
    x = np.random.default_rng(1).standard_normal((3, 8, 8, 3)).astype("float32")
    [wanted] = litert_outputs(data, [x])
    found = run(from_tflite(data), x, pipeline=pipeline())
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_models_of_the_package_tflite():
    class Table:
        Bytes = _classifier().file()

    class Model:
        _tab = Table

    assert [str(one.name) for one in from_tflite(Model())["main"].params] == ["t0"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (({"x": [1]},), "shape given for unknown input 'x'; inputs: t0"),
        (({"t0": [3, 9, 8, 3]},), r"input 't0': expected shape \['batch', 8, 8, 3\]"),
        (({}, {"t0": "int8"}), "input 't0': expected dtype float32, got int8"),
        (({}, {"y": "int8"}), "dtype given for unknown input 'y'"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(UsageError, match=message):
        from_tflite(_classifier().file(), *arguments)
    with pytest.raises(UsageError, match="got int"):
        from_tflite(3)


def test_the_table_of_operators_is_current():
    table = Path(__file__).parents[3] / "docs" / "tables" / "tflite_operators.md"
    assert table.read_text() == tflite_operators_page.page() + "\n"


def test_all_unsupported_operators_are_listed():
    graph = Graph()
    x = graph.input([4])
    graph.add("RFFT2D", [x, x], graph.tensor([4], "complex64"), ("Rfft2dOptions", {}))
    graph.add("Mine", [x], graph.tensor([4]))
    graph.add("LSTM", [x], graph.tensor([4]), is_output=False)  # nothing needs it
    with pytest.raises(UnsupportedOperatorError) as raised:
        from_tflite(graph.file())
    assert str(raised.value) == (
        "unsupported operators: RFFT2D at operator 0 ('t1') of subgraph 'main': no converter; "
        "Mine at operator 1 ('t2') of subgraph 'main': a custom operator"
    )


def test_what_is_not_supported_names_operator_and_tensor():
    def fails(name, operands, options=None, **fields) -> str:
        out = graph.tensor([2, 2], **fields)
        graph.outputs, graph.operators = [], []
        graph.add(name, operands, out, options)
        with pytest.raises(CompileError) as raised:
            from_tflite(graph.file())
        return str(raised.value)

    graph = Graph()
    x, n = graph.input([2, 2]), graph.input([2], "int32")
    state, nothing = graph.tensor([2, 2], is_variable=True), graph.tensor([2, 2])
    assert "the shape must be constant" in fails("RESHAPE", [x, n])
    assert "t2', a variable: state is not supported" in fails("NEG", [state])
    assert "t3', which nothing has computed" in fails("NEG", [nothing])
    assert "expected int32" in fails("NEG", [x], dtype="int32")
    tanh = ("AddOptions", {"fused_activation_function": "TANH"})
    assert "the activation function TANH is not supported" in fails("ADD", [x, x], tanh)
    assert "3 operands; expected 2" in fails("ADD", [x, x, x])
    assert "the option stride_h is missing" in fails("MAX_POOL_2D", [graph.input([1, 4, 4, 1])])
    blocks = {"details": ("BlockwiseQuantization", {"block_size": 32})}
    q = graph.input([2, 2], "int8", quantization=blocks)
    assert "BlockwiseQuantization is not supported" in fails("DEQUANTIZE", [q])
    assert "tensors of complex64" in fails("NEG", [x], dtype="complex64")
    wide = graph.input([5, 7])
    assert "ADD at operator 0 ('t" in (message := fails("ADD", [x, wide]))
    assert "cannot convert" in message and "\n" not in message
    depth = graph.constant(np.array(2**31 - 1, "int32"))
    hot = [n, depth, graph.input([]), graph.input([])]
    assert "the depth is 2147483647" in fails("ONE_HOT", hot, ("OneHotOptions", {"axis": -1}))
    twice = Graph()
    x = twice.input([2])
    out = twice.tensor([2])
    twice.add("NEG", [x], out)
    twice.add("ABS", [x], out)
    with pytest.raises(TfliteError, match=r"ABS at operator 1 .* has a value already"):
        from_tflite(twice.file())


def test_check_and_compile_a_file(tmp_path: Path):
    path = tmp_path / "model.tflite"
    path.write_bytes(_classifier().file())
    found = check(path)
    assert found.ok and {one.name for one in found.operators} >= {"CONV_2D", "SOFTMAX"}
    model = tvm_fixes.compile(path, compare=False)
    assert [spec.name for spec in model.inputs] == ["t0"]
    x = np.random.default_rng(1).standard_normal((2, 8, 8, 3)).astype("float32")
    assert model(x).shape == (2, 5)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(TfliteError, match=r"model\.tflite: malformed file"):
        check(path)


@needs_litert
def test_compile_compares_with_litert(tmp_path: Path):
    path = tmp_path / "model.tflite"
    path.write_bytes(_classifier().file())
    model = tvm_fixes.compile(path)
    assert model.report.reference.startswith("LiteRT")
    assert all(output.equal for output in model.report.outputs)


def test_a_result_that_is_an_input_or_a_constant():
    case = Case()
    x = np.arange(3, dtype="float32")
    a = case.input(x)
    case.outputs = [a, case.constant(x + 1)]
    found = run(from_tflite(case.file()), x, pipeline=pipeline())
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], x + 1)


if __name__ == "__main__":
    tvm.testing.main()
