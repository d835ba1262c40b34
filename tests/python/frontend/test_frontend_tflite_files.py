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
"""The reader of TFLite files: what it reads, and malformed files."""

import numpy as np
import pytest
import tvm

from helpers.tflite_models import Graph
from tvm_fixes.errors import CompileError, TfliteError, UsageError
from tvm_fixes.frontend.tflite.file.model import read_model


def _convolution() -> Graph:
    graph = Graph()
    data = graph.input([-1, 8, 8, 3], "int8", scale=0.5, zero=-3)
    weight = graph.constant(
        np.ones([4, 3, 3, 3], "int8"), scale=np.arange(1, 5) / 8, zero=0, axis=0
    )
    bias = graph.constant(np.arange(4, dtype="int32"))
    out = graph.tensor([-1, 4, 4, 4], "int8", scale=0.25, zero=1)
    options = {"padding": "SAME", "stride_w": 2, "stride_h": 2, "fused_activation_function": "RELU"}
    graph.add("CONV_2D", [data, weight, bias], out, ("Conv2DOptions", options))
    graph.add("Mine", [out, -1], graph.tensor([4], "int32"), custom_options=[1, 2, 3])
    return graph


def test_model():
    graph = _convolution()
    signature = {
        "signature_key": "serving_default",
        "inputs": [{"name": "x", "tensor_index": 0}],
        "outputs": [{"name": "y", "tensor_index": 3}],
        "subgraph_index": 0,
    }
    metadata = [{"name": "min_runtime_version", "buffer": len(graph.buffers)}]
    graph.buffers.append({"data": list(b"1.5.0")})
    model = read_model(
        graph.file(signature_defs=[signature], metadata=metadata, description="a model")
    )
    assert (model.version, model.description) == (3, "a model")
    assert bytes(model.metadata["min_runtime_version"]) == b"1.5.0"
    [found] = model.signatures
    assert found.key == "serving_default"
    assert (found.inputs, found.outputs) == ({"x": 0}, {"y": 3})
    main = model.main
    assert (main.name, main.inputs, main.outputs) == ("main", (0,), (3, 4))
    data, weight, bias, *_ = main.tensors
    assert (data.name, data.dtype, data.shape) == ("t0", "int8", (1, 8, 8, 3))
    assert data.signature == (-1, 8, 8, 3) and data.array is None
    assert data.quantization.scale == [0.5] and data.quantization.zero_point == [-3]
    assert weight.signature == weight.shape == (4, 3, 3, 3)
    assert not weight.quantization.is_per_tensor and weight.quantization.axis == 0
    np.testing.assert_array_equal(weight.array, np.ones([4, 3, 3, 3], "int8"))
    np.testing.assert_array_equal(bias.array, np.arange(4, dtype="int32"))
    convolution, custom = main.operators
    assert convolution.name == "CONV_2D" and convolution.inputs == (0, 1, 2)
    assert convolution.options["padding"] == "SAME"
    assert convolution.options["fused_activation_function"] == "RELU"
    assert convolution.options["stride_h"] == 2 and convolution.options["dilation_h_factor"] == 1
    assert (custom.name, custom.is_custom, custom.inputs) == ("Mine", True, (3, -1))
    assert custom.custom_options == b"\1\2\3"


@pytest.mark.parametrize("code, old, name", [(0, 3, "CONV_2D"), (150, 127, "GELU")])
def test_operator_codes(code, old, name):
    graph = _convolution()
    graph.codes[0] = {"builtin_code": code, "deprecated_builtin_code": old}
    assert read_model(graph.file()).main.operators[0].name == name


def test_small_integers_and_floats():
    graph = Graph()
    packed = np.array([0x2F, 0x81, 0x07], "uint8")
    graph.tensor([5], "int4", data=packed)
    graph.tensor([5], "uint4", data=packed)
    graph.tensor([9], "int2", data=packed)
    graph.tensor([2], "bfloat16", data=np.array([0x3F80, 0x4000], "uint16"))
    arrays = [tensor.array for tensor in read_model(graph.file()).main.tensors]
    assert arrays[0].tolist() == [-1, 2, 1, -8, 7]
    assert arrays[1].tolist() == [15, 2, 1, 8, 7]
    assert arrays[2].tolist() == [-1, -1, -2, 0, 1, 0, 0, -2, -1]
    assert arrays[3].astype("float32").tolist() == [1, 2]


def test_sparse_constants_and_variables_are_described():
    graph = Graph()
    dims = [
        {"format": "DENSE", "dense_size": 2},
        {
            "format": "SPARSE_CSR",
            "array_segments": ("Uint8Vector", {"values": [0, 1, 2]}),
            "array_indices": ("Int32Vector", {"values": [1, 0]}),
        },
    ]
    graph.constant(
        np.ones(2, "float32"), sparsity={"traversal_order": [0, 1], "dim_metadata": dims}
    )
    graph.tensor([2], is_variable=True)
    sparse, variable = read_model(graph.file()).main.tensors
    assert sparse.sparsity.traversal_order == (0, 1)
    name, fields = sparse.sparsity.dims[1]["array_indices"]
    assert name == "Int32Vector" and fields["values"].tolist() == [1, 0]
    assert variable.is_variable and not sparse.is_variable
    with pytest.raises(TfliteError, match="tensor 't0': sparse constants are not supported"):
        _ = sparse.array


def test_buffers_behind_the_flatbuffer(tmp_path):
    values = np.arange(6, dtype="float32")
    graph = Graph()
    graph.constant(values)
    graph.buffers[1] = {"offset": 4096, "size": values.nbytes}
    path = tmp_path / "large.tflite"
    path.write_bytes(graph.file().ljust(4096, b"\0") + values.tobytes())
    np.testing.assert_array_equal(read_model(path).main.tensors[0].array, values)
    with pytest.raises(TfliteError, match="buffer 1 is at byte 4096, with 24 bytes"):
        read_model(graph.file())


def test_a_constant_has_as_many_bytes_as_its_shape():
    graph = Graph()
    graph.tensor([3], data=np.zeros(2, "float32"))
    tensor = read_model(graph.file()).main.tensors[0]
    with pytest.raises(TfliteError, match=r"'t0': expected 12 bytes for shape \[3\] of float32"):
        _ = tensor.array


def test_files_that_are_not_models(tmp_path):
    with pytest.raises(TfliteError, match="not a TFLite file"):
        read_model(b"")
    with pytest.raises(TfliteError, match="not a TFLite file"):
        read_model(b"\x08\0\0\0ONNX" + bytes(100))
    with pytest.raises(UsageError, match=r"none\.tflite"):
        read_model(tmp_path / "none.tflite")
    (tmp_path / "empty.tflite").write_bytes(b"")
    with pytest.raises(TfliteError, match="not a TFLite file"):
        read_model(tmp_path / "empty.tflite")


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda g: g.operators[0].update(inputs=[0, 77]), "tensor 77 does not exist"),
        (lambda g: g.operators[0].update(outputs=[-1]), "tensor -1 does not exist"),
        (lambda g: g.operators[0].update(opcode_index=9), "operator code 9 does not exist"),
        (lambda g: g.tensors[1].update(buffer=9), "buffer 9 does not exist"),
        (lambda g: g.tensors[0].update(shape_signature=[-1, 2]), "and the signature"),
        (lambda g: g.tensors[0].update(external_buffer=1), "weights in another file"),
        (lambda g: g.tensors[1]["quantization"].update(scale=[1, 2]), "2 scales and 4 zero"),
        (lambda g: g.inputs.append(50), "inputs: tensor 50 does not exist"),
    ],
)
def test_indices_are_checked(change, message):
    graph = _convolution()
    change(graph)
    with pytest.raises(TfliteError, match=message):
        read_model(graph.file())


def test_a_small_file_cannot_be_read_as_a_large_one():
    graph = Graph()
    graph.tensors = [{"name": "x" * 1000, "shape": [1]}] * 5000
    data = graph.file()
    assert len(data) < 30_000
    with pytest.raises(TfliteError, match="share parts that together"):
        read_model(data)


def test_damaged_files_have_one_error():
    data = _convolution().file()
    rng = np.random.default_rng(0)
    errors = 0
    for case in range(500):
        damaged = bytearray(data[: rng.integers(len(data))] if case % 5 == 0 else data)
        for place in rng.integers(0, max(len(damaged), 1), rng.integers(1, 9)):
            if len(damaged):
                damaged[place] = rng.choice([0, 1, 4, 127, 255, rng.integers(256)])
        try:
            for tensor in read_model(bytes(damaged)).main.tensors:
                _ = tensor.array
        except CompileError as error:
            errors += 1
            assert "\n" not in str(error) and str(error)
    assert errors > 150


if __name__ == "__main__":
    tvm.testing.main()
