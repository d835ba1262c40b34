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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    An operator without a converter that PyTorch does not decompose by default: ``fmax``,
    ``var_mean``, ``logcumsumexp``, ``copysign``.  Normalizations whose statistics the program
    reads: batch norm in training mode, ``native_layer_norm``.  ``adaptive_max_pool1d`` and
    ``adaptive_max_pool2d`` of extents that are symbolic, or not multiples of the output extents.
Symptom
    ``Unsupported function types [...]``, which names neither node nor location.  Silently, the
    statistics are the normalized data or zeros, and poolings are correct only for multiples.
Mechanism
    The importer converts fewer operators than PyTorch's core set has, and
    ``default_decompositions`` has fewer decompositions than PyTorch.  The converters of
    normalizations return one tensor, which the importer uses for all results.
How to remove
    See ``corrections``.
"""

import functools
import operator
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import torch
import tvm
from torch import fx
from torch._decomp import decomposition_table
from torch.export import ExportedProgram
from tvm import relax

from ...fixes.torch_importer import DECOMPOSITIONS as FIX_ID
from ...support import switches
from .corrections import Corrections

__all__ = ["Decompositions", "decompose_further", "operators_of"]

Convert = Callable[[fx.Node], relax.Expr]

# The converters of these return only the normalized data, not the statistics.
_NORMS = (
    *("native_batch_norm.default", "native_group_norm.default", "native_layer_norm.default"),
    *("_native_batch_norm_legit.default", "_native_batch_norm_legit.no_stats"),
    *("_native_batch_norm_legit_functional.default", "_batch_norm_with_update.default"),
    *("_batch_norm_with_update_functional.default", "_batch_norm_no_update.default"),
    *("_native_batch_norm_legit_no_training.default", "_fused_rms_norm.default"),
)

# The converters of these return the maxima, and zeros as their indices.
_WITHOUT_INDICES = (
    torch.ops.aten.max_pool2d_with_indices.default,
    torch.ops.aten.max_pool3d_with_indices.default,
)

# Errors of these types, but not of derived types, come without the name of the node.
_UNNAMED = (
    *(AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(NotImplementedError, ZeroDivisionError, tvm.error.InternalError),
)

# Decompositions may contain operators that need decomposition, too.
_MAX_ROUNDS = 5


def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(range(x.ndim)) if not dim else dim
    correction = 1 if correction is None else correction
    variance = torch.var(x, axes, correction=correction, keepdim=keepdim)
    return variance, torch.mean(x, axes, keepdim)


def _unless_nan(
    choose: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def rule(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        chosen = choose(x, y)
        if not chosen.is_floating_point():
            return chosen
        x, y = x.to(chosen.dtype), y.to(chosen.dtype)
        return torch.where(torch.isnan(x), y, torch.where(torch.isnan(y), x, chosen))

    return rule


def _exp2(x: torch.Tensor) -> torch.Tensor:
    return torch.pow(2.0, x)


def _unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    if x.ndim == 0:
        return x.reshape(1)[:size]
    axis = dimension % x.ndim
    count = (x.shape[axis] - size) // step + 1
    starts = torch.arange(count, device=x.device).reshape(-1, 1) * step
    positions = starts + torch.arange(size, device=x.device)
    windows = torch.index_select(x, axis, positions.reshape(-1))
    windows = windows.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    return torch.movedim(windows, axis + 1, -1)


def _diagonal_scatter(
    x: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    rows, columns = x.shape[dim1], x.shape[dim2]
    shape = [1] * x.ndim
    shape[dim1], shape[dim2] = rows, columns
    # Element i of the diagonal is in row i, or in column i if the diagonal begins below row 0.
    begins = max(-offset, 0)
    row = torch.arange(rows, device=x.device)
    column = torch.arange(columns, device=x.device)
    mask = (row.reshape(-1, 1) + offset) == column
    if dim1 % x.ndim > dim2 % x.ndim:
        mask = mask.t()
    position = (row - begins).clamp(0, max(src.shape[-1] - 1, 0))
    rows_of_src = torch.index_select(src, -1, position).unsqueeze(-1)
    spread = torch.movedim(rows_of_src, (-2, -1), (dim1, dim2))
    return torch.where(mask.reshape(shape), spread, x)


def _layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    axes = list(range(x.ndim - len(normalized_shape), x.ndim))
    wide = x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x
    mean = wide.mean(axes, keepdim=True)
    scale = torch.rsqrt((wide - mean).square().mean(axes, keepdim=True) + eps)
    out = (wide - mean) * scale
    out = out if weight is None else out * weight
    out = out if bias is None else out + bias
    # With float32 parameters, the statistics of 16-bit data are float32.
    kept = x.dtype if weight is None else weight.dtype
    return out.to(x.dtype), mean.to(kept), scale.to(kept)


def _window_maxima(x: torch.Tensor, axis: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the maxima of `count` windows that cover an axis, and their indices on the axis."""
    extent, axis = x.shape[axis], axis % x.ndim
    windows = torch.arange(count, device=x.device).reshape(-1, 1)
    begins, ends = windows * extent // count, ((windows + 1) * extent + count - 1) // count
    steps = torch.arange((extent + count - 1) // count + 1, device=x.device)
    # A window that is shorter than the longest one repeats its last element.
    positions = torch.minimum(begins + steps, ends - 1)
    x = torch.index_select(x, axis, positions.reshape(-1))
    x = x.reshape(*x.shape[:axis], count, steps.shape[0], *x.shape[axis + 1 :])
    best = x.argmax(axis + 1)
    begins = begins.reshape(count, *[1] * (x.ndim - axis - 2))
    return x.amax(axis + 1), begins + best


def _adaptive_max_pool2d(x: torch.Tensor, size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
    # PyTorch's rule assumes that a symbolic extent is always a multiple if the example's is.
    pairs = list(zip(x.shape[-2:], size, strict=True))
    if all(isinstance(extent, int) and extent % count == 0 for extent, count in pairs):
        window = [extent // count for extent, count in pairs]
        return torch.ops.aten.max_pool2d_with_indices(x, window, window)
    in_rows, columns = _window_maxima(x, -1, size[1])
    values, rows = _window_maxima(in_rows, -2, size[0])
    return values, rows * x.shape[-1] + torch.gather(columns, -2, rows)


_OWN: dict[torch._ops.OperatorBase, Callable[..., Any]] = {
    torch.ops.aten.var_mean.correction: _var_mean,
    torch.ops.aten.fmax.default: _unless_nan(torch.maximum),
    torch.ops.aten.fmin.default: _unless_nan(torch.minimum),
    torch.ops.aten.exp2.default: _exp2,
    torch.ops.aten.native_layer_norm.default: _layer_norm,
    torch.ops.aten.unfold.default: _unfold,
    torch.ops.aten.diagonal_scatter.default: _diagonal_scatter,
    torch.ops.aten.adaptive_max_pool2d.default: _adaptive_max_pool2d,
}


@functools.cache
def _rules() -> dict[torch._ops.OperatorBase, Callable[..., Any]]:
    """Return the decompositions into ATen operators.

    Most of PyTorch's others end in operators of ``prims``, which have no converters.
    """
    into_aten = {
        overload: rule
        for overload, rule in decomposition_table.items()
        if rule.__module__ == "torch._decomp.decompositions"
    }
    return into_aten | _OWN


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
            node.target: _rules()[node.target]
            for node in _calls(program.graph_module)
            if node.target in _rules()
            and (node.target.__name__ not in known or _has_read_statistics(node))
        }
        if not applicable:
            break
        switches.note(FIX_ID)
        program = program.run_decompositions({**core, **applicable})
    return program


def _operator_name(target: Any) -> str:
    """Return the name of a PyTorch operator, such as ``aten.add.Tensor``, or of a function."""
    return str(target) if isinstance(target, torch._ops.OperatorBase) else str(target.__name__)


def _calls(module: torch.nn.Module) -> Iterable[fx.Node]:
    """Yield the calls of operators in a program and in its branches."""
    for part in module.modules():
        if isinstance(part, fx.GraphModule):
            yield from (node for node in part.graph.nodes if node.op == "call_function")


def operators_of(program: ExportedProgram) -> set[Any]:
    """Return the operators and functions that a program and its branches call."""
    return {node.target for node in _calls(program.graph_module)}


def _has_read_statistics(node: fx.Node) -> bool:
    """Whether the program reads results of a normalization besides the normalized data."""
    if node.target.__name__ not in _NORMS:
        return False
    return any(
        user.target is not operator.getitem or (user.args[1] != 0 and user.users)
        for user in node.users
    )


class Decompositions(Corrections):
    """Errors about operators, and results of operators, without a converter."""

    def naming_converter(self, convert: Convert) -> Convert:
        """Wrap `convert` so that internal errors name the node.

        Raises
        ------
        tvm.error.OpNotImplemented
            Instead of the internal error.
        """

        def convert_named(node: fx.Node) -> relax.Expr:
            try:
                return convert(node)
            except Exception as error:
                # The exact type counts: TVM's errors for users are of classes derived from these.
                if type(error) not in _UNNAMED or repr(node.name) in str(error):
                    raise
                raise tvm.error.OpNotImplemented(
                    f"cannot import {node.target} at node {node.name!r}: "
                    f"{type(error).__name__}: {error}"
                ) from error

        return convert_named

    def counted_results(self, stock: Convert) -> Convert:
        """Wrap the converter of ``getitem`` to reject results that no converter computes."""

        def convert(node: fx.Node) -> relax.Expr:
            source, index = node.args
            has_results = isinstance(source.meta.get("val"), tuple | list)
            # A converter that returns a single tensor computes only the first result.
            only_first = isinstance(getattr(self.env[source], "ty", None), relax.TensorType)
            only_first |= source.target in _WITHOUT_INDICES
            if has_results and index != 0 and only_first and node.users:
                raise tvm.error.OpNotImplemented(
                    f"{source.target} {source.name!r}: the program reads result {index}; "
                    "expected only result 0"
                )
            return stock(node)

        return convert

    def _check_unsupported_func_type(self, nodes: list[fx.Node]) -> None:
        """Check that each operator has a converter.

        Raises
        ------
        tvm.error.OpNotImplemented
            If an operator has none; the message names each such operator and its first node.
        """
        if not switches.enabled(FIX_ID):
            super()._check_unsupported_func_type(nodes)
            return
        first: dict[Any, str] = {}
        for node in nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                first.setdefault(node.target, node.name)
        # `tvm_fixes.source` reads this variable by name, here and in TVM's function.
        missing_func_types = [target.__name__ for target in first]
        if missing_func_types:
            listed = ", ".join(
                f"{_operator_name(target)} at node {name!r}" for target, name in first.items()
            )
            raise tvm.error.OpNotImplemented(f"unsupported operator {listed}")
