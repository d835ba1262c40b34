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
"""DispatchToCudnn: convolutions by cuDNN, for a target with that library."""

from collections import defaultdict

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from ..analysis import bindings, operator_calls, results
from ..ir import nn_call, operator_name, variables
from ..layouts import SPATIAL_AXES, is_depthwise
from ..libraries import call_library, computes, uses
from ..rewrite import rewrite_functions

_RANKS = {
    f"relax.nn.conv{rank}d{suffix}": (rank, bool(suffix))
    for rank in SPATIAL_AXES
    for suffix in ("", "_transpose")
}


def DispatchToCudnn() -> tvm.transform.Pass:
    """Replace convolutions, also transposed ones, by calls of cuDNN.

    Before, for a target whose ``libs`` contain ``cudnn``::

        y = R.nn.conv2d(x, w, padding=[1, 1, 1, 1])

    and after, where the options are: not transposed, channels first, one group, and padding,
    strides and dilations of each axis::

        options = R.shape([0, 0, 1, 1, 1, 1, 1, 1, 1])
        lv = R.call_dps_packed("tvm_fixes_cudnn_convolution", (x, w, options), ...)
        y = lv[0]

    The second result is the workspace.  A convolution of 16-bit data whose result is only rounded,
    or added to a bias and rounded, is rounded by cuDNN too. The pass skips a convolution whose two
    paddings of an axis differ, whose channels are in blocks, or whose dtype is not float32, float16
    or bfloat16. A weight is permuted to cuDNN's layout, and if only one of data and result has its
    channels last, the other is permuted.

    A depthwise convolution stays, because TVM's kernel is faster; its weight gets the channels last
    if its data has them last.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators.  For another target, it changes nothing.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not uses("cudnn"):
            return mod
        if all(str(binding.value.op.name) not in _RANKS for _, binding in operator_calls(mod)):
            return mod
        dispatching = _Dispatching(mod)
        return rewrite_functions(dispatching, mod, dispatching.enter)

    return tvm.transform.module_pass(run, opt_level=0, name="DispatchToCudnn")


@mutator
class _Dispatching(PyExprMutator):
    readers: dict[relax.Var, list[relax.Binding]]
    """The bindings that read a variable."""

    results: set[relax.Var]

    def enter(self, function: relax.Function) -> None:
        """Prepare to visit `function`."""
        self.readers = defaultdict(list)
        for binding in bindings(function):
            for var in variables(binding.value):
                self.readers[var].append(binding)
        self.results = set(results(function))

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        self.var = binding.var
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        dispatched = self._dispatched(call)
        return super().visit_call_(call) if dispatched is None else dispatched

    def _dispatched(self, call: relax.Call) -> relax.Expr | None:
        rank, is_transposed = _RANKS.get(operator_name(call), (0, False))
        if not rank or not computes(call):
            return None
        dtype = call.args[0].ty.dtype
        if call.ty.dtype != dtype and not self._is_rounded(self.var, dtype):
            return None
        attrs, axes = call.attrs, SPATIAL_AXES[rank]
        data_layout = str(attrs.data_layout)
        # An empty layout of the output stands for that of the data.
        out_layout = str(attrs.out_layout) or data_layout
        padding = [int(pad) for pad in attrs.padding]
        is_plain = {data_layout, out_layout} <= {f"NC{axes}", f"N{axes}C"}
        if not is_plain or padding[:rank] != padding[rank:]:
            return None
        if data_layout == out_layout and not is_transposed and is_depthwise(call):
            return self._with_last_channels(call) if data_layout[-1] == "C" else None
        has_channels_last = "C" in (data_layout[-1], out_layout[-1])
        layout = f"N{axes}C" if has_channels_last else f"NC{axes}"
        first, second = "IO" if is_transposed else "OI"
        of_weight = f"{first}{axes}{second}" if has_channels_last else f"{first}{second}{axes}"
        data, weight = map(self.visit_expr, call.args)
        data = self._in_layout(data, data_layout, layout)
        weight = self._in_layout(weight, str(attrs.kernel_layout), of_weight)
        options = [int(is_transposed), int(has_channels_last), int(attrs.groups)]
        options += [*padding[:rank], *map(int, attrs.strides), *map(int, attrs.dilation)]
        order = [out_layout.index(axis) for axis in layout]
        ty = relax.TensorType([call.ty.shape[axis] for axis in order], dtype)
        out = call_library(self.builder_, "cudnn_convolution", [data, weight], options, ty)
        out = self._in_layout(out, layout, out_layout)
        if call.ty.dtype == dtype:
            return out
        return relax.op.astype(self.builder_.emit(out), call.ty.dtype)

    def _with_last_channels(self, call: relax.Call) -> relax.Call:
        """A depthwise convolution whose weight has its channels last, like the data."""
        axes = str(call.attrs.data_layout)[1:-1]
        data, weight = map(self.visit_expr, call.args)
        weight = self._in_layout(weight, str(call.attrs.kernel_layout), f"{axes}IO")
        return nn_call(call, data, self.builder_.emit(weight), kernel_layout=f"{axes}IO")

    def _is_rounded(self, var: relax.Var, dtype: str) -> bool:
        """Whether all readers round a value to `dtype`, with or without the addition of a bias.

        Then the value may also be rounded before the addition.
        """
        if var in self.results or not self.readers[var]:
            return False
        return all(
            (reader.var.ty.dtype == dtype and operator_name(reader.value) == "relax.astype")
            or (operator_name(reader.value) == "relax.add" and self._is_rounded(reader.var, dtype))
            for reader in self.readers[var]
        )

    def _in_layout(self, tensor: relax.Expr, layout: str, wanted: str) -> relax.Expr:
        if layout == wanted:
            return tensor
        order = [layout.index(axis) for axis in wanted]
        return relax.op.permute_dims(self.builder_.emit(tensor), order)
