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
"""MatMulNBits and GatherBlockQuantized."""

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import TensorProto, helper

from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
)
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

ROWS = 6


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    """Integers of `bits` along the last axis in bytes, lowest bits first."""
    count = 8 // bits
    padding = [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % count)]
    parts = np.pad(values, padding).reshape(*values.shape[:-1], -1, count).astype("uint32")
    return (parts << np.arange(0, 8, bits)).sum(-1).astype("uint8")


def matmul(
    bits: int,
    *,
    columns: int = 64,
    block: int = 16,
    zero: str | None = None,
    group: bool = False,
    bias: bool = False,
    dtype: str = "float32",
    flat: bool = True,
    shape: tuple = (2, 3),
) -> tuple[onnx.ModelProto, Arrays]:
    """A model of a MatMulNBits; `zero` is the kind of its zero points: packed, float or None."""
    generator = np.random.default_rng(0)
    blocks = -(-columns // block)
    weight = generator.integers(0, 2**bits, (ROWS, blocks, block))
    scales = generator.uniform(0.01, 0.1, (ROWS, blocks)).astype(dtype)
    constants = {"b": packed(weight, bits), "scales": scales.ravel() if flat else scales}
    if zero == "packed":
        zeros = packed(generator.integers(0, 2**bits, (ROWS, blocks)), bits)
        constants["zeros"] = zeros.ravel() if flat else zeros
    elif zero == "float":
        constants["zeros"] = generator.uniform(0, 2**bits, (ROWS, blocks)).astype(dtype)
    if group:
        constants["group"] = generator.integers(0, blocks, columns).astype("int32")
    if bias:
        constants["bias"] = normal(ROWS, seed=3, dtype=dtype)
    inputs = {"a": normal(2, 3, columns, dtype=dtype)}
    operands = ["a", "b", "scales"]
    operands += [name if name in constants else "" for name in ("zeros", "group", "bias")]
    while not operands[-1]:
        operands.pop()
    attributes = {"K": columns, "N": ROWS, "bits": bits, "block_size": block}
    model = node_model(
        "MatMulNBits",
        inputs,
        attributes,
        constants=constants,
        operands=operands,
        shapes={"a": (*shape, columns)},
        outputs={"y": (dtype, 3)},
        domain="com.microsoft",
    )
    return model, inputs


def test_matmul() -> None:
    """Zero points of each kind, and a last block that is not full."""
    cases = {}
    for bits in (2, 4, 8):
        for zero in (None, "packed"):
            cases |= {
                f"{bits} {zero}": matmul(bits, zero=zero, columns=72 if zero else 64, bias=True),
            }
    cases |= {
        "float zero": matmul(4, zero="float"),
        "two axes": matmul(4, zero="packed", flat=False),
        "block 32": matmul(4, zero="packed", columns=96, block=32),
    }
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6, optimize=False)


def test_matmul_float16() -> None:
    cases = {str(bits): matmul(bits, zero="packed", dtype="float16", bias=True) for bits in (4, 8)}
    assert_as_onnx_runtime(from_onnx, cases, rtol=2e-3, optimize=False)


def test_matmul_with_groups() -> None:
    """``g_idx`` names the block of each column."""
    for zero in (None, "packed"):
        model, inputs = matmul(4, zero=zero, group=True)
        constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
        nibbles = np.stack([constants["b"] & 15, constants["b"] >> 4], -1).reshape(ROWS, 64)
        group = constants["group"]
        scales = constants["scales"].reshape(ROWS, 4)[:, group]
        zeros = 8.0
        if zero:
            few = constants["zeros"].reshape(ROWS, 2)
            zeros = np.stack([few & 15, few >> 4], -1).reshape(ROWS, 4)[:, group]
        weight = (nibbles.astype("float32") - zeros) * scales
        [got] = imported_and_run(from_onnx, model, *inputs.values(), optimize=False)
        np.testing.assert_allclose(got, inputs["a"] @ weight.T, rtol=1e-4, atol=1e-5)


def test_matmul_of_symbolic_rows() -> None:
    model, inputs = matmul(4, zero="packed", shape=("n", "m"))
    data = inputs["a"]
    assert_follows_onnx_runtime(from_onnx, model, [data], [data[:1]], rtol=1e-6)


def gather(
    element_type: str,
    *,
    zero: bool = False,
    bits: int = 4,
    gather_axis: int = 0,
    axis: int = 1,
    shape: tuple = (20, 40),
    indices: tuple = (2, 3),
    dtype: str = "float32",
) -> tuple[onnx.ModelProto, Arrays]:
    """A model of a GatherBlockQuantized of blocks of 16 elements."""
    generator = np.random.default_rng(0)
    low, high = (-8, 8) if element_type == "INT4" else (0, 2**bits)
    grid = list(shape)
    grid[axis] = -(-shape[axis] // 16)
    tensors = []
    for name, extents in (("data", shape), ("zeros", grid)):
        values = generator.integers(low, high, extents)
        if element_type == "UINT8":
            tensors.append(onnx.numpy_helper.from_array(packed(values, bits), name))
        else:
            number = getattr(TensorProto, element_type)
            tensors.append(helper.make_tensor(name, number, extents, values.ravel()))
    scales = generator.uniform(0.1, 1, grid).astype(dtype)
    wanted = generator.integers(-shape[gather_axis], shape[gather_axis], indices)
    model = node_model(
        "GatherBlockQuantized",
        {"i": wanted},
        {"bits": bits, "block_size": 16, "gather_axis": gather_axis, "quantize_axis": axis},
        constants={"scales": scales},
        operands=["data", "i", "scales", *(["zeros"] if zero else [])],
        outputs={"y": (dtype, len(shape) + len(indices) - 1)},
        opset=21,
        domain="com.microsoft",
    )
    model.graph.initializer.extend(tensors if zero else tensors[:1])
    model.ir_version = 10
    return model, {"i": wanted}


def test_gather() -> None:
    """Data of 4 bits, and packed in bytes; with and without zero points."""
    cases = {}
    for zero in (False, True):
        for kind in ("INT4", "UINT4"):
            cases[f"{kind} {zero}"] = gather(kind, zero=zero)
        for bits in (4, 8):
            cases[f"bytes {bits} {zero}"] = gather("UINT8", bits=bits, zero=zero)
    cases["axes"] = gather("INT4", zero=True, gather_axis=1, axis=2, shape=(3, 5, 40), indices=(4,))
    cases["block before"] = gather(
        "UINT4", zero=True, gather_axis=2, axis=1, shape=(3, 40, 6), indices=(2, 2)
    )
    cases["half"] = gather("INT4", dtype="float16")
    cases["scalar"] = gather("UINT8", indices=())
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_rejects_bad_operands() -> None:
    named = "com.microsoft.MatMulNBits 'node': "
    model, _ = matmul(4)
    attributes = {a.name: a for a in model.graph.node[0].attribute}
    for name, value, message in (
        ("bits", 3, "attribute bits is 3; expected 2, 4 or 8"),
        ("block_size", 0, "attribute block_size is 0; expected at least 1"),
        ("block_size", 1, "attribute block_size is 1; expected a multiple of 2"),
        ("block_size", 32, "shape of B is [6, 4, 8]; expected [6, 2, 16]"),
        ("K", 80, "shape of B is [6, 4, 8]; expected [6, 5, 8]"),
    ):
        kept, attributes[name].i = attributes[name].i, value
        assert_rejected(from_onnx, model, named + message)
        attributes[name].i = kept
    model, _ = matmul(4, zero="packed")
    model.graph.node[0].input[3] = "scales"
    imported_and_run(from_onnx, model, normal(2, 3, 64), optimize=False)  # zero points as floats
    model.graph.node[0].input[2] = "zeros"
    assert_rejected(from_onnx, model, f"{named}dtype of scales is uint8; expected float32")
    model, _ = gather("INT4", gather_axis=1)
    named = "com.microsoft.GatherBlockQuantized 'node': "
    message = "attribute gather_axis is 1; expected 0 for uint8, and not quantize_axis, 1"
    assert_rejected(from_onnx, model, named + message)


if __name__ == "__main__":
    tvm.testing.main()
