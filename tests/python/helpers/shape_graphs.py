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
"""Random ONNX graphs that compute shapes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

SIZES = ({"n": 2, "m": 3}, {"n": 1, "m": 4}, {"n": 4, "m": 1})
"""Values of the symbols; the data has a different shape for each."""

EMPTY_SIZES = ({"n": 2, "m": 3}, {"n": 0, "m": 4}, {"n": 4, "m": 0})
"""The same, including empty data."""

_INPUTS = {"x": ("n", 3, "m"), "w": ("m", 2)}
_ELEMENTS = {"int64": TensorProto.INT64, "bool": TensorProto.BOOL, "float32": TensorProto.FLOAT}
_LARGEST = 60


def inputs(size: dict[str, int]) -> list[np.ndarray]:
    """Data for the inputs, whole numbers."""
    rng = np.random.default_rng(size["n"])
    shapes = [[size.get(dim, dim) for dim in dims] for dims in _INPUTS.values()]
    return [rng.integers(-4, 5, shape).astype("float32") for shape in shapes]


def expected(model: onnx.ModelProto, sizes: Sequence[dict[str, int]]) -> list[list[np.ndarray]]:
    """The outputs of a model of such inputs for each of `sizes`, by ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # threads are slow to start
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return [session.run(None, dict(zip(_INPUTS, inputs(size), strict=True))) for size in sizes]


@dataclass
class ShapeGraph:
    """A random graph, built one valid node at a time.

    `arrays` has the values of each tensor for each of `sizes`, by tensor name.
    """

    choose: random.Random
    sizes: Sequence[dict[str, int]] = SIZES
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    arrays: dict[str, list[np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        columns = zip(*map(inputs, self.sizes), strict=True)
        self.arrays = dict(zip(_INPUTS, map(list, columns), strict=True))

    def model(
        self, outputs: Sequence[str], nodes: Sequence[onnx.NodeProto] = ()
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, *nodes],
            "shapes",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in _INPUTS.items()],
            [self._info(name) for name in outputs],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
        model.ir_version = 9
        return model

    def _info(self, name: str) -> onnx.ValueInfoProto:
        array = self.arrays[name][0]
        return helper.make_tensor_value_info(name, _ELEMENTS[str(array.dtype)], [None] * array.ndim)

    def named(self, dtype: str, ranks: Sequence[int] = (0, 1, 2, 3, 4)) -> str:
        """A tensor of a dtype and rank; raises IndexError if there is none."""
        return self.choose.choice(
            [n for n, (a, *_) in self.arrays.items() if a.dtype == dtype and a.ndim in ranks]
        )

    def constant(self, values: int | list[int]) -> str:
        name = f"c{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                "Constant", [], [name], **{f"value_int{'s' * isinstance(values, list)}": values}
            )
        )
        self.arrays[name] = [np.array(values, "int64")] * len(self.sizes)
        return name

    def integers(self, rank: int) -> str:
        """Integers of rank 0 or 1: a tensor or a constant."""
        if self.choose.random() < 0.6:
            return self.named("int64", (rank,))
        values = [self.choose.randint(-2, 4) for _ in range(self.choose.randint(1, 3))]
        return self.constant(values if rank else values[0])

    def add(self, operator: str, *operands: str, **attributes: object) -> str | None:
        """Append a node unless it is invalid, too large, or has a size-dependent rank."""
        name = f"t{len(self.nodes)}"
        node = helper.make_node(operator, operands, [name], name=name, **attributes)
        model = self.model([], [node])
        model.graph.output.append(onnx.ValueInfoProto(name=name))
        try:
            found = [outputs[0] for outputs in expected(model, self.sizes)]
        except Exception:  # its exceptions have no common base class
            return None
        if len({array.ndim for array in found}) > 1 or max(array.size for array in found) > 200:
            return None
        if any(np.abs(array.astype("float64")).max(initial=0) > _LARGEST for array in found):
            return None
        if (
            max(array.size for array in found) == 0
        ):  # models do not compute tensors that are always empty
            return None
        self.nodes.append(node)
        self.arrays[name] = found
        return name

    def grow(self) -> None:
        """Try to append one random node."""
        steps: list[tuple[int, Callable[[], object]]] = [
            (4, self._shape),
            (3, self._gather),
            (2, self._slice),
            (3, self._concat),
            (2, self._change_rank),
            (4, self._arithmetic),
            (2, self._compare),
            (1, self._where),
            (2, self._reduce),
            (1, self._make),
            (5, self._reshape),
            (2, self._expand),
            (3, self._move),
            (2, self._if),
        ]
        weights, functions = zip(*steps, strict=True)
        try:
            self.choose.choices(functions, weights)[0]()
        except IndexError:  # there is no operand yet
            pass

    def _shape(self) -> None:
        attributes = self.choose.choice([{}, {}, {"start": 1}, {"end": -1}, {"start": -2}])
        operator = self.choose.choice(["Shape"] * 5 + ["Size"])
        data = self.named(self.choose.choice(["float32", "float32", "int64"]))
        self.add(operator, data, **(attributes if operator == "Shape" else {}))

    def _gather(self) -> None:
        indices = self.choose.choice([0, -1, [0], [1], [-1], [1, 0], [0, -1]])
        self.add("Gather", self.named("int64", (1,)), self.constant(indices))

    def _slice(self) -> None:
        bounds = [[self.choose.choice([0, 1, 2, -1, -2, 9, -9, 2**62])] for _ in range(2)]
        step = [self.choose.choice([1, 1, 2, -1, -2])]
        parts = [self.constant(values) for values in (*bounds, [0], step)]
        self.add("Slice", self.named("int64", (1,)), *parts)

    def _concat(self) -> None:
        parts = [self.integers(1) for _ in range(self.choose.randint(2, 3))]
        self.add("Concat", *parts, axis=0)

    def _change_rank(self) -> None:
        if self.choose.random() < 0.5:
            self.add("Unsqueeze", self.named("int64", (0,)), self.constant([0]))
        else:
            self.add("Squeeze", self.named("int64", (1,)), self.constant([0]))

    def _arithmetic(self) -> None:
        operator = self.choose.choice(
            ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max", "Neg", "Abs", "Sign", "Cast"]
        )
        a = self.named("int64", (0, 1))
        if operator in ("Neg", "Abs", "Sign"):
            self.add(operator, a)
        elif operator == "Cast":
            narrow = self.add(
                "Cast", a, to=self.choose.choice([TensorProto.INT32, TensorProto.BOOL])
            )
            if narrow:
                self.add("Cast", narrow, to=TensorProto.INT64)
        else:
            fmod = {"fmod": self.choose.randint(0, 1)} if operator == "Mod" else {}
            self.add(operator, a, self.integers(self.choose.randint(0, 1)), **fmod)

    def _compare(self) -> None:
        operator = self.choose.choice(["Equal", "Less", "Greater", "LessOrEqual", "And", "Not"])
        if operator == "Not":
            self.add("Not", self.named("bool"))
        elif operator == "And":
            self.add(
                self.choose.choice(["And", "Or", "Xor"]), self.named("bool"), self.named("bool")
            )
        else:
            rank = self.choose.randint(0, 1)
            self.add(operator, self.named("int64", (rank,)), self.integers(rank))

    def _where(self) -> None:
        rank = self.choose.randint(0, 1)
        self.add("Where", self.named("bool"), self.integers(rank), self.named("int64", (rank,)))

    def _reduce(self) -> None:
        operator = self.choose.choice(
            ["ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "CumSum"]
        )
        data = self.named("int64", (1,))
        if operator == "CumSum":
            self.add("CumSum", data, self.constant(0), exclusive=self.choose.randint(0, 1))
        else:
            self.add(operator, data, keepdims=self.choose.randint(0, 1))

    def _make(self) -> None:
        operator = self.choose.choice(["Range", "ConstantOfShape", "Tile", "NonZero"])
        if operator == "Range":
            self.add("Range", self.constant(0), self.integers(0), self.constant(1))
        elif operator == "ConstantOfShape":
            value = helper.make_tensor(
                "value", TensorProto.INT64, [1], [self.choose.randint(-1, 2)]
            )
            self.add("ConstantOfShape", self.integers(1), value=value)
        elif operator == "Tile":
            self.add("Tile", self.named("int64", (1,)), self.integers(1))
        else:
            self.add("NonZero", self.named("int64", (1,)))

    def _reshape(self) -> None:
        data = self.named("float32")
        # A computed dim of 0 must mean 0, not a copy of the data's dim.
        zeros = {"allowzero": 1} if any(0 in size.values() for size in self.sizes) else {}
        if self.choose.random() < 0.3:
            self.add("Reshape", data, self.integers(1), **zeros)
            return
        shape = self.add("Shape", data)
        if shape is None:
            return
        cut = self.choose.randint(0, 2)
        head = self.add("Slice", shape, self.constant([0]), self.constant([cut]))
        tail = self.add("Slice", shape, self.constant([cut]), self.constant([9]))
        if head and tail:
            product = self.add("ReduceProd", tail, keepdims=1)
            rest = self.choose.choice([self.constant([-1]), product])
            if zeros:  # beside a 0 a -1 may be anything
                rest = product
            target = self.add("Concat", *self.choose.sample([head, rest], 2), axis=0)
            if target:
                self.add("Reshape", data, target, **zeros)

    def _expand(self) -> None:
        target = self.choose.choice([self.integers(1), self.add("Shape", self.named("float32"))])
        self.add("Expand", self.named(self.choose.choice(["float32", "int64"])), target)

    def _move(self) -> None:
        operator = self.choose.choice(
            ["Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Add"]
        )
        data = self.named("float32")
        rank = self.arrays[data][0].ndim
        axis = self.choose.randint(-rank, max(rank - 1, 0))
        if operator in ("Squeeze", "Unsqueeze"):
            self.add(operator, data, self.constant([axis]))
        elif operator == "Transpose":
            self.add(operator, data, perm=self.choose.sample(range(rank), rank))
        elif operator == "Slice":
            bounds = [self.choose.choice([self.integers(1), self.constant([0])]) for _ in range(2)]
            self.add("Slice", data, *bounds, self.constant([axis]))
        elif operator == "Gather":
            self.add("Gather", data, self.integers(self.choose.randint(0, 1)), axis=axis)
        else:
            self.add("Add", data, self.named("float32"))

    def _if(self) -> None:
        dtype = self.choose.choice(["float32", "int64"])
        condition = self.named("bool", (0, 1))
        data = self.named(dtype)
        branches = {
            name: self._branch(name, dtype, self.choose.choice([data, self.named(dtype)]))
            for name in ("then_branch", "else_branch")
        }
        self.add("If", condition, **branches)

    def _branch(self, name: str, dtype: str, data: str) -> onnx.GraphProto:
        """A branch of one node on an outer tensor, which may be invalid if it never runs."""
        prefix = f"{name}{len(self.nodes)}"
        operator = self.choose.choice(["Identity", "Squeeze", "Unsqueeze", "ReduceSum", "Neg"])
        operands = [data]
        nodes = []
        if operator in ("Squeeze", "Unsqueeze", "ReduceSum"):
            axes = [self.choose.randint(0, 1)]
            nodes.append(helper.make_node("Constant", [], [f"{prefix}axes"], value_ints=axes))
            operands.append(f"{prefix}axes")
        nodes.append(helper.make_node(operator, operands, [prefix], name=prefix))
        output = helper.make_tensor_value_info(prefix, _ELEMENTS[dtype], None)
        return helper.make_graph(nodes, name, [], [output])


def random_shape_graph(
    seed: int, sizes: Sequence[dict[str, int]] = SIZES, steps: int = 25
) -> tuple[onnx.ModelProto, list[list[np.ndarray]]]:
    """A random model, and ONNX Runtime's outputs for each of `sizes`."""
    graph = ShapeGraph(random.Random(seed), sizes)
    for _ in range(steps):
        graph.grow()
    used = {name for node in graph.nodes for name in node.input}
    made = [name for name in graph.arrays if name.startswith("t")]
    ends = [name for name in made if name not in used]
    model = graph.model(ends[-6:])
    return model, expected(model, sizes)
