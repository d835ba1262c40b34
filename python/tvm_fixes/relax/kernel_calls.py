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

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax, tirx
from tvm.s_tir.analysis import estimate_tir_flops
from tvm_ffi import structural_walk

from .analysis import bindings, operator_calls
from .data_flow import data_flow
from .ir import dim_text, is_kernel_call, operator_name, static_bytes
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
    reads : tuple of int or None
        The calls whose results it reads, as indices in the list of calls; None if unknown.
    operands, results : tuple of str
        The types of its tensors, such as ``float32 (1, 64, n)``.
    nbytes : int or None
        The size of its operands and results; None for a symbolic extent.
    layout : str
        The layouts of its convolutions, poolings and similar operators, such as ``NHWC``, or
        ``NCHW → NHWC`` if that of the result differs; empty if it has none.
    """

    kernel: str
    nodes: tuple[int, ...]
    reads: tuple[int, ...] | None = None
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    nbytes: int | None = None
    layout: str = ""


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

    def described(
        self, flops: Mapping[str, float], layouts: Mapping[SourceNode, str]
    ) -> "KernelCalls":
        """Add what is known only before the module is lowered.

        Parameters
        ----------
        flops
            As :func:`flops_of` returns it.
        layouts
            As :func:`layouts_of` returns it.
        """
        calls = []
        for call in self.calls:
            names = (layouts.get(self.nodes[place], "") for place in call.nodes)
            layout = ", ".join(dict.fromkeys(filter(None, names)))
            calls.append(replace(call, layout=layout))
        return replace(self, calls=tuple(calls), flops=dict(flops))

    def of_run(self, names: Sequence[str]) -> tuple[list[list[int]], bool]:
        """The calls that each kernel of a run may be, by its name, and whether all are known."""
        by_kernel: dict[str, list[int]] = defaultdict(list)
        for place, call in enumerate(self.calls):
            by_kernel[call.kernel].append(place)
        is_exact = [n for n in names if n in by_kernel] == [call.kernel for call in self.calls]
        places = iter(range(len(self.calls)))
        found = []
        for name in names:
            is_known = is_exact and name in by_kernel
            found.append([next(places)] if is_known else by_kernel.get(name, []))
        return found, is_exact

    def nodes_of(self, calls: Sequence[int]) -> tuple[SourceNode, ...]:
        """The nodes of the model that `calls` compute."""
        places = dict.fromkeys(place for call in calls for place in self.calls[call].nodes)
        return tuple(self.nodes[place] for place in places)


def kernel_calls(mod: tvm.IRModule) -> KernelCalls:
    """Find the calls of kernels in a module, as ``R.call_tir`` or of external functions."""
    spread(mod)
    places: dict[SourceNode, int] = {}
    calls: list[KernelCall] = []
    kernel_bindings = list(_calls_in(mod))
    reads = data_flow(mod, [binding.var for _, binding in kernel_bindings])
    for (kernel, binding), read in zip(kernel_bindings, reads, strict=True):
        nodes = [places.setdefault(node, len(places)) for node in nodes_of(binding.var)]
        operands, results = _tensors(binding.value.args[1].ty), _tensors(binding.var.ty)
        calls.append(
            KernelCall(
                kernel,
                tuple(nodes),
                read,
                tuple(map(_type_text, operands)),
                tuple(map(_type_text, results)),
                _size([*operands, *_new(binding.value, results)]),
            )
        )
    return KernelCalls(tuple(places), tuple(calls))


def layouts_of(mod: tvm.IRModule) -> dict[SourceNode, str]:
    """The layout of each node that has one, such as ``NCHW → NHWC``, before legalization."""
    spread(mod)
    layout_texts: dict[SourceNode, str] = {}
    for _, binding in operator_calls(mod):
        attrs = binding.value.attrs
        data = getattr(attrs, "data_layout", None) or getattr(attrs, "layout", None)
        if data:
            layouts = filter(None, (str(data), str(getattr(attrs, "out_layout", ""))))
            text = " → ".join(dict.fromkeys(layouts))
            layout_texts.update(dict.fromkeys(nodes_of(binding.var), text))
    return layout_texts


def flops_of(mod: tvm.IRModule) -> dict[str, float]:
    """The floating-point operations of the kernels whose extents are known, before schedules."""
    counts = {str(var.name_hint): _flops_of(function) for var, function in mod.functions_items()}
    return {name: count for name, count in counts.items() if count is not None}


def _calls_in(mod: tvm.IRModule) -> Iterator[tuple[str, relax.Binding]]:
    functions = sorted(mod.functions_items(), key=lambda item: item[0].name_hint != "main")
    for _, function in functions:
        if not isinstance(function, relax.Function):
            continue
        for binding in bindings(function):
            value = binding.value
            if is_kernel_call(value) or operator_name(value) == _IN_PLACE:
                yield str(value.args[0].name_hint), binding
            elif operator_name(value) == _EXTERN:
                yield str(value.args[0].global_symbol), binding


def _tensors(ty: tvm.ir.Type) -> list[relax.TensorType]:
    """The tensors of a type, which may be a tuple."""
    if isinstance(ty, relax.TupleType):
        return [tensor for field in ty.fields for tensor in _tensors(field)]
    return [ty] if isinstance(ty, relax.TensorType) else []


def _new(call: relax.Call, results: list[relax.TensorType]) -> list[relax.TensorType]:
    """The results that do not overwrite an operand."""
    if operator_name(call) != _IN_PLACE:
        return results
    places = map(int, call.attrs.inplace_indices)
    return [result for result, place in zip(results, places, strict=True) if place < 0]


def _type_text(ty: relax.TensorType) -> str:
    dims = "any shape"
    if isinstance(ty.shape, relax.ShapeExpr):
        dims = ", ".join(map(dim_text, ty.shape.values))
    return f"{ty.dtype or 'unknown'} ({dims})"


def _size(types: list[relax.TensorType]) -> int | None:
    """The size of tensors in bytes; None if that of one is unknown."""
    sizes = [static_bytes(ty) for ty in types]
    return None if None in sizes else sum(filter(None, sizes))


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
