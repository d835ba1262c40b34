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
"""Random ONNX graphs, built node by node and evaluated as they grow."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from . import onnx_oracle
from .values import FLOATS, dtype_of, random_array

DIMS = ("n", "m", "k")


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph.

    Attributes
    ----------
    name : str
    array : numpy.ndarray
        Its elements for the current inputs.
    exact : bool
        Whether it is free of rounding, so that comparisons and casts of it are unambiguous.
    """

    name: str
    array: np.ndarray
    exact: bool

    @property
    def dtype(self) -> str:
        return self.array.dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True)
class Input:
    """An input of the graph; a dim is a name or a size."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]
    kind: str

    def array(self, rng: np.random.Generator, sizes: dict[str, int]) -> np.ndarray:
        shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in self.dims)
        return random_array(rng, self.dtype, shape, self.kind)


@dataclass
class Graph:
    """A graph under construction.

    Attributes
    ----------
    rng : numpy.random.Generator
    opset : int
    sizes : dict of str to int
        The symbolic dims and their sizes during construction; empty for static shapes.
    """

    rng: np.random.Generator
    opset: int
    sizes: dict[str, int]
    inputs: list[Input] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, options: Sequence):  # type: ignore[no-untyped-def,type-arg]
        """One of `options`."""
        return options[int(self.rng.integers(len(options)))]

    def below(self, end: int) -> int:
        """A number from 0 to `end` - 1."""
        return int(self.rng.integers(end))

    def add_input(self, dtype: str, dims: Sequence[int | str], kind: str) -> Value:
        """Add an input to the graph."""
        spec = Input(f"x{len(self.inputs)}", dtype, tuple(dims), kind)
        self.inputs.append(spec)
        exact = dtype not in FLOATS or kind in ("exact", "special")
        value = Value(spec.name, spec.array(self.rng, self.sizes), exact)
        self.values.append(value)
        return value

    def constant(self, array: np.ndarray) -> str:
        """Add an initializer; return its name."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weight(self, dtype: str, shape: Sequence[int], kind: str = "normal") -> str:
        """Add a random initializer; return its name."""
        return self.constant(random_array(self.rng, dtype, tuple(shape), kind))

    def pick(
        self,
        dtypes: Sequence[str],
        *,
        ranks: Sequence[int] | None = None,
        exact: bool = False,
        nonempty: bool = False,
    ) -> Value | None:
        """A value of one of `dtypes`, preferably a recent one; None if no value fits."""
        fit = [
            value
            for value in self.values
            if value.dtype in dtypes
            and (ranks is None or value.rank in ranks)
            and (value.exact or not exact)
            and (value.array.size > 0 or not nonempty)
        ]
        if not fit:
            return None
        return fit[max(self.below(len(fit)), self.below(len(fit)))]

    def add(
        self,
        operator: str,
        operands: Sequence[Value | str],
        *,
        outputs: int = 1,
        exact: bool = False,
        limit: float = 1e6,
        nonempty: bool = False,
        **attributes: object,
    ) -> list[Value]:
        """Add a node unless the oracle rejects it or its results are too large; return its results.

        Parameters
        ----------
        exact : bool
            Whether the operator adds no rounding to exact operands.
        limit : float
            The most elements that a result may have.
        nonempty : bool
            Whether results must have elements.
        """
        names = [each.name if isinstance(each, Value) else each for each in operands]
        all_exact = exact and _are_exact(operands)
        sizes = (1 if nonempty else 0, limit)
        return self._add(operator, names, outputs, all_exact, sizes, attributes)

    def add_with_outer(
        self,
        operator: str,
        operands: Sequence[Value | str],
        outer: Sequence[Value],
        **graphs: object,
    ) -> list[Value]:
        """Like :meth:`add`, for an operator with subgraphs that read the values `outer`."""
        names = [each.name if isinstance(each, Value) else each for each in operands]
        read = [value.name for value in outer]
        return self._add(operator, names, 1, _are_exact(outer), (0, 1e6), graphs, read)

    def _add(
        self,
        operator: str,
        names: list[str],
        outputs: int,
        exact: bool,
        sizes: tuple[float, float],
        attributes: dict[str, object],
        outer: Sequence[str] = (),
    ) -> list[Value]:
        index = len(self.nodes)
        results = [f"v{index}_{i}" if outputs > 1 else f"v{index}" for i in range(outputs)]
        node = helper.make_node(operator, names, results, name=f"node{index}", **attributes)
        known = {value.name: value.array for value in self.values} | self.constants
        operands = {name: known[name] for name in (*names, *outer) if name}
        arrays = onnx_oracle.evaluate(node, operands, self.opset)
        if arrays is None or any(not sizes[0] <= array.size <= sizes[1] for array in arrays):
            return []
        self.nodes.append(node)
        new = [
            Value(name, array, exact or array.dtype.name not in FLOATS)
            for name, array in zip(results, arrays, strict=True)
        ]
        self.values += new
        return new

    def model(self) -> onnx.ModelProto:
        """The model; its outputs are the values that no node reads, and a few others."""
        read = {name for node in self.nodes for name in node.input}
        made = {name for node in self.nodes for name in node.output}
        ends = [
            v for v in self.values if v.name in made and (v.name not in read or self.chance(0.1))
        ]
        graph = helper.make_graph(
            self.nodes,
            "fuzz",
            [helper.make_tensor_value_info(s.name, element(s.dtype), s.dims) for s in self.inputs],
            [
                helper.make_tensor_value_info(
                    v.name, element(v.dtype), [None] * v.rank if self.sizes else v.shape
                )
                for v in ends
            ],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 10
        return model


def _are_exact(operands: Sequence[Value | str]) -> bool:
    return all(value.exact for value in operands if isinstance(value, Value))


def element(dtype: str) -> int:
    """The ONNX element type of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(dtype_of(dtype)))
