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
"""The layouts of convolutions: their names, conversion to a layout, and automatic choice.

Mechanism
    TVM converts layouts only on request.
How to remove
    When TVM chooses blocks of channels automatically, delete :func:`ChooseLayout`, its tests and
    the fix id ``choose-layout``; keep :func:`convert_layout`, which converts on request.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import tvm
from tvm import relax, tirx
from tvm_ffi import structural_equal

from ...errors import summarize
from ...fixes.layout import CHOOSE_LAYOUT as FIX_ID
from ...fixes.matmul import MATMUL_LEGALIZE
from ...support import ambient, logs, switches
from ...support.declined import NotDone, decline
from ...target.cpu import Cpu, is_cpu
from ...tirx.accumulation import bytes_instruction
from ..analysis import activation_transforms, operator_calls
from ..layouts import SPATIAL_AXES, Layout, is_depthwise
from ..legalize.conv.compute import kernel_layout
from ..libraries import uses
from ..source_nodes import names_of
from .decompose_channelwise import DecomposeChannelwise
from .fold_layout_into_conv import FoldLayoutIntoConv
from .fuse_transpose_matmul import FuseTransposeMatmul
from .prepare_layout import PrepareLayout

# ConvertLayout infers all types again, without the bounds of symbolic dims, and fails if the type
# of a result changes.
_CHANGED_RESULT = "should not rewrite or delete any global-scope Var"

# In bytes. With shorter vectors, convolution kernels are as fast without blocks, or faster.
_MIN_VECTOR = 64

_MIN_MOVED = 8
"""The dense convolutions read and write at least this multiple of the elements that added layout
transforms move.  Without blocks, each convolution would rearrange the channels of its data."""

_INTEGER_DTYPES = ("int16", "int8", "uint8")


@dataclass(frozen=True)
class _Choice:
    """A layout in which convolutions are faster.

    Attributes
    ----------
    layout : str
        A key of :data:`LAYOUTS`.
    dtypes : tuple of str
        The dtypes of the data of such convolutions.
    slower_norms : frozenset of str
        Norms that are slower in this layout.
    is_for_integers : bool
        Whether each convolution multiplies integers, or is depthwise.  Then one is enough, and each
        that is not depthwise saves the time of two layout transforms.
    """

    layout: str
    dtypes: tuple[str, ...]
    slower_norms: frozenset[str]
    is_for_integers: bool = False


def _by_operator(
    data: str, kernel: str, transposed_kernel: Callable[[str], str]
) -> dict[str, list[str]]:
    """The layouts of data and kernel by operator; ``*`` stands for the spatial axes."""
    layouts = {}
    for rank, axes in SPATIAL_AXES.items():
        of_data = data.replace("*", axes)
        layouts[f"relax.nn.conv{rank}d"] = [of_data, kernel.replace("*", axes)]
        layouts[f"relax.nn.conv{rank}d_transpose"] = [of_data, transposed_kernel(axes)]
    return layouts


def _packed(block: int) -> dict[str, list[str]]:
    blocks = f"{block}i{block}o"
    return _by_operator(f"NC*{block}c", f"OI*{blocks}", lambda axes: f"IO{axes}{blocks}")


LAYOUTS: dict[str, dict[str, list[str]]] = {
    "NCHW": _by_operator("NC*", "OI*", lambda axes: f"IO{axes}"),
    "NHWC": _by_operator("N*C", "O*I", kernel_layout),
    "NCHW4c": _packed(4),
    "NCHW8c": _packed(8),
    "NCHW16c": _packed(16),
}
"""The layouts of data and kernel by operator: channels-first, channels-last, and channels-first
with channels in blocks, for any rank.

A convolution stays channels-first if the block does not divide its channels.
"""


def ChooseLayout() -> tvm.transform.Pass:
    """Keep the channels in blocks if that adds no, or only small, layout transforms of activations.

    Before, for a CPU with vectors of 16 float32::

        y = relu(conv2d(x, w))                                  # NCHW
        z = conv2d(y, v)

    and after::

        y = relu(conv2d(x, w', out_layout="NCHW16c"))
        z = conv2d(y, v', data_layout="NCHW16c", out_layout="NCHW")

    Blocks are of half a vector if only these divide the channels of most depthwise convolutions
    with an unknown number of rows.

    If the convolutions of a CPU multiply integers and the blocks do not fit, the channels become
    the last axis: channels-first, each convolution interleaves the channels of its data and
    transposes its sums.  For a GPU with cuDNN, the channels of 16-bit convolutions become the last
    axis, too.

    Returns
    -------
    tvm.transform.Pass
        A module pass for a CPU target, or a GPU target with cuDNN.  It converts all convolutions
        of a module or none.  It converts them if there are several, or one of integers, if the
        number of channels of their data is known, if no norm becomes slower, and if the module has
        no more permutes and layout transforms of activations than before, or two more for each
        convolution of integers, or if those added move few elements.  The data is float32 or
        integers on a CPU, and float16 or bfloat16 on a GPU.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if not switches.enabled(FIX_ID) or not _convolutions(mod):
            return mod
        choices = _choices_for(tvm.target.Target.current(allow_none=True), mod)
        if not choices:
            decline("layout", "", "no other layout is faster on this target")
        for choice in choices:
            converted = _obstacle(mod, choice) or _converted(mod, choice)
            if not isinstance(converted, str):
                return converted
            decline(f"layout {choice.layout}", "", converted)
        return mod

    return tvm.transform.module_pass(run, opt_level=0, name="ChooseLayout")


def _choices_for(target: tvm.target.Target | None, mod: tvm.IRModule) -> list[_Choice]:
    """The layouts in which convolutions may be faster on a target, the best one first."""
    if not is_cpu(target):
        return [_CUDNN] if uses("cudnn") else []
    cpu = Cpu.of(target)
    blocks = _suitable_blocks(mod, cpu) if cpu.vector_bytes >= _MIN_VECTOR else []
    has_dot_products = bytes_instruction(cpu) is not None or cpu.has_pmaddwd
    multiplies = any(str(call.args[0].ty.dtype) in _INTEGER_DTYPES for call in _convolutions(mod))
    return [*blocks, *([_INTEGERS] if has_dot_products and multiplies else [])]


def _suitable_blocks(mod: tvm.IRModule, cpu: Cpu) -> list[_Choice]:
    """Blocks of a vector; of half of one if only these divide the channels of most work.

    That is the work of depthwise convolutions whose number of rows is unknown: channels-first, they
    have tiles of many rows, which are mostly empty for small images.
    """
    block = cpu.vector_bytes // 4
    work = {block: 0, block // 2: 0}
    for call in _depthwise_of_unknown_rows(_convolutions(mod)):
        shape = list(map(int, call.args[1].ty.shape.values))
        kernel = dict(zip(Layout(str(call.attrs.kernel_layout)).letters, shape, strict=True))
        fitting = (size for size in work if kernel["O"] * kernel["I"] % size == 0)
        if (largest := next(fitting, None)) is not None:
            work[largest] += math.prod(shape)  # for each pixel of the output
    whole, half = _blocks_of(block), _blocks_of(block // 2)
    return [half, whole] if work[block // 2] > work[block] else [whole]


def _depthwise_of_unknown_rows(convolutions: list[relax.Call]) -> list[relax.Call]:
    """The channels-first depthwise convolutions with kernels of known size and symbolic rows."""
    return [
        call
        for call in convolutions
        if is_depthwise(call)
        and len(call.ty.shape.values) > 3
        and str(call.attrs.out_layout).startswith("NC")
        and not isinstance(call.ty.shape.values[-2], tirx.IntImm)
        and all(isinstance(extent, tirx.IntImm) for extent in call.args[1].ty.shape.values)
    ]


def _blocks_of(block: int) -> _Choice:
    """Channels in blocks, which divide the channels of a norm."""
    norms = ("layer_norm", "group_norm", "instance_norm", "rms_norm")
    dtypes = ("float32", *_INTEGER_DTYPES)
    return _Choice(f"NCHW{block}c", dtypes, frozenset(f"relax.nn.{name}" for name in norms))


# Tensor cores read channels-last data; otherwise cuDNN transposes it.  An instance norm would read
# a channel with gaps; DecomposeGroupNorm reads the channels of a group together.
_CUDNN = _Choice("NHWC", ("float16", "bfloat16"), frozenset(["relax.nn.instance_norm"]))

# An instruction multiplies adjacent channels, and requantization reads adjacent sums.
_INTEGERS = replace(_CUDNN, dtypes=_INTEGER_DTYPES, is_for_integers=True)


def _obstacle(mod: tvm.IRModule, choice: _Choice) -> str | None:
    """Why, by its operators, the layout would not make a module faster; None if it may."""
    names = {str(binding.value.op.name) for _, binding in operator_calls(mod)}
    norms = sorted(names & choice.slower_norms)
    if norms:
        return f"{norms[0]} would be slower"
    convolutions = _convolutions(mod)
    if choice.is_for_integers:
        dense = _dense(convolutions)
        if 2 * len(dense) <= len(convolutions):
            return "most convolutions are depthwise"
        convolutions = dense
    elif len(convolutions) < 2:
        return "there is only one convolution"
    if not all(_has_known_channels(call, choice.dtypes) for call in convolutions):
        dtypes = " or ".join(choice.dtypes)
        return f"the data of a convolution has a symbolic number of channels, or is not {dtypes}"
    return None


def _converted(mod: tvm.IRModule, choice: _Choice) -> tvm.IRModule | str:
    """The module in another layout, or why it keeps its own."""
    layout = choice.layout
    with ambient.collect() as facts:
        try:
            converted = convert_layout(layout)(mod)
        except Exception as error:
            # The conversion is only an optimization.
            return f"TVM cannot convert the model: {summarize(error)}"
    transforms, before = activation_transforms(converted), activation_transforms(mod)
    more = len(transforms) - len(before)
    saved = 2 * len(_dense(_convolutions(mod))) if choice.is_for_integers else 0
    if more > saved and not _are_small(transforms, before, _dense(_convolutions(mod))):
        return f"it would add {more} layout transforms of activations"
    if structural_equal(mod, converted, map_free_vars=True):
        about_all = [kept.reason for kept in facts.of(NotDone) if not kept.where]
        return about_all[0] if about_all else f"no convolution is converted: {_why_kept(layout)}"
    switches.note(FIX_ID)
    for fact in facts:
        ambient.record(fact)
    return converted


def _are_small(
    after: list[relax.VarBinding], before: list[relax.VarBinding], convolutions: list[relax.Call]
) -> bool:
    """Whether added layout transforms move few elements, relative to the convolutions."""
    added, removed = (_elements(binding.var.ty for binding in each) for each in (after, before))
    moved = _elements(ty for call in convolutions for ty in (call.args[0].ty, call.ty))
    if added is None or removed is None or moved is None:
        return False
    return _MIN_MOVED * (added - removed) <= moved


def _elements(types: Iterable[tvm.ir.Type]) -> int | None:
    """The number of elements of tensors; None if one has a symbolic extent."""
    total = 0
    for ty in types:
        if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
            return None
        if not all(isinstance(extent, tirx.IntImm) for extent in ty.shape.values):
            return None
        total += math.prod(int(extent) for extent in ty.shape.values)
    return total


def _decline_others(mod: tvm.IRModule, layout: str) -> None:
    """Record the convolutions of a converted module that keep another layout."""
    reason = _why_kept(layout)
    for _, binding in operator_calls(mod):
        call = binding.value
        wanted, _ = LAYOUTS[layout].get(str(call.op.name), (None, None))
        if wanted is not None and wanted not in (call.attrs.data_layout, call.attrs.out_layout):
            decline(f"layout {layout}", names_of(binding.var), reason)


def _why_kept(layout: str) -> str:
    """Why a convolution keeps its layout."""
    is_packed = any(axis.islower() for axis in layout)
    return "the block must divide its channels" if is_packed else "TVM's ConvertLayout keeps it"


def _convolutions(mod: tvm.IRModule) -> list[relax.Call]:
    calls = [binding.value for _, binding in operator_calls(mod)]
    return [call for call in calls if str(call.op.name) in LAYOUTS["NCHW"]]


def _dense(convolutions: list[relax.Call]) -> list[relax.Call]:
    return [call for call in convolutions if not is_depthwise(call)]


def _has_known_channels(call: relax.Call, dtypes: tuple[str, ...]) -> bool:
    """Whether the data of a convolution has such a dtype and a static number of channels."""
    data, channels = call.args[0].ty, Layout(str(call.attrs.data_layout)).letters.index("C")
    return (
        isinstance(data.shape, relax.ShapeExpr)
        and str(data.dtype) in dtypes
        and isinstance(data.shape.values[channels], tirx.IntImm)
    )


def convert_layout(layout: str) -> tvm.transform.Pass:
    """Return the pass that converts the convolutions to one of :data:`LAYOUTS`.

    Parameters
    ----------
    layout : str
        A key of :data:`LAYOUTS`.

    Returns
    -------
    tvm.transform.Pass
        A module pass named ``Layout``.  Run it before operators are lowered.  A module without
        convolutions comes back unchanged; so does a module that ConvertLayout cannot rewrite, with
        a warning in the log ``tvm_fixes.Layout``.
    """
    packs = any(axis.islower() for axis in layout)
    passes = [
        *([DecomposeChannelwise()] if packs else []),
        PrepareLayout(),
        relax.transform.ConvertLayout(LAYOUTS[layout]),
        # ConvertLayout transforms a value again for each reader that needs another layout.
        relax.transform.EliminateCommonSubexpr(call_only=True),
        # Again, because transforms are now next to the model's own, and some have become
        # identities.
        PrepareLayout(),
        # In an attention block, only the transposition of the keys is left.
        _unless_read_directly(FuseTransposeMatmul()),
        # Last, because a transform that is folded into a convolution cannot be joined with others.
        FoldLayoutIntoConv(),
        relax.transform.DeadCodeElimination(),
    ]
    sequence = tvm.transform.Sequential(passes)

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        names = {str(binding.value.op.name) for _, binding in operator_calls(mod)}
        if names.isdisjoint(LAYOUTS[layout]):
            return mod
        try:
            converted = sequence(mod)
            _decline_others(converted, layout)
            return converted
        except tvm.error.InternalError as error:
            if _CHANGED_RESULT not in str(error):
                raise
            reason = "ConvertLayout loses the bounds of a symbolic result"
            logs.warning("Layout", f"layout {layout}: convolutions are not converted: {reason}")
            decline(f"layout {layout}", "", reason)
            return mod

    return tvm.transform.module_pass(run, opt_level=0, name="Layout")


def _unless_read_directly(fusing: tvm.transform.Pass) -> tvm.transform.Pass:
    """The pass, for a target whose kernels do not read transposed operands.

    cuBLAS reads them.  On a CPU, ReadTransposedWeights packs those that are constant, and the
    kernel that this pass makes of the others is slower than a permute and a product in tiles.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        is_read = is_cpu(target) and switches.enabled(MATMUL_LEGALIZE)
        return mod if is_read or uses("cublas") else fusing(mod)

    return tvm.transform.module_pass(run, opt_level=0, name=fusing.info.name)
