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
"""The kernels that a lowered module calls, with the nodes of the model that each call computes."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import tvm
from tvm import relax, tirx
from tvm.s_tir.analysis import estimate_tir_flops
from tvm_ffi import structural_walk

from .analysis import bindings
from .ir import is_kernel_call, operator_name
from .source_nodes import SourceNode, nodes_of, spread

_EXTERN = "relax.call_dps_packed"
_IN_PLACE = "relax.call_tir_inplace"


@dataclass(frozen=True)
class KernelCall:
    """One call of a kernel.

    Attributes
    ----------
    kernel : str
        The name of the kernel.
    nodes : tuple of int
        The nodes of the model that it computes, as places in a list.
    """

    kernel: str
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class KernelCalls:
    """The calls of kernels in a module.

    Attributes
    ----------
    nodes : tuple of SourceNode
        The nodes of the model.
    calls : tuple of KernelCall
        In the order of the program; the order of a run, if it has no branches.
    flops : dict of str to float
        The floating-point operations of kernels whose extents are known.
    """

    nodes: tuple[SourceNode, ...] = ()
    calls: tuple[KernelCall, ...] = ()
    flops: dict[str, float] = field(default_factory=dict)


def kernel_calls(mod: tvm.IRModule) -> KernelCalls:
    """Find the calls of kernels in a module, as ``R.call_tir`` or of external functions."""
    spread(mod)
    places: dict[SourceNode, int] = {}
    calls: list[KernelCall] = []
    for kernel, var in _calls_in(mod):
        nodes = [places.setdefault(node, len(places)) for node in nodes_of(var)]
        calls.append(KernelCall(kernel, tuple(nodes)))
    return KernelCalls(tuple(places), tuple(calls))


def flops_of(mod: tvm.IRModule) -> dict[str, float]:
    """The floating-point operations of the kernels whose extents are known, before schedules."""
    counts = {str(var.name_hint): _flops_of(function) for var, function in mod.functions_items()}
    return {name: count for name, count in counts.items() if count is not None}


def _calls_in(mod: tvm.IRModule) -> Iterator[tuple[str, relax.Var]]:
    functions = sorted(mod.functions_items(), key=lambda item: item[0].name_hint != "main")
    for _, function in functions:
        if not isinstance(function, relax.Function):
            continue
        for binding in bindings(function):
            value = binding.value
            if is_kernel_call(value) or operator_name(value) == _IN_PLACE:
                yield str(value.args[0].name_hint), binding.var
            elif operator_name(value) == _EXTERN:
                yield str(value.args[0].global_symbol), binding.var


def _flops_of(function: tvm.ir.BaseFunc) -> float | None:
    """The floating-point operations of a kernel; None if the extent of a loop is not constant."""
    if not isinstance(function, tirx.PrimFunc):
        return None
    extents: list[tirx.Expr] = []
    structural_walk(function.body, (tirx.For, lambda loop: extents.append(loop.extent)))
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):
        return None  # TVM would count one iteration
    try:
        return float(estimate_tir_flops(tvm.IRModule({"main": function})))
    except Exception:  # TVM cannot count some statements, such as loops without an extent
        return None
