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
"""PyTorch programs as Relax, in the dtypes that PyTorch computes in.

Upstream
    https://github.com/apache/tvm/pull/18328 met the error; no thread names the cause.
Versions
    Seen in 0.27.0.post1.
Trigger
    A convolution, transposed convolution, linear layer or matrix product of another dtype than
    float32.
Symptom
    With a bias, ``TypeError: Binary operators must have the same datatype``. Without one, a float32
    result, silently: float64 loses half its digits, integers become floats. ``addmm(alpha=0)`` has
    the shape of its first operand (with ``beta=0`` too, none at all), and so has ``baddbmm`` in a
    program that is not decomposed; there, unbatched convolutions are refused.
Mechanism
    The converters pass ``out_dtype="float32"`` whatever the dtype of their operands is.
How to remove
    When TVM's ``from_exported_program`` passes the tests of this module, use it; delete this file,
    its test and the fix id ``torch-dtype``.
"""

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
import tvm
from torch import fx
from torch.export import ExportedProgram
from tvm import relax
from tvm.relax.frontend import torch as tvm_torch
from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter
from tvm.relax.frontend.torch.exported_program_translator import (
    ExportedProgramImporter as TVMExportedProgramImporter,
)

from .. import switches

__all__ = ["ExportedProgramImporter", "accumulation_dtype", "from_exported_program"]

FIX_ID = "torch-dtype"


def accumulation_dtype(dtype: str) -> str:
    """The dtype in which PyTorch sums the products of a convolution or a matrix product.

    Of 16-bit floating-point operands PyTorch computes products, sum, scaling and bias in float32
    and rounds once, at the end.  (On CPUs without 16-bit instructions a few of its float16
    kernels, transposed convolutions among them, round more often; once is closer to the truth.)

    Parameters
    ----------
    dtype : str
        The dtype of the operands.

    Returns
    -------
    str
        ``"float32"`` for ``"float16"`` and ``"bfloat16"``, else `dtype`.
    """
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _dtype(value: relax.Expr) -> str:
    return str(value.ty.dtype.dtype)


def _dtypes(operand: relax.Expr) -> tuple[str, str]:
    """The dtypes of an operator's result and of its sum, by that of its first operand."""
    dtype = _dtype(operand)
    if dtype != "float32":
        switches.note(FIX_ID)
    return dtype, accumulation_dtype(dtype)


def _convolution_method(
    op: Callable[..., relax.Expr], data_layout: str, kernel_layout: str
) -> Callable[..., relax.Var]:
    """The importer's method for `op`: any dtype, batched or not, with or without bias."""

    def convert(
        self: "ExportedProgramImporter",
        x: relax.Expr,
        weight: relax.Expr,
        bias: relax.Expr | None,
        **attributes: Any,
    ) -> relax.Var:
        rank = len(data_layout)
        dtype, sum_dtype = _dtypes(x)
        unbatched = x.ty.ndim == rank - 1
        if unbatched:
            switches.note(FIX_ID)
            x = self.block_builder.emit(relax.op.expand_dims(x, 0))
        out = self.block_builder.emit(
            op(
                x,
                weight,
                **attributes,
                data_layout=data_layout,
                kernel_layout=kernel_layout,
                out_dtype=sum_dtype,
            )
        )
        if not self._is_no_bias(bias):
            bias = relax.op.reshape(self._astype(bias, sum_dtype), (1, -1) + (1,) * (rank - 2))
            out = self.block_builder.emit(relax.op.add(out, bias))
        if unbatched:
            out = self.block_builder.emit(relax.op.squeeze(out, [0]))
        return self._astype(out, dtype)

    return convert


class ExportedProgramImporter(TVMExportedProgramImporter):
    """TVM's importer with PyTorch's dtypes; of a float32 program it makes the same Relax.

    It is a subclass, not a ``custom_convert_map`` for TVM's importer, because TVM calls the
    converters of such a map with other arguments in a branch of ``torch.cond``, where they fail.
    """

    def create_convert_map(self) -> dict[str, Callable[[fx.Node], relax.Var]]:
        """TVM's converters, with those that are no methods of its importer replaced."""
        return super().create_convert_map() | {
            "matmul.default": self._matmul,
            "mm.default": self._matmul,
            "bmm.default": self._matmul,
            "_sparse_mm.default": self._matmul,
            "_sparse_addmm.default": self._addmm,
        }

    def _astype(self, value: relax.Expr, dtype: str) -> relax.Expr:
        if _dtype(value) == dtype:
            return value
        return self.block_builder.emit(relax.op.astype(value, dtype))

    def _scale(self, value: relax.Expr, factor: float) -> relax.Expr:
        if factor == 1:
            return value
        return self.block_builder.emit(relax.op.multiply(value, relax.const(factor, _dtype(value))))

    _conv1d_impl = _convolution_method(relax.op.nn.conv1d, "NCW", "OIW")
    _conv2d_impl = _convolution_method(relax.op.nn.conv2d, "NCHW", "OIHW")
    _conv3d_impl = _convolution_method(relax.op.nn.conv3d, "NCDHW", "OIDHW")
    _conv_transpose1d_impl = _convolution_method(relax.op.nn.conv1d_transpose, "NCW", "IOW")
    _conv_transpose2d_impl = _convolution_method(relax.op.nn.conv2d_transpose, "NCHW", "IOHW")

    def _linear(self, node: fx.Node) -> relax.Var:
        x, weight, bias = (*self.retrieve_args(node), None)[:3]
        dtype, sum_dtype = _dtypes(x)
        if bias is not None:
            bias = self._astype(bias, sum_dtype)
        out = self.block_builder.emit(relax.op.linear(x, weight, bias, sum_dtype))
        return self._astype(out, dtype)

    def _matmul(self, node: fx.Node) -> relax.Var:
        lhs, rhs = self.retrieve_args(node)
        dtype, sum_dtype = _dtypes(lhs)
        out = self.block_builder.emit(relax.op.matmul(lhs, rhs, sum_dtype))
        return self._astype(out, dtype)

    def _addmm(self, node: fx.Node) -> relax.Var:
        return self._add_scaled_matmul(node, super()._addmm)

    def _baddbmm(self, node: fx.Node) -> relax.Var:
        return self._add_scaled_matmul(node, super()._baddbmm)

    def _add_scaled_matmul(
        self, node: fx.Node, float32_converter: Callable[[fx.Node], relax.Var]
    ) -> relax.Var:
        """``beta * addend + alpha * (lhs @ rhs)``, without the term whose factor is 0.

        PyTorch documents it for beta: then NaN and infinity in `addend` do not propagate.
        """
        addend, lhs, rhs = self.retrieve_args(node)
        alpha: Any = node.kwargs.get("alpha", 1)
        beta: Any = node.kwargs.get("beta", 1)
        dtype, sum_dtype = _dtypes(lhs)
        if dtype == "float32" and alpha != 0:
            return float32_converter(node)

        switches.note(FIX_ID)
        emit = self.block_builder.emit
        product = self.block_builder.normalize(relax.op.matmul(lhs, rhs, sum_dtype))
        if beta == 0:
            addend = relax.const(0, sum_dtype)
        else:
            addend = self._scale(self._astype(addend, sum_dtype), beta)
        if alpha == 0:
            out = emit(relax.op.broadcast_to(addend, product.ty.shape))
        else:
            out = self._scale(emit(product), alpha)
            if beta != 0:
                out = emit(relax.op.add(addend, out))
        return self._astype(out, dtype)


def _has_sparse_tensor(program: ExportedProgram) -> bool:
    values = chain(program.state_dict.values(), program.constants.values())
    return any(isinstance(v, torch.Tensor) and v.layout != torch.strided for v in values)


def from_exported_program(
    exported_program: ExportedProgram,
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: (
        dict[str, Callable[[fx.Node, BaseFXGraphImporter], relax.Var]] | None
    ) = None,
    run_ep_decomposition: bool = True,
) -> tvm.IRModule:
    """Import a PyTorch program; ``tvm.relax.frontend.torch.from_exported_program``, corrected.

    Convolutions, transposed convolutions (1-D and 2-D), ``linear``, ``mm``, ``bmm``, ``matmul``,
    ``addmm`` and ``baddbmm`` keep the dtype of their operands; float16 and bfloat16 are summed in
    float32 and rounded once (:func:`accumulation_dtype`).  While the fix ``torch-dtype`` is
    switched off, this is TVM's function.

    Parameters
    ----------
    exported_program : torch.export.ExportedProgram
        The program, as ``torch.export.export`` returns it.
    keep_params_as_input : bool
        Make the parameters inputs of ``main``, behind the program's own, instead of constants;
        their values are then the function's attribute ``params``.
    unwrap_unit_return_tuple : bool
        Return a single output itself, not a tuple of one.
    no_bind_return_tuple : bool
        Return a tuple of outputs without binding it to a variable.
    custom_convert_map : dict of str to callable, optional
        Converters by the name of the ATen overload (``"linear.default"``), called with the node
        and the importer.  They go before all others.
    run_ep_decomposition : bool
        Decompose the program into core ATen operators first (programs with sparse tensors are
        left as they are).

    Returns
    -------
    tvm.IRModule
        The program as the function ``main``.

    Raises
    ------
    AssertionError
        If the program has operators without a converter; the message names them.
    """
    if not switches.enabled(FIX_ID):
        return tvm_torch.from_exported_program(
            exported_program,
            keep_params_as_input=keep_params_as_input,
            unwrap_unit_return_tuple=unwrap_unit_return_tuple,
            no_bind_return_tuple=no_bind_return_tuple,
            custom_convert_map=custom_convert_map,
            run_ep_decomposition=run_ep_decomposition,
        )
    if run_ep_decomposition and not _has_sparse_tensor(exported_program):
        exported_program = exported_program.run_decompositions()
    return ExportedProgramImporter().from_exported_program(
        exported_program,
        keep_params_as_input=keep_params_as_input,
        unwrap_unit_return_tuple=unwrap_unit_return_tuple,
        no_bind_return_tuple=no_bind_return_tuple,
        custom_convert_map=custom_convert_map,
    )
