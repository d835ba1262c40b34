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
"""Calls on operands that arrive in a layout, before and after ConvertLayout.

Every operand of a :class:`Case` comes in one of these ways:

- ``plain``: a parameter;
- ``0231``: a permute_dims by these axes, which is a layout change of its operand;
- ``N*C``: a convolution converted to that layout, where ``*`` stands for the spatial axes;
  ``NC*4c`` and ``N*C4c`` split the channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from helpers.relax_modules import UNOPTIMIZED_CPU, build, call, integers, merge, tensor

SPATIAL = {3: "W", 4: "HW", 5: "DHW"}
CONVOLUTIONS = {3: op.nn.conv1d, 4: op.nn.conv2d, 5: op.nn.conv3d}
PERMUTES = {
    2: ("10",),
    3: ("021", "120", "210"),
    4: ("0231", "0213", "3102", "3210"),
    5: ("02341", "43210"),
}
PACKED = ("NC*4c", "N*C4c", "NC*8c")


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes
    ----------
    operator : str
        The operator that is called.
    name : str
        The name of the case within its operator.
    emit : callable
        Maps the float32 operands to the call.
    shapes : tuple of tuple of int
        The shape of every operand.
    runs : bool
        Whether TVM can lower it.
    static : bool
        Whether it is valid only for these extents.
    """

    operator: str
    name: str
    emit: Callable[..., relax.Expr]
    shapes: tuple[tuple[int, ...], ...]
    runs: bool = True
    static: bool = False

    @property
    def id(self) -> str:
        return f"{self.operator.removeprefix('relax.')}({self.name})"


def block(way: str) -> int:
    """The number of channels per block; 0 if no axis is split."""
    return int(way.strip("NC*c") or 0) if "N" in way else 0


def ways(shape: Sequence[int]) -> list[str]:
    """The ways in which a tensor of `shape` can arrive."""
    found = ["plain", *PERMUTES.get(len(shape), ())]
    if len(shape) in SPATIAL:
        found += ["N*C", *(way for way in PACKED if shape[1] % block(way) == 0)]
    return found


def layouts_of(way: str, rank: int) -> list[str]:
    """The layouts of data and kernel that a way requests for its convolution."""
    spatial, blocks = SPATIAL[rank], block(way)
    kernel = f"OI{spatial}{blocks}i{blocks}o" if blocks else f"O{spatial}I"
    return [way.replace("*", spatial), kernel]


def _dims(case: Case, shape: Sequence[int]) -> list[tvm.tirx.Expr | int]:
    """The shape with symbolic batch and first spatial axis; broadcast axes stay 1."""
    missing = max(map(len, case.shapes)) - len(shape)
    symbols = {(0, 2): tvm.tirx.Var("n", "int64"), (2, 3): tvm.tirx.Var("h", "int64")}
    return [symbols.get((missing + axis, dim), dim) for axis, dim in enumerate(shape)]


def module(
    case: Case, arrivals: Sequence[str], dynamic: bool = False, known_shapes: bool = True
) -> tuple[tvm.IRModule, list[np.ndarray], dict[str, list[str]]]:
    """Build a case with operands that arrive in the ways `arrivals`.

    Parameters
    ----------
    dynamic : bool
        Whether batch and height are symbolic.
    known_shapes : bool
        Whether the parameters have a shape, or only a rank.

    Returns
    -------
    mod : IRModule
        Not converted.
    arguments : list of np.ndarray
        For its ``main``.
    desired : dict of str to list of str
        The layouts of the convolutions by kernel name; see :func:`convert`.
    """
    inputs: dict[str, tvm.ir.Type] = {}
    arguments: list[np.ndarray] = []
    desired: dict[str, list[str]] = {}
    symbols: dict[str, tvm.tirx.Expr] = {}

    def add_input(name, shape, dims):
        dims = [symbols.setdefault(dim.name, dim) if hasattr(dim, "name") else dim for dim in dims]
        known = known_shapes or not shape
        inputs[name] = (
            tensor(*dims) if known else relax.TensorType(dtype="float32", ndim=len(shape))
        )
        arguments.append(integers(*shape, seed=len(arguments)))

    for i, (shape, way) in enumerate(zip(case.shapes, arrivals, strict=True)):
        order = np.argsort([int(axis) for axis in way]) if way.isdigit() else range(len(shape))
        dims = _dims(case, shape) if dynamic else shape
        add_input(f"x{i}", [shape[axis] for axis in order], [dims[axis] for axis in order])
        if "N" in way:
            desired[f"w{i}"] = layouts_of(way, len(shape))
            ones = [1] * (len(shape) - 2)
            add_input(f"w{i}", [shape[1]] * 2 + ones, [dims[1]] * 2 + ones)

    def emit(builder, *params):
        by_name = {param.name: param for param in params}

        def arrive(i, way):
            if way.isdigit():
                return op.permute_dims(by_name[f"x{i}"], [int(axis) for axis in way])
            if "N" in way:
                return CONVOLUTIONS[len(case.shapes[i])](by_name[f"x{i}"], by_name[f"w{i}"])
            return by_name[f"x{i}"]

        operands = [builder.emit(arrive(i, way)) for i, way in enumerate(arrivals)]
        return builder.emit(case.emit(*operands))

    return build(inputs, emit), arguments, desired


def convert(mod: tvm.IRModule, desired: dict[str, list[str]]) -> tvm.IRModule:
    """ConvertLayout with a layout for each convolution, by the name of its kernel."""

    def layouts(converted: relax.Call) -> dict[str, list[str]]:
        kernel = converted.args[1] if len(converted.args) == 2 else None
        if isinstance(kernel, relax.Var) and kernel.name in desired:
            return {converted.op.name: desired[kernel.name]}
        return {}

    return relax.transform.ConvertLayout({}, layouts)(mod)


def check_conversion(before: tvm.IRModule, desired: dict[str, list[str]]) -> tvm.IRModule:
    """Convert a module; assert that it is well formed and keeps its type."""
    after = convert(before, desired)
    assert relax.analysis.check_well_formed(after)
    tvm.ir.assert_structural_equal(after["main"].ret_ty, before["main"].ret_ty)
    return after


def check_values(conversions: dict[str, tuple[tvm.IRModule, list[np.ndarray], dict]]) -> None:
    """Convert, run before and after, and compare; all cases share one build.

    Parameters
    ----------
    conversions : dict
        Results of :func:`module`, by the label shown on failure.
    """
    versions = {}
    for i, (before, _, desired) in enumerate(conversions.values()):
        versions |= {f"before{i}": before, f"after{i}": check_conversion(before, desired)}
    vm = relax.VirtualMachine(relax.build(merge(versions), UNOPTIMIZED_CPU), tvm.cpu())
    for i, (name, (_, arguments, _)) in enumerate(conversions.items()):
        got, expected = (call(vm, f"{when}{i}", *arguments) for when in ("after", "before"))
        if isinstance(expected, np.ndarray):
            got, expected = [got], [expected]
        for value, reference in zip(got, expected, strict=True):
            np.testing.assert_allclose(value, reference, 1e-4, 1e-4, err_msg=name)
