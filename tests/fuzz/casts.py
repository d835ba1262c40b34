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
"""Casts of floats out of range, within fused chains, from PyTorch, ONNX and Relax.

The oracle is PyTorch, or ONNX Runtime, element by element: their kernels for vectors have other
integers for uint32, the only dtype of which elements of a vector are unspecified.
"""

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import torch
import tvm
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from tvm import relax

import tvm_fixes

_FLOATS = (torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_SIGNED = ("int8", "int16", "int32", "int64", "uint8")
_SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 2.0**31, -(2.0**31), 2.0**63)

# Each step is exact, or rounded as in PyTorch by one operation of its dtype.
_STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "negative": torch.neg,
    "absolute": torch.abs,
    "doubled": lambda x: x * 2,
    "floor": torch.floor,
    "clamp": lambda x: x.clamp(-300, 300),
    "clamp to bytes": lambda x: x.clamp(0, 255),
    "relu": torch.relu,
    "maximum": lambda x: torch.maximum(x, torch.full_like(x, -7)),
}


def values(rng: np.random.Generator, count: int) -> torch.Tensor:
    """Numbers of all magnitudes, in float64."""
    magnitudes = np.exp2(rng.uniform(-2, rng.choice([9, 18, 34, 70]), count))
    numbers = magnitudes * rng.choice([-1, 1], count)
    numbers[rng.random(count) < 0.2] = rng.choice(_SPECIAL)
    return torch.from_numpy(numbers)


class _Chain(nn.Module):
    def __init__(self, steps: list[str], integer: str, last: str) -> None:
        super().__init__()
        self.steps, self.integer, self.last = steps, integer, last

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        middle = x
        for name in self.steps:
            middle = _STEPS[name](middle)
        number = middle.to(getattr(torch, self.integer))
        back = number.to(x.dtype)
        return (
            number,
            (back * 2).to(getattr(torch, self.last)),
            middle.to(getattr(torch, self.last)),
        )


def run_case(seed: int) -> str | None:
    """Compile and compare the chain of `seed`: see :class:`tests.fuzz.campaign.Campaign`."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([8, seed])
    dtype = _FLOATS[int(rng.integers(len(_FLOATS)))]
    x = values(rng, int(rng.integers(1, 70))).to(dtype)
    steps = [str(name) for name in rng.choice(list(_STEPS), int(rng.integers(0, 4)))]
    integer, last = str(rng.choice(_SIGNED)), str(rng.choice(_INTEGERS))
    kind = ("torch", "torch", "onnx", "relax")[int(rng.integers(4))]
    if dtype == torch.bfloat16:  # NumPy has none
        kind = "torch"
    what = f"{kind}: {dtype} {steps} {integer} {last}, {x.tolist()}"
    if kind == "torch":
        chain = _Chain(steps, integer, last).eval()
        model = tvm_fixes.compile((chain, (x,)), compare=False)
        with torch.no_grad():
            singles = [chain(element.reshape(1)) for element in x]
        wanted = [torch.cat(parts).numpy() for parts in zip(*singles, strict=True)]
        _same([np.asarray(result) for result in model.run(x)], wanted, what)
        return None
    array = x.numpy()
    if kind == "relax":
        model = tvm_fixes.compile(_relax_module(x, last), compare=False)
        wanted = [torch.cat([(-e.reshape(1)).to(getattr(torch, last)) for e in x]).numpy()]
        _same([model.run(array)], wanted, what)
        return None
    proto = _onnx_model(x, last)
    if rng.random() < 0.3:  # computed at import
        constant = helper.make_node("Constant", [], ["x"], value=numpy_helper.from_array(array))
        proto.graph.node.insert(0, constant)
        proto.graph.ClearField("input")
    model = tvm_fixes.compile(proto, compare=False)
    session = onnxruntime.InferenceSession(_onnx_model(x, last).SerializeToString())
    wanted = [np.concatenate([session.run(None, {"x": e.reshape(1)})[0] for e in array])]
    _same([model.run(array) if proto.graph.input else model.run()], wanted, what)
    return None


def _same(ours: list[np.ndarray], theirs: list[np.ndarray], what: str) -> None:
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.dtype == b.dtype, f"output {place}: {a.dtype}, not {b.dtype} ({what})"
        differ = np.flatnonzero(a != b)
        assert not differ.size, f"output {place}: {a[differ[0]]}, not {b[differ[0]]} ({what})"


def _relax_module(x: torch.Tensor, dtype: str) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    name = str(x.dtype).removeprefix("torch.")
    parameter = relax.Var("x", relax.TensorType(tuple(x.shape), name))
    with builder.function("main", [parameter]):
        negative = builder.emit(relax.op.negative(parameter))
        builder.emit_func_output(builder.emit(relax.op.astype(negative, dtype)))
    return builder.get()


def _onnx_model(x: torch.Tensor, dtype: str) -> onnx.ModelProto:
    kinds = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}
    source = getattr(TensorProto, kinds[str(x.dtype).removeprefix("torch.")])
    target = getattr(TensorProto, dtype.upper())
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Cast", ["y"], ["z"], to=target),
    ]
    inputs = [helper.make_tensor_value_info("x", source, ["n"])]
    outputs = [helper.make_tensor_value_info("z", target, ["n"])]
    graph = helper.make_graph(nodes, "casts", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
