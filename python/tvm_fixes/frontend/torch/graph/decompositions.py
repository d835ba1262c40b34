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
"""Decomposition of PyTorch operators before the importer converts them.

Trigger
    An operator without a converter that PyTorch does not decompose by default: ``fmax``,
    ``var_mean``, ``logcumsumexp``, ``copysign``, factorizations of matrices, searches in sorted
    tensors, Fourier transforms and other complex numbers.  Normalizations whose statistics the
    program reads: batch norm in training mode, ``native_layer_norm``.  ``adaptive_max_pool1d`` and
    ``adaptive_max_pool2d`` of extents that are symbolic, or not multiples of the output extents.
    ``as_strided`` of a permuted tensor.  ``median`` of data with a NaN, or on a GPU.
Mechanism
    The importer converts fewer operators than PyTorch's core set has, and
    ``default_decompositions`` has fewer decompositions than PyTorch.  The converters of
    normalizations return one tensor, which the importer uses for all results.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import torch
from torch import _prims as prims
from torch import fx
from torch._decomp import decomposition_table
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import statically_known_true

from ....fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ....support import switches
from ..rules import RULES
from ..values.operands import value_of

__all__ = [
    "WITHOUT_INDICES",
    "calls_of",
    "decompose_further",
    "further_rules",
    "has_rule",
    "is_known",
    "name_of",
    "operators_of",
]

# The converters of these return only the normalized data, not the statistics.
_NORMS = (
    *("native_batch_norm.default", "native_group_norm.default", "native_layer_norm.default"),
    *("_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats"),
    *("_native_batch_norm_legit_functional.default", "_batch_norm_with_update.default"),
    *("_batch_norm_with_update_functional.default", "_batch_norm_no_update.default"),
    *("_native_batch_norm_legit_no_training.default", "_fused_rms_norm.default"),
)

# The converters of these return the maxima, and zeros as their indices.
WITHOUT_INDICES = (
    torch.ops.aten.max_pool2d_with_indices.default,
    torch.ops.aten.max_pool3d_with_indices.default,
)

# The converters of these ignore NaN, and sort with a function that GPUs have not.
_MEDIANS = torch.ops.aten.median.default, torch.ops.aten.median.dim

_PRIMS: dict[str, Any] = {
    name: overload
    for name in prims.__all__
    if hasattr(
        overload := getattr(getattr(torch.ops.prims, name, None), "default", None), "impl_aten"
    )
}

# Decompositions may contain operators that need decomposition, too.
_MAX_ROUNDS = 5


@functools.cache
def further_rules() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Return the decompositions into ATen operators.

    Many of PyTorch's references end in operators of ``prims``; these become ATen operators again.
    """
    functions = {overload.impl_aten.__name__ for overload in _PRIMS.values()}
    # A reference that is one operator of ``prims`` would become itself.
    circular = {*_PRIMS, *functions, *(name.removeprefix("special_") for name in functions)}
    into_aten = {
        overload: rule
        for overload, rule in decomposition_table.items()
        if not (rule.__module__.startswith("torch._refs") and _packet_name(overload) in circular)
    }
    return into_aten | {prim: prim.impl_aten for prim in _PRIMS.values()} | RULES


def has_rule(overload: torch._ops.OpOverload) -> bool:
    """Whether an operator has a decomposition into operators with converters."""
    return overload in further_rules()


def _packet_name(overload: torch._ops.OperatorBase) -> str:
    """Return the name of an operator without its overload."""
    return overload.name().partition("::")[2].partition(".")[0]


def decompose_further(
    program: ExportedProgram, known: Container[str], core: Mapping[Any, Callable[..., Any]]
) -> ExportedProgram:
    """Decompose the operators of `program` whose names are not `known` and that have a rule.

    Parameters
    ----------
    program : torch.export.ExportedProgram
        A program in core ATen operators.
    known : container of str
        The names of the overloads that have a converter.
    core : mapping of overloads to callables
        The decompositions already applied to `program`; they also apply to the operators of new
        decompositions.

    Returns
    -------
    torch.export.ExportedProgram
        The decomposed program; `program` itself if there is nothing to decompose.
    """
    for _ in range(_MAX_ROUNDS):
        applicable = {
            node.target: rule
            for node in calls_of(program.graph_module)
            if (rule := further_rules().get(node.target)) is not None and not is_known(node, known)
        }
        if not applicable:
            break
        switches.note(FIX_ID)
        program = program.run_decompositions({**core, **applicable})
    return program


def is_known(node: fx.Node, known: Container[str]) -> bool:
    """Whether the converter for the name of an operator computes all results that are read."""
    # An operator of prims has the name of one of ATen, but other arguments.
    is_aten = node.target not in _PRIMS.values()
    needs_rule = _has_read_statistics, _has_strides, _has_symbolic_ones
    is_covered = node.target not in _MEDIANS and not any(needs(node) for needs in needs_rule)
    return is_aten and node.target.__name__ in known and is_covered


def name_of(target: Any) -> str:
    """Return the name of a PyTorch operator, such as ``aten.add.Tensor``, or of a function."""
    return str(target) if isinstance(target, torch._ops.OperatorBase) else str(target.__name__)


def calls_of(module: torch.nn.Module) -> Iterable[fx.Node]:
    """Yield the calls of operators in a program and in its branches."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            yield from (node for node in part.graph.nodes if node.op == "call_function")


def operators_of(program: ExportedProgram) -> set[Any]:
    """Return the operators and functions that a program and its branches call."""
    return {node.target for node in calls_of(program.graph_module)}


def _has_read_statistics(node: fx.Node) -> bool:
    """Whether the program reads results of a norm or a pooling besides the first one."""
    if node.target.__name__ not in _NORMS and node.target not in WITHOUT_INDICES:
        return False
    return any(
        user.target is not operator.getitem or (user.args[1] != 0 and user.users)
        for user in node.users
    )


def _has_strides(node: fx.Node) -> bool:
    """Whether the result is not all of the operand in order, the only view that TVM reads."""
    if node.target is not torch.ops.aten.as_strided.default:
        return False
    values = [part for values in node.args[1:3] for part in values]
    view, whole = node.meta["val"], value_of(node.args[0])
    if not any(isinstance(value, fx.Node) for value in values):
        return True
    steps = [*itertools.accumulate(reversed(view.shape), operator.mul, initial=1)]
    pairs = [(view.numel(), whole.numel()), *zip(reversed(view.stride()), steps, strict=False)]
    return not all(statically_known_true(a == b) for a, b in pairs)


def _has_symbolic_ones(node: fx.Node) -> bool:
    """Whether a layer norm needs a weight of ones, or a bias of zeros, of symbolic extents."""
    if node.target is not torch.ops.aten.native_layer_norm.default:
        return False
    _, extents, weight, bias, _ = node.args
    is_symbolic = any(isinstance(extent, fx.Node) for extent in extents)
    return is_symbolic and (weight is None or bias is None)
