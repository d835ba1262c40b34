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
"""DecomposeConvTranspose: on a GPU, compute a transposed convolution as a convolution."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import relax, tirx
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.sym import Analyzer

from ...tirx.util import count_of, is_one
from ..analysis import operator_calls, reads
from ..ir import operator_name, relax_functions
from ..layouts import SPATIAL_AXES, Layout
from ..libraries import computes
from ..phases import PhasedAxis, interleaved

_AXES = {f"relax.nn.conv{rank}d_transpose": axes for rank, axes in SPATIAL_AXES.items()}
_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}

# With fewer results per channel, one thread per output uses more of a large GPU.
_MIN_RESULTS = 32


def DecomposeConvTranspose() -> tvm.transform.Pass:
    """Write a transposed convolution as a convolution whose channels are all phases.

    Before, for a GPU, with 16 output channels and a kernel of 4 x 4::

        y = R.nn.conv2d_transpose(x, w, strides=[2, 2], padding=[1, 1, 1, 1])

    and after, where ``w1`` holds the kernels of the 2 x 2 phases, rearranged from ``w``::

        phases = R.nn.conv2d(x, w1, padding=[1, 1, 1, 1])
        y1 = R.reshape(phases, [n, 2, 2, 16, h + 1, w + 1])
        y2 = R.permute_dims(y1, [0, 3, 4, 1, 5, 2])
        y3 = R.reshape(y2, [n, 16, 2 * (h + 1), 2 * (w + 1)])
        y = R.strided_slice(y3, [2, 3], [1, 1], [2 * h + 1, 2 * w + 1])

    The sums are float32. Those of 16-bit data are rounded before they are interleaved, even if the
    rounding is a cast after the convolution or after its bias.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for high-level operators. A convolution is unchanged if it has groups or
        dilations, if its kernel is smaller than a stride, if a phase has few elements, if channels
        are in blocks, or if its dtype is not float32, float16 or bfloat16.

    Notes
    -----
    If the stride does not divide the kernel, zeros are added to the kernel.  An infinite element of
    the data times such a zero is NaN.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if all(str(binding.value.op.name) not in _AXES for _, binding in operator_calls(mod)):
            return mod
        decomposing = _Decomposing(mod)
        for global_var, function in relax_functions(mod).items():
            decomposing.enter(function)
            # Phases that are rounded before they are interleaved are also emitted in float32.
            decomposed = relax.analysis.remove_all_unused(decomposing.visit_expr(function))
            decomposing.builder_.update_func(global_var, decomposed)
        return decomposing.builder_.get()

    return tvm.transform.module_pass(run, opt_level=0, name="DecomposeConvTranspose")


@dataclass(frozen=True)
class _Phases:
    """All phases of a value.

    Attributes
    ----------
    tensor : relax.Expr
        The phases as channels.
    layout : Layout
    axes : dict of str to PhasedAxis
        The spatial axes by letter.
    shape : list of tirx.Expr
        The shape of the value.
    """

    tensor: relax.Expr
    layout: Layout
    axes: dict[str, PhasedAxis]
    shape: list[tirx.Expr]

    @property
    def strides(self) -> dict[str, int]:
        return {name: axis.stride for name, axis in self.axes.items() if axis.stride > 1}


@mutator
class _Decomposing(PyExprMutator):
    reads: Counter[relax.Var]
    """The number of reads of each variable."""

    phases: dict[relax.Var, _Phases]
    """The phases of variables that must be rounded, by their variables before this pass."""

    found: _Phases | None
    """The phases of the value that is being visited."""

    def enter(self, function: relax.Function) -> None:
        """Prepare to visit `function`."""
        self.reads = reads(function)
        self.phases, self.found = {}, None

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        super().visit_var_binding_(binding)
        phases, self.found = self.found, None
        # Another variable may have readers in other blocks, which cannot read the phases.
        is_local = isinstance(binding.var, relax.DataflowVar) and self.reads[binding.var] == 1
        if phases is not None and is_local:
            self.phases[binding.var] = phases

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        name, phases = operator_name(call), None
        if name in _AXES:
            phases = self._convolution(call)
        elif name in ("relax.add", "relax.astype") and call.args[0] in self.phases:
            phases = self._elementwise(call, self.phases[call.args[0]])
        if phases is None:
            return super().visit_call_(call)
        of_16_bits = name == "relax.add" or call.args[0].ty.dtype != "float32"
        if of_16_bits and call.ty.dtype == "float32":
            self.found = phases
        return self._whole(phases)

    def _convolution(self, call: relax.Call) -> _Phases | None:
        """The phases of a transposed convolution; None to leave it unchanged."""
        axes = _phased_axes(call)
        if axes is None:
            return None
        attrs, padded = call.attrs, axes.values()
        data, weight = map(self.visit_expr, call.args)
        layout = str(attrs.data_layout)
        out_layout = str(attrs.out_layout) or layout
        kernel_layout = "O" + layout[1:].replace("C", "I")
        weight = self._kernel(weight, axes, str(attrs.kernel_layout), kernel_layout)
        sums = _CONVOLUTIONS[len(axes)](
            data,
            weight,
            padding=[*(axis.pad_before for axis in padded), *(axis.pad_after for axis in padded)],
            data_layout=layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
            out_dtype="float32",
        )
        phases = _Phases(self.builder_.emit(sums), Layout(out_layout), axes, list(call.ty.shape))
        return phases if call.ty.dtype == "float32" else self._rounded(phases, call.ty.dtype)

    def _kernel(
        self, weight: relax.Expr, axes: dict[str, PhasedAxis], layout: str, wanted: str
    ) -> relax.Expr:
        """The kernels of all phases, in the layout `wanted`, from a weight in the layout `layout`.

        The phases are the outer part of the output channels, and each reads its taps backwards.
        """
        emit = self.builder_.emit
        extents = dict(zip(layout, map(int, weight.ty.shape), strict=True))
        pads: list[int] = []
        parts: dict[str, int] = {}
        for name, extent in extents.items():
            axis = axes.get(name)
            pads += [0, axis.taps * axis.stride - extent if axis else 0]
            parts |= {name: axis.taps, name.lower(): axis.stride} if axis else {name: extent}
        if any(pads):
            weight = emit(relax.op.nn.pad(weight, pads))
        apart = emit(relax.op.reshape(weight, list(parts.values())))
        order = [*map(str.lower, axes), *wanted]
        moved = emit(relax.op.permute_dims(apart, [list(parts).index(name) for name in order]))
        channels = extents["O"] * math.prod(axis.stride for axis in axes.values())
        shape = [channels, *(parts[name] for name in wanted[1:])]
        kernel = emit(relax.op.reshape(moved, shape))
        for name, axis in axes.items():
            if axis.taps > 1:
                kernel = emit(relax.op.flip(kernel, wanted.index(name)))
        return kernel

    def _rounded(self, phases: _Phases, dtype: str) -> _Phases:
        return replace(phases, tensor=self.builder_.emit(relax.op.astype(phases.tensor, dtype)))

    def _elementwise(self, call: relax.Call, phases: _Phases) -> _Phases | None:
        """The phases after the addition of a bias, or after rounding; None for other calls."""
        if operator_name(call) == "relax.astype":
            return self._rounded(phases, call.ty.dtype)
        letters = phases.layout.letters
        place, bias = letters.index("C"), self.visit_expr(call.args[1])
        shape = [tirx.const(1, "int64")] * len(letters)
        shape[place] = phases.shape[place]
        if not isinstance(bias.ty.shape, relax.ShapeExpr) or not _are_equal(bias.ty.shape, shape):
            return None
        repeats = [1] * len(letters)
        repeats[place] = math.prod(phases.strides.values())
        tiled = self.builder_.emit(relax.op.tile(bias, repeats))
        return replace(phases, tensor=self.builder_.emit(relax.op.add(phases.tensor, tiled)))

    def _whole(self, phases: _Phases) -> relax.Expr:
        """A value from its phases."""
        whole = phases.tensor
        if phases.strides:
            whole = interleaved(self.builder_, whole, phases.layout, phases.strides)
        wanted = phases.shape
        if _are_equal(whole.ty.shape, wanted):
            return whole
        places = [phases.layout.letters.index(name) for name in phases.axes]
        begins = [axis.begin for axis in phases.axes.values()]
        ends = [begin + wanted[place] for begin, place in zip(begins, places, strict=True)]
        # PhasedAxis computes at least these.  TVM could not prove it for symbolic extents.
        return relax.op.strided_slice(whole, places, begins, ends, assume_inbound=True)


def _are_equal(shape: relax.ShapeExpr, other: Sequence[tirx.Expr]) -> bool:
    extents, analyzer = list(shape), Analyzer()
    return len(extents) == len(other) and all(map(analyzer.can_prove_equal, extents, other))


def _phased_axes(call: relax.Call) -> dict[str, PhasedAxis] | None:
    """The phases along each spatial axis of a transposed convolution; None to leave it."""
    attrs, axes = call.attrs, _AXES[operator_name(call)]
    given, layout = str(attrs.kernel_layout), str(attrs.data_layout)
    layouts = {layout, str(attrs.out_layout) or layout}
    is_plain = sorted(given) == sorted(f"IO{axes}") and layouts <= {f"NC{axes}", f"N{axes}C"}
    if not is_plain or int(attrs.groups) != 1 or any(int(d) != 1 for d in attrs.dilation):
        return None
    if not computes(call) or not all(isinstance(e, tirx.IntImm) for e in call.args[1].ty.shape):
        return None
    kernel = dict(zip(given, map(int, call.args[1].ty.shape), strict=True))
    data = dict(zip(layout, call.args[0].ty.shape, strict=True))
    phased: dict[str, PhasedAxis] = {}
    for place, name in enumerate(axes):
        # The stride does not matter for one element: each element of the kernel is a phase.
        stride = kernel[name] if is_one(data[name]) else None
        phased[name] = PhasedAxis.of(attrs, place, kernel[name], stride)
    if any(kernel[name] < axis.stride for name, axis in phased.items()):
        return None
    has_taps = any(axis.taps > 1 for axis in phased.values())
    return None if has_taps and _has_few_results(data, phased) else phased


def _has_few_results(data: dict[str, tirx.Expr], axes: dict[str, PhasedAxis]) -> bool:
    """Whether each phase has few elements per channel, which do not fill a tile of a product."""
    count = count_of([data["N"], *(axis.windows(data[name]) for name, axis in axes.items())])
    return isinstance(count, tirx.IntImm) and count.value < _MIN_RESULTS
