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
"""Import of traced PyTorch modules into Relax.

Upstream
    https://github.com/apache/tvm/pull/17752 and https://github.com/apache/tvm/issues/18703 (batch
    norm, in other code), https://github.com/apache/tvm/pull/17932 (nearest interpolation rounds),
    https://github.com/apache/tvm/pull/17325 (convolutions); no thread names the causes here.
Versions
    Seen in 0.27.0.post1.
Trigger
    BatchNorm2d in eval mode; an InstanceNorm of unbatched data or with running statistics; nearest
    interpolation, or linear by a scale factor that is not the ratio of the extents; ``output_size``
    of a transposed convolution; ``stride=...`` and other keyword arguments; a convolution
    with a ``padding_mode`` other than zeros.  ``corrections`` lists further triggers.
Symptom
    Wrong numbers or a wrong shape, silently.  The importer rejects transposed convolutions in 3-D,
    unbatched convolutions, ``padding="same"``, BatchNorm1d and 3d, Upsample, the padding modules,
    PReLU with a weight that requires a gradient, parameters in bfloat16 and float64, and slices of
    a shape.  ``alpha`` of ``add``, ``sub`` and ``rsub`` is ignored.
Mechanism
    ``relax.op.nn.batch_norm`` trains by default; the converter of InstanceNorm assumes that the
    channels are in axis 1, and ignores running statistics; nearest coordinates are rounded, not
    floored; the converters read neither keyword arguments, nor the arguments of a module call after
    the first, nor ``padding_mode``.
How to remove
    See ``corrections``.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import tvm
from torch import fx, nn
from tvm import relax
from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter
from tvm.relax.frontend.torch.fx_translator import TorchFXImporter
from tvm.sym import Analyzer

from ...fixes.torch_importer import (
    ACTIVATIONS,
    BATCH_NORM,
    CONV_TRANSPOSE,
    DTYPE,
    INSTANCE_NORM,
    INTERPOLATE,
    PAD,
    POOLING,
    PRELU,
    PROMOTION,
    TILE,
)
from ...support import switches
from ...support.serial import in_turn
from . import interpolation
from .activations import Activations
from .corrections import Converters, Corrections, static_extent
from .sampling import Sampling

__all__ = ["FXImporter", "from_fx"]


# TVM's padding mode for each of PyTorch's padding modules.
_PAD_MODES = {
    "ConstantPad": "constant",
    "ZeroPad": "constant",
    "ReflectionPad": "reflect",
    "ReplicationPad": "replicate",
    "CircularPad": "circular",
}


class _WithoutParameters:
    """A module that hides its parameters, because TVM's importer rejects some of their dtypes."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class FXImporter(Activations, Sampling, Corrections, TorchFXImporter):
    """TVM's importer with corrections; modules that TVM imports correctly become the same Relax."""

    def __init__(self, default_image_layout: str = "NCHW") -> None:
        super().__init__(default_image_layout)
        self._parameter_inputs: list[relax.Var] = []

    def corrected_converters(self) -> Mapping[str, Converters]:
        """Return the converters that replace or extend TVM's, by fix id."""
        ranks = (1, 2, 3)
        return {
            DTYPE: {
                nn.Linear: self._linear_module_of_dtype,
                "linear": self._linear_of_dtype,
                "matmul": self._matmul_of_dtype,
                "mm": self._matmul_of_dtype,
                "bmm": self._matmul_of_dtype,
                "addmm": self._addmm_of_dtype,
                "baddbmm": self._baddbmm_of_dtype,
            },
            CONV_TRANSPOSE: {
                **{getattr(nn, f"Conv{rank}d"): self._conv_module for rank in ranks},
                **{
                    getattr(nn, f"ConvTranspose{rank}d"): self._conv_transpose_module
                    for rank in ranks
                },
                **{f"conv{rank}d": self._conv_call for rank in ranks},
                **{f"conv_transpose{rank}d": self._conv_transpose_call for rank in ranks},
                "getitem": self._getitem_of_shape,
            },
            BATCH_NORM: {
                getattr(nn, f"BatchNorm{rank}d"): self._batch_norm_module for rank in ranks
            },
            INSTANCE_NORM: {
                getattr(nn, f"InstanceNorm{rank}d"): self._instance_norm_module for rank in ranks
            },
            INTERPOLATE: {
                "interpolate": self._interpolate_call,
                nn.Upsample: self._upsample_module,
                nn.UpsamplingNearest2d: self._upsample_module,
                nn.UpsamplingBilinear2d: self._upsample_module,
                "getitem": self._getitem_of_shape,
            },
            PAD: {
                getattr(nn, f"{name}{rank}d"): self._pad_module
                for name in _PAD_MODES
                for rank in ranks
            },
            TILE: {"tile": self._tile_call, "repeat": self._tile_call},
            PRELU: {nn.PReLU: self._prelu_module_of_dtype},
            POOLING: {**self.pooling_calls(), **self.pooling_modules()},
            ACTIVATIONS: {**self.activation_calls(), **self.activation_modules()},
            PROMOTION: {"add": self._add_call, "sub": self._sub_call, "rsub": self._rsub_call},
        }

    @staticmethod
    def _convert_torch_tensor_to_relax(tensor: torch.Tensor) -> relax.Expr:
        if tensor.dtype != torch.bfloat16:
            return BaseFXGraphImporter._convert_torch_tensor_to_relax(tensor)
        # NumPy has no bfloat16.
        return relax.const(_to_tvm(tensor))

    def _parameter(self, tensor: torch.Tensor | None) -> relax.Expr | None:
        """Convert a parameter or a buffer of a module."""
        if tensor is None:
            return None
        if tensor in self.params:
            return self.params[tensor]
        return self._convert_torch_tensor_to_relax(tensor)

    def _module_call(self, node: fx.Node) -> tuple[nn.Module, relax.Expr]:
        """Return the called module and its first argument."""
        [x] = self._arguments(node, input=None)[:1]
        return self.named_modules[node.target], x

    def _linear_module_of_dtype(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        return self._emit_linear(x, self._parameter(module.weight), self._parameter(module.bias))

    def _prelu_module_of_dtype(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        return self._emit_prelu(x, self._parameter(module.weight))

    def _alpha(self, node: fx.Node) -> float:
        """Return the factor of the second operand of ``add`` and ``sub``."""
        alpha: float = node.kwargs.get("alpha", 1)
        if alpha != 1:
            switches.note(PROMOTION)
        return alpha

    def _add_call(self, node: fx.Node) -> relax.Expr:
        alpha = self._alpha(node)
        return self._binary_op(lambda x, y: relax.op.add(x, self._scale(y, alpha)), operator.add)(
            node
        )

    def _sub_call(self, node: fx.Node) -> relax.Expr:
        alpha = self._alpha(node)
        return self._binary_op(
            lambda x, y: relax.op.subtract(x, self._scale(y, alpha)), operator.sub
        )(node)

    def _rsub_call(self, node: fx.Node) -> relax.Expr:
        alpha = self._alpha(node)
        return self._binary_op(
            lambda x, y: relax.op.subtract(y, self._scale(x, alpha)), lambda x, y: y - x
        )(node)

    def _getitem_of_shape(self, node: fx.Node) -> Any:
        container, index = self.retrieve_args(node)
        if isinstance(container, relax.ShapeExpr) and isinstance(index, slice):
            return list(container.values)[index]
        return self._getitem(node)

    def _conv_module(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        padding: Any = module.padding
        if module.padding_mode != "zeros":
            switches.note(CONV_TRANSPOSE)
            x = self._emit_pad(x, module._reversed_padding_repeated_twice, module.padding_mode)
            padding = 0
        return self._emit_conv(
            x,
            self._parameter(module.weight),
            self._parameter(module.bias),
            stride=module.stride,
            padding=padding,
            dilation=module.dilation,
            groups=module.groups,
        )

    def _conv_transpose_module(self, node: fx.Node) -> relax.Expr:
        module = self.named_modules[node.target]
        x, output_size = self._arguments(node, input=None, output_size=None)
        output_padding = module.output_padding
        if output_size is not None:
            switches.note(CONV_TRANSPOSE)
            output_padding = _output_padding(node.name, module, x, output_size)
        return self._emit_conv_transpose(
            x,
            self._parameter(module.weight),
            self._parameter(module.bias),
            stride=module.stride,
            padding=module.padding,
            output_padding=output_padding,
            groups=module.groups,
            dilation=module.dilation,
        )

    def _norm_parameters(self, module: nn.Module) -> list[relax.Expr | None]:
        """Return weight, bias, running mean and running variance of a norm."""
        tensors = (module.weight, module.bias, module.running_mean, module.running_var)
        return [self._parameter(tensor) for tensor in tensors]

    def _batch_norm_module(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        switches.note(BATCH_NORM)
        return self._emit_batch_norm(
            x, *self._norm_parameters(module), training=module.training, epsilon=module.eps
        )

    def _instance_norm_module(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        # The module's name has the spatial rank; batched data adds batch and channels.
        is_batched = x.ty.ndim == int(type(module).__name__[-2]) + 2
        if not is_batched:
            x = self.block_builder.emit(relax.op.expand_dims(x, 0))
        out = self._emit_instance_norm(
            x,
            *self._norm_parameters(module),
            use_input_stats=module.training or not module.track_running_stats,
            epsilon=module.eps,
        )
        return out if is_batched else self.block_builder.emit(relax.op.squeeze(out, [0]))

    def _pad_module(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        switches.note(PAD)
        mode = _PAD_MODES[type(module).__name__[: -len("1d")]]
        return self._emit_pad(x, module.padding, mode, getattr(module, "value", 0.0))

    def _emit_pad(
        self, x: relax.Expr, padding: Sequence[int], mode: str, value: float = 0.0
    ) -> relax.Expr:
        """Emit a pad; `padding` has both ends of the last axis, then of the axis before it, ..."""
        widths = [0] * (2 * x.ty.ndim - len(padding))
        for axis in reversed(range(0, len(padding), 2)):
            widths += padding[axis : axis + 2]
        if min(widths) < 0:
            raise tvm.error.OpAttributeInvalid(
                f"pad: attribute padding is {tuple(padding)}; expected no negative elements"
            )
        return self.block_builder.emit(relax.op.nn.pad(x, widths, mode, value))

    def _interpolate_call(self, node: fx.Node) -> relax.Expr:
        defaults = {
            "size": None,
            "scale_factor": None,
            "mode": "nearest",
            "align_corners": None,
            "recompute_scale_factor": None,
            "antialias": False,
        }
        x, *values = self._arguments(node, input=None, **defaults)
        return self._emit_interpolation(node, x, **dict(zip(defaults, values, strict=True)))

    def _upsample_module(self, node: fx.Node) -> relax.Expr:
        module, x = self._module_call(node)
        return self._emit_interpolation(
            node,
            x,
            size=module.size,
            scale_factor=module.scale_factor,
            mode=module.mode,
            align_corners=module.align_corners,
            recompute_scale_factor=module.recompute_scale_factor,
        )

    def _emit_interpolation(self, node: fx.Node, x: relax.Expr, **arguments: Any) -> relax.Expr:
        return interpolation.interpolate(
            self.block_builder,
            x,
            interpolation.Interpolation(node.name, **arguments),
            channels_last=self.default_image_layout.endswith("C"),
        )

    def create_input_vars(self, input_info: list[tuple[tuple[int], str]]) -> list[relax.Var]:
        """Return the inputs of ``main``, then the parameters that are inputs."""
        return super().create_input_vars(input_info) + self._parameter_inputs

    def from_fx(
        self,
        model: fx.GraphModule,
        input_info: list[tuple[tuple[int], str]],
        keep_params_as_input: bool,
        unwrap_unit_return_tuple: bool,
        no_bind_return_tuple: bool,
        custom_convert_map: dict[type[nn.Module] | str, Callable[..., relax.Expr]] | None = None,
    ) -> tvm.IRModule:
        """Import a traced module, like :func:`from_fx`."""
        options = (unwrap_unit_return_tuple, no_bind_return_tuple, custom_convert_map)
        parameters = sorted(model.named_parameters(), key=lambda item: item[0])
        tvm_accepts = all(p.dtype in (torch.float16, torch.float32) for _, p in parameters)
        if tvm_accepts or not switches.enabled(DTYPE):
            return super().from_fx(model, input_info, keep_params_as_input, *options)

        switches.note(DTYPE)
        for name, parameter in parameters:
            if keep_params_as_input:
                dtype = self._convert_data_type(parameter.dtype)
                variable = relax.Var(name, relax.TensorType(parameter.shape, dtype))
                self._parameter_inputs.append(variable)
                self.params[parameter] = variable
            else:
                self.params[parameter] = self._convert_torch_tensor_to_relax(parameter)
        mod = super().from_fx(_WithoutParameters(model), input_info, False, *options)
        if keep_params_as_input:
            tensors = [_to_tvm(parameter) for _, parameter in parameters]
            attributes = {"num_input": len(input_info), "params": tensors}
            mod["main"] = mod["main"].with_attrs(attributes)
        return mod


def _to_tvm(tensor: torch.Tensor) -> tvm.runtime.Tensor:
    """Copy `tensor` to a TVM tensor."""
    return tvm.runtime.from_dlpack(tensor.detach().cpu().contiguous().clone())


def _output_padding(origin: str, module: nn.Module, x: relax.Expr, output_size: Any) -> list[int]:
    """Return the output padding: ``output_size`` minus the output extents without padding.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If PyTorch rejects `output_size`, or the output padding is symbolic.
    """
    rank = len(module.kernel_size)
    if isinstance(output_size, relax.ShapeExpr):
        output_size = output_size.values
    sizes = list(output_size)
    invalid = f"{type(module).__name__} {origin!r}: attribute output_size is {sizes}; "
    if len(sizes) not in (rank, x.ty.ndim):
        raise tvm.error.OpAttributeInvalid(
            f"{invalid}expected {rank} elements, one per spatial axis, or {x.ty.ndim}"
        )
    extents = x.ty.shape.values[-rank:]
    simplify = Analyzer().simplify
    padding = []
    for axis, size in enumerate(sizes[-rank:]):
        stride = module.stride[axis]
        min_size = (
            (extents[axis] - 1) * stride
            - 2 * module.padding[axis]
            + module.dilation[axis] * (module.kernel_size[axis] - 1)
            + 1
        )
        extra = static_extent(simplify(size - min_size))
        if extra is None or not 0 <= extra < stride:
            ends = [simplify(end) for end in (min_size, min_size + stride - 1)]
            low, high = (end if static_extent(end) is None else int(end) for end in ends)
            raise tvm.error.OpAttributeInvalid(
                f"{invalid}expected {low} to {high} on spatial axis {axis}"
            )
        padding.append(extra)
    return padding


@in_turn
def from_fx(
    model: fx.GraphModule,
    input_info: list[tuple[tuple[int], str]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: dict[type[nn.Module] | str, Callable[..., relax.Expr]] | None = None,
    default_image_layout: str = "NCHW",
) -> tvm.IRModule:
    """Import a traced PyTorch module: ``tvm.relax.frontend.torch.from_fx`` with corrections.

    Convolutions, transposed convolutions, linear layers and matrix products are imported as by
    :func:`from_exported_program`, in every dtype of PyTorch's floating-point parameters.  A batch
    norm uses its running statistics unless it is in training mode.  If all fixes ``torch-*`` are
    disabled, this is TVM's function.

    Parameters
    ----------
    model : torch.fx.GraphModule
        The module, as ``torch.fx.symbolic_trace`` returns it.
    input_info : list of (shape, dtype)
        The shape and the dtype of each input; dims may be ``tvm.tirx.Var``.
    keep_params_as_input : bool
        Make the parameters inputs of ``main``, after the module's own and sorted by name, instead
        of constants; the function's attribute ``params`` holds their values.
    unwrap_unit_return_tuple : bool
        Return a single output itself, not a tuple of one.
    no_bind_return_tuple : bool
        Return a tuple of outputs without binding it to a variable.
    custom_convert_map : dict, optional
        Converters by the type of a module, called with the node, or by the name of a function,
        called with the node and the importer.  They take precedence over all others.
    default_image_layout : str
        The layout of the data of interpolations: ``"NCHW"`` or ``"NHWC"``.

    Returns
    -------
    tvm.IRModule
        The module as the function ``main``.

    Raises
    ------
    AssertionError
        If the module has functions or modules without a converter; the message names them.
    tvm.error.OpAttributeInvalid
        If an attribute of an operator can't be imported; the message names it and its value.
    """
    return FXImporter(default_image_layout).from_fx(
        model,
        input_info,
        keep_params_as_input,
        unwrap_unit_return_tuple,
        no_bind_return_tuple,
        custom_convert_map,
    )
