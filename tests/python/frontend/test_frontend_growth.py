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
"""Compile work grows roughly linearly with the number of blocks in a model."""

from functools import cache

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import TensorProto, helper
from torch import nn

from helpers import growth
from helpers.grids import few, is_full
from helpers.growth import assert_grows_linearly, assert_linear, largest_kernel, size_of
from helpers.onnx_graphs import assert_follows_onnx_runtime, normal, program
from tvm_fixes import transform
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program

pytestmark = pytest.mark.filterwarnings("ignore")

WIDTH, POSITIONS = 16, 32
BLOCKS = growth.BLOCKS if is_full() else growth.BLOCKS[:3]


class Block(nn.Module):
    """Masked attention and a linear layer, each with a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = (*x.shape[:-1], 2, WIDTH // 2)
        q = self.project(x).view(heads).transpose(1, 2)
        attended = nn.functional.scaled_dot_product_attention(q, q, q, mask[:, None, None])
        x = self.norm(x + attended.transpose(1, 2).reshape(x.shape))
        return x + nn.functional.gelu(self.last(x))


class Encoder(nn.Module):
    """Token and position embeddings, followed by blocks."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, WIDTH)
        self.positions = nn.Embedding(POSITIONS, WIDTH)
        self.register_buffer("numbers", torch.arange(POSITIONS)[None])
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        positions = self.positions(self.numbers[:, : tokens.shape[1]])
        x = self.tokens(tokens) + positions
        for block in self.blocks:
            x = block(x, mask)
        return x


class Convolutions(nn.Module):
    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(blocks))
        self.second = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(blocks))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for first, second in zip(self.first, self.second, strict=True):
            x = torch.relu(x + second(torch.relu(first(x))))
        return x


def exported(model: nn.Module, args: tuple[torch.Tensor, ...], axes: tuple[int, ...]):
    dims = {axis: torch.export.Dim.DYNAMIC for axis in axes}
    with torch.no_grad():
        return torch.export.export(model.eval(), args, dynamic_shapes=(dims,) * len(args))


def as_onnx(program: torch.export.ExportedProgram) -> onnx.ModelProto:
    return torch.onnx.export(program, dynamo=True, verbose=False).model_proto


TOKENS = torch.randint(0, 20, (3, 7)), torch.rand(3, 7) > 0.3
IMAGES = (torch.rand(3, 4, 9, 11),)


@cache
def encoder(blocks: int) -> torch.export.ExportedProgram:
    return exported(Encoder(blocks), TOKENS, (0, 1))


@few(1)
@pytest.mark.parametrize("exporter", ["torch", "onnx"])
def test_encoders(exporter: str) -> None:
    """The sequence broadcasts against the position table; each block reads both."""
    if exporter == "onnx":
        models = {n: as_onnx(encoder(n)) for n in BLOCKS}
        make = lambda n: from_onnx(models[n])  # noqa: E731
    else:
        make = lambda n: from_exported_program(encoder(n))  # noqa: E731
    assert_grows_linearly(make, [transform.DynamicToStatic()], BLOCKS)


def test_convolutions() -> None:
    models = {n: exported(Convolutions(n), IMAGES, (0, 2, 3)) for n in BLOCKS}
    make = lambda n: from_exported_program(models[n])  # noqa: E731
    assert_grows_linearly(make, [transform.DynamicToStatic()], BLOCKS)


def test_the_positions_bound_the_sequence() -> None:
    """Adding the position table requires an equal sequence length; others are rejected."""
    model = program(
        {
            "n": ("Shape", ["x"], {"start": 1, "end": 2}),
            "some": ("Slice", ["table", "0", "n", "1"]),
            "sum": ("Add", ["x", "some"]),
            "y": ("Mul", ["sum", "x"]),
            "z": ("Sub", ["some", "y"]),
        },
        {"x": ("float32", ("b", "s", 3))},
        {"table": normal(1, 5, 3), **{str(i): vector(i) for i in (0, 1)}},
        ["y", "z", "some"],
    )
    mod = from_onnx(model)
    b, s, _ = mod["main"].params[0].ty.shape
    assert [list(field.shape) for field in mod["main"].ret_ty.fields[:2]] == [[b, s, 3]] * 2
    runs = [[normal(b, s, 3)] for b, s in ((2, 4), (1, 5), (2, 1), (2, 0), (2, 6))]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def vector(*elements: int) -> np.ndarray:
    return np.array(elements, "int64")


def branch(operator: str) -> onnx.GraphProto:
    """A branch with one operator on `x`, and on `some` if it is binary."""
    operands = ["x", "some"][: 2 if operator == "Add" else 1]
    result = f"{operator}_result"
    out = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(operator, operands, [result])], result, [], [out])


def chain(blocks: int) -> onnx.ModelProto:
    """A chain of operands with three symbolic extents."""
    nodes, last = {}, "x"
    for index in range(blocks):
        nodes[f"a{index}"] = ("Add", [last, "z"])
        nodes[f"b{index}"] = ("Max", ["v", f"a{index}", "x"])
        last = f"b{index}"
    nodes["y"] = ("Sub", [last, "x"])
    inputs = {name: ("float32", (dim, 2)) for name, dim in {"x": "n", "z": "m", "v": "k"}.items()}
    return program(nodes, inputs)


def test_chains_of_broadcasts() -> None:
    """A broadcast extent gets one name, and is right whichever operand is 1."""
    assert_grows_linearly(lambda n: from_onnx(chain(n)), [transform.DynamicToStatic()])
    kernels = {n: largest_kernel(from_onnx(chain(n))) for n in BLOCKS}
    assert len(set(kernels.values())) == 1
    shapes = [(n, m, k) for n in (1, 3) for m in (1, 3) for k in (1, 3)] + [(1, 0, 1), (3, 2, 1)]
    runs = [[normal(extent, 2) for extent in shape] for shape in shapes]
    assert_follows_onnx_runtime(from_onnx, chain(3), *runs, pipeline="tvm_fixes")


def test_dynamic_to_static_keeps_the_names_of_choices() -> None:
    """A symbol bound to a select of extents is not substituted."""
    mod = from_onnx(chain(2))
    text = transform.DynamicToStatic()(mod).script()
    assert "broadcast" in text
    assert_linear({n: size_of(transform.DynamicToStatic()(from_onnx(chain(n)))) for n in BLOCKS})


def test_requirements_of_a_branch_apply_only_in_the_branch() -> None:
    model = program(
        {
            "n": ("Shape", ["x"], {"start": 0, "end": 1}),
            "some": ("Slice", ["table", "0", "n"]),
            "y": ("If", ["c"], {"then_branch": branch("Add"), "else_branch": branch("Neg")}),
            "z": ("Shape", ["some"]),
        },
        {"c": ("bool", ()), "x": ("float32", ("s", 3))},
        {"table": normal(4, 3), "0": vector(0)},
        {"y": "float32", "z": "int64"},
    )
    truth, lie = np.array(True), np.array(False)
    runs = [[truth, normal(4, 3)], [lie, normal(6, 3)], [lie, normal(2, 3)], [truth, normal(6, 3)]]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes")


if __name__ == "__main__":
    tvm.testing.main()
