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
"""Operators of a program that is not decomposed, whose converters compute what PyTorch does.

Trigger
    ``from_exported_program(run_ep_decomposition=False)`` of a program with ``std``,
    ``cross_entropy_loss``, ``layer_norm`` or ``group_norm`` without a weight, ``lerp``, ``where``
    with a number, ``grid_sampler`` and about 30 more.
Mechanism
    Decomposition rewrites these operators before the converters see them, so nothing compared the
    converters with PyTorch.
How to remove
    When TVM's converters of all operators pass OpInfo, delete this file.
"""

from collections.abc import Container

import torch
from torch.export import ExportedProgram

from .decompositions import calls_of, is_known
from .recurrent_shapes import RECURRENT

__all__ = ["WHOLE", "is_convertible"]

WHOLE = frozenset(
    (
        # Layers.
        *("linear.default", "bilinear.default", "matmul.default", "baddbmm.default"),
        *(f"conv{rank}d.{overload}" for rank in (1, 2, 3) for overload in ("default", "padding")),
        *("conv_transpose1d.default", "conv_transpose2d.input", "conv_transpose3d.input"),
        *("batch_norm.default", "instance_norm.default", "scaled_dot_product_attention.default"),
        *(f"{name}_pool{rank}d.default" for name in ("max", "adaptive_avg") for rank in (1, 2, 3)),
        *("avg_pool1d.default", "pixel_shuffle.default", *(str(o.__name__) for o in RECURRENT)),
        # Interpolations.
        *(f"upsample_{name}.vec" for name in ("nearest1d", "nearest2d", "nearest3d")),
        *(f"_upsample_nearest_exact{rank}d.vec" for rank in (1, 2, 3)),
        *(
            f"upsample_{name}.vec"
            for name in ("linear1d", "bilinear2d", "trilinear3d", "bicubic2d")
        ),
        *("_upsample_bilinear2d_aa.vec", "_upsample_bicubic2d_aa.vec"),
        # Activations.
        *("celu.default", "hardsigmoid.default", "hardswish.default", "log_softmax.int"),
        *("prelu.default", "relu6.default", "selu.default", "silu.default", "softmax.int"),
        *("softplus.default", "softshrink.default"),
        # Moves of elements.
        *("broadcast_to.default", "chunk.default", "contiguous.default", "detach.default"),
        *("expand_as.default", "flatten.using_ints", "narrow.default", "reshape.default"),
        *("reshape_as.default", "resolve_conj.default", "resolve_neg.default", "split.Tensor"),
        *("squeeze.default", "stack.default", "tile.default", "transpose.int"),
        *("unbind.int", "unflatten.int", "sym_size.int"),
        # Elementwise.
        *("masked_fill.Scalar", "rsub.Scalar", "rsub.Tensor", "max.other", "min.other"),
    )
)
"""Operators that PyTorch decomposes into core ATen operators, with converters that are right."""


def is_convertible(program: ExportedProgram, known: Container[str], whole: Container[str]) -> bool:
    """Whether each operator of a program has a converter that computes what PyTorch does.

    Parameters
    ----------
    program : torch.export.ExportedProgram
    known : container of str
        The names of the operators with a converter.
    whole : container of str
        The names of those that PyTorch decomposes, and whose converters are right.
    """
    core = torch.export.default_decompositions()
    return all(
        is_known(node, known)
        and (
            node.target.__name__ in whole
            or not isinstance(node.target, torch._ops.OpOverload)
            or not (node.target in core or _is_composite(node.target))
        )
        for node in calls_of(program.graph_module)
    )


def _is_composite(overload: torch._ops.OpOverload) -> bool:
    """Whether PyTorch computes an operator by others, or it writes to its operands."""
    composite = torch._C.DispatchKey.CompositeImplicitAutograd
    return overload._schema.is_mutable or overload.has_kernel_for_dispatch_key(composite)
