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
"""Calls of Relay operators with random attributes, by family."""

from collections.abc import Callable
from typing import Any

import numpy as np

from helpers.relay_numpy.elementwise import REDUCTIONS

from .relay_blocks import FLOATS, INTS, Block, Entry, Impossible, literal

FLOAT_UNARY = ("exp", "tanh", "sigmoid", "erf", "sin", "cos", "atan", "nn.relu", "round")
UNARY = ("abs", "negative", "ceil", "floor", "trunc", "copy", "nn.relu", "sign")
POSITIVE_UNARY = ("log", "sqrt", "rsqrt")
ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


def is_float(entry: Entry) -> bool:
    """Whether the elements are floating-point numbers."""
    return entry.dtype in FLOATS


def is_number(entry: Entry) -> bool:
    """Whether the elements are numbers, not bools."""
    return entry.dtype != "bool"


def of_rank(*ranks: int) -> Callable[[Entry], bool]:
    """Accepts floating-point tensors of these ranks without extents of 0."""
    return lambda entry: is_float(entry) and len(entry.shape) in ranks and entry.value.size > 0


def unary(block: Block) -> None:
    """A function of one input."""
    x = block.pick(is_number)
    if x.dtype == "uint8":
        block.call("nn.relu", [x])
    elif is_float(x) and block.chance(0.6):
        if block.chance(0.3):
            one = block.constant((), x.dtype, "positive")
            x = block.call("add", [block.call("abs", [x]), one])
            block.call(block.choice(POSITIVE_UNARY), [x])
        else:
            block.call(block.choice(FLOAT_UNARY), [x])
    else:
        block.call(block.choice(UNARY), [x])


def partner(block: Block, x: Entry) -> Entry:
    """A value that broadcasts with `x`."""
    if block.chance(0.5):
        try:
            return block.pick(lambda y: y.dtype == x.dtype and broadcasts(x, y))
        except Impossible:
            pass
    shape = [1 if block.chance(0.3) else extent for extent in x.shape]
    return block.constant(shape[block.integer(0, len(shape)) :], x.dtype)


def broadcasts(x: Entry, y: Entry) -> bool:
    """Whether two shapes broadcast."""
    pairs = zip(reversed(x.shape), reversed(y.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def binary(block: Block) -> None:
    """Arithmetic, comparisons and logic."""
    x = block.pick()
    y = partner(block, x)
    x, y = (y, x) if block.chance(0.3) else (x, y)
    if x.dtype == "bool":
        block.call(block.choice(("logical_and", "logical_or", "logical_xor")), [x, y])
    elif block.chance(0.2):
        block.call(block.choice(COMPARISONS), [x, y])
    elif block.chance(0.15):
        divide(block, x)
    elif x.dtype in INTS and block.chance(0.2):
        block.call(block.choice(("bitwise_and", "bitwise_or", "bitwise_xor")), [x, y])
    else:
        block.call(block.choice(ARITHMETIC), [x, y])


def divide(block: Block, x: Entry) -> None:
    """A quotient or a remainder; the divisor is not 0."""
    names = ["divide", "floor_divide", "floor_mod", "mod"] if x.dtype in INTS else ["divide"]
    shape = x.shape[block.integer(0, len(x.shape)) :]
    divisor = block.constant(shape, x.dtype, "positive")
    if x.dtype in ("int32", "int64") and block.chance(0.5):
        divisor = literal(-divisor.value)
    block.call(block.choice(names), [x, divisor])


def choose(block: Block) -> None:
    """where, clip and cast."""
    kind = block.integer(0, 2)
    if kind == 0:
        x = block.pick()
        condition = block.call("less", [x, partner(block, x)]) if is_number(x) else x
        y = block.pick(lambda e: broadcasts(e, condition))
        z = partner(block, y)
        if not broadcasts(z, condition):
            raise Impossible
        block.call("where", [condition, y, z])
    elif kind == 1:
        x = block.pick(is_number)
        low = float(block.integer(0 if x.dtype == "uint8" else -3, 1))
        block.call("clip", [x], a_min=low, a_max=low + block.integer(0, 3))
    else:
        x = block.pick(lambda e: e.dtype not in FLOATS)
        block.call("cast", [x], dtype=block.choice((*FLOATS, "int32", "int64")))


def some_axes(block: Block, rank: int) -> Any:
    """A few axes, some counted from the end, or None for all."""
    if rank == 0 or block.chance(0.15):
        return None
    axes = block.rng.permutation(rank)[: block.integer(1, rank)]
    return [int(a) - rank * block.chance(0.3) for a in axes]


def reduce(block: Block) -> None:
    """Sums, means, extrema and their indices."""
    x = block.pick(lambda e: e.value.size > 0)
    axes = some_axes(block, len(x.shape))
    attrs = {"axis": axes, "keepdims": block.chance(0.4)}
    if axes is not None and len(axes) < len(x.shape) and block.chance(0.15):
        attrs["exclude"] = True
    if x.dtype == "bool":
        block.call(block.choice(("all", "any")), [x], **attrs)
    elif block.chance(0.2):
        last = block.chance(0.3)
        block.call(block.choice(("argmax", "argmin")), [x], select_last_index=last, **attrs)
    else:
        floats = [name for name in REDUCTIONS if name not in ("all", "any")]
        names = floats if is_float(x) else ["sum", "max", "min"]
        block.call(block.choice(names), [x], **attrs)


def scan(block: Block) -> None:
    """Running sums, and sorting along an axis."""
    x = block.pick(lambda e: is_number(e) and len(e.shape) > 0 and e.value.size > 0)
    axis = block.integer(-len(x.shape), len(x.shape) - 1)
    kind = block.integer(0, 2)
    if kind == 0:
        block.call("cumsum", [x], axis=axis, exclusive=block.chance(0.3))
    else:
        name = "sort" if kind == 1 else "argsort"
        block.call(name, [x], axis=axis, is_ascend=block.chance(0.5), dtype="int32")


def reshape(block: Block) -> None:
    """The same elements in another shape."""
    x = block.pick()
    shape = list(x.shape)
    kind = block.integer(0, 4)
    if kind == 0 and x.value.size:
        new = [-1] if block.chance(0.5) or not shape else [0, -1]
        block.call("reshape", [x], newshape=new)
    elif kind == 1:
        if len(shape) < 2:
            raise Impossible
        block.call("reshape", [x], newshape=block.choice(([-3, -2], [0, -2], [-2])))
    elif kind == 2:
        ones = [a for a, extent in enumerate(shape) if extent == 1]
        axes = [a - len(shape) * block.chance(0.3) for a in ones if block.chance(0.6)]
        # None stands for all axes that are known to have extent 1.
        block.call("squeeze", [x], axis=axes or None if len(ones) == len(shape) else axes)
    elif kind == 3:
        axis = block.integer(-len(shape) - 1, len(shape))
        block.call("expand_dims", [x], axis=axis, num_newaxis=1)
    else:
        if not shape:
            raise Impossible
        perm = [int(a) for a in block.rng.permutation(len(shape))]
        block.call("transpose", [x], axes=None if block.chance(0.2) else perm)


def join(block: Block) -> None:
    """Concatenation, stacking and splitting."""
    x = block.pick(lambda e: len(e.shape) > 0)
    axis = block.integer(0, len(x.shape) - 1)
    kind = block.integer(0, 2)
    if kind == 0:
        others = []
        for _ in range(block.integer(1, 2)):
            shape = [*x.shape]
            shape[axis] = block.integer(1, 3)
            others.append(block.constant(shape, x.dtype))
        parts = [*others, x] if block.chance(0.5) else [x, *others]
        block.call("concatenate", [parts], axis=axis - len(x.shape) * block.chance(0.3))
    elif kind == 1:
        block.call("stack", [[x, block.constant(x.shape, x.dtype)]], axis=axis)
    else:
        extent = x.shape[axis]
        if extent < 2:
            raise Impossible
        divisors = [n for n in range(2, extent + 1) if extent % n == 0]
        cuts = sorted({block.integer(1, extent - 1) for _ in range(2)})
        sections = block.choice(divisors) if block.chance(0.5) else cuts
        block.call("split", [x], indices_or_sections=sections, axis=axis)


def repeat(block: Block) -> None:
    """Repetition, reversal, broadcasting and padding."""
    x = block.pick(lambda e: len(e.shape) > 0 and e.value.size > 0)
    rank = len(x.shape)
    kind = block.integer(0, 4)
    if kind == 0:
        block.call("tile", [x], reps=[block.integer(1, 2) for _ in range(block.integer(1, rank))])
    elif kind == 1:
        axis = block.integer(-rank, rank - 1)
        block.call("repeat", [x], repeats=block.integer(1, 3), axis=axis)
    elif kind == 2:
        block.call("reverse", [x], axis=block.integer(0, rank - 1))
    elif kind == 3:
        shape = [block.integer(2, 3) if extent == 1 else extent for extent in x.shape]
        block.call("broadcast_to", [x], shape=[block.integer(1, 2), *shape])
    else:
        if x.dtype == "bool":
            raise Impossible
        widths = [[block.integer(0, 2), block.integer(0, 2)] for _ in range(rank)]
        modes = ["constant", "constant", "edge"]
        if all(max(pair) < extent for pair, extent in zip(widths, x.shape, strict=True)):
            modes.append("reflect")
        value = block.constant((), x.dtype, "positive")
        block.call("nn.pad", [x, value], pad_width=widths, pad_mode=block.choice(modes))


def select(block: Block) -> None:
    """Slices, and elements by index."""
    x = block.pick(lambda e: len(e.shape) > 0 and e.value.size > 0)
    rank = len(x.shape)
    kind = block.integer(0, 3)
    if kind == 0:
        strided(block, x)
    elif kind == 1:
        axis = None if block.chance(0.1) else block.integer(-rank, rank - 1)
        extent = x.value.size if axis is None else x.shape[axis]
        mode = block.choice(("clip", "wrap", "fast"))
        low, high = (0, extent - 1) if mode == "fast" else (-extent, 2 * extent)
        shape = [block.integer(1, 3) for _ in range(block.integer(0, 2))]
        indices = block.rng.integers(low, high + 1, shape).astype(block.choice(("int32", "int64")))
        block.call("take", [x, literal(indices)], axis=axis, mode=mode)
    elif kind == 2:
        axis = block.integer(0, rank - 1)
        shape = [*x.shape]
        shape[axis] = block.integer(1, 3)
        indices = block.rng.integers(0, x.shape[axis], shape).astype("int64")
        block.call("gather", [x, literal(indices)], axis=axis)
    else:
        x = block.pick(lambda e: e.dtype in ("int32", "int64"))
        on, off = (block.constant((), "float32") for _ in range(2))
        axis = block.integer(-1, len(x.shape))
        depth = block.integer(1, 4)
        block.call("one_hot", [x, on, off], depth=depth, axis=axis, dtype="float32")


def strided(block: Block, x: Entry) -> None:
    """A slice of some axes."""
    rank = len(x.shape)
    if block.chance(0.2):
        begin = [block.integer(0, extent - 1) for extent in x.shape]
        size = [
            -1 if block.chance(0.3) else block.integer(1, extent - b)
            for b, extent in zip(begin, x.shape, strict=True)
        ]
        block.call("strided_slice", [x], begin=begin, end=size, strides=[1], slice_mode="size")
        return
    axes = sorted(int(a) for a in block.rng.permutation(rank)[: block.integer(1, rank)])
    begin, end, strides = [], [], []
    for axis in axes:
        extent = x.shape[axis]
        first, last = sorted((block.integer(0, extent - 1), block.integer(0, extent - 1)))
        stride = block.choice((1, 1, 1, 2, -1, -2))
        first, last = (first, last + 1) if stride > 0 else (last, first - 1)
        begin.append(first - extent * block.chance(0.2) if first else first)
        last = 2**31 - 1 if stride > 0 and last == extent and block.chance(0.3) else last
        end.append(-extent - 1 if last == -1 else last)
        strides.append(stride)
    block.call("strided_slice", [x], begin=begin, end=end, strides=strides, axes=axes)


def product(block: Block) -> None:
    """Dense layers and products of matrices."""
    x = block.pick(of_rank(2, 3))
    columns, units = x.shape[-1], block.integer(1, 9)
    if len(x.shape) == 3:
        transposed = block.chance(0.5)
        shape = (units, columns) if transposed else (columns, units)
        y = block.weight((block.choice((1, x.shape[0])), *shape), x.dtype)
        block.call("nn.batch_matmul", [x, y], transpose_b=transposed)
    elif block.chance(0.7):
        x = block.call("nn.dense", [x, block.weight((units, columns), x.dtype)])
        if block.chance(0.6):
            block.call("nn.bias_add", [x, block.weight((units,), x.dtype)], axis=-1)
    else:
        block.call("nn.matmul", [x, block.weight((columns, units), x.dtype)])


def normalize(block: Block) -> None:
    """Softmax and norms."""
    x = block.pick(of_rank(2, 3, 4))
    rank = len(x.shape)
    axis = block.integer(-rank, rank - 1)
    channels = (x.shape[axis],)
    kind = block.integer(0, 3)
    if kind == 0:
        block.call(block.choice(("nn.softmax", "nn.log_softmax")), [x], axis=axis)
    elif kind == 1:
        scale, shift = (block.constant(channels, x.dtype) for _ in range(2))
        block.call("nn.layer_norm", [x, scale, shift], axis=axis, epsilon=1e-2)
    elif kind == 2:
        rest = [block.constant(channels, x.dtype, k) for k in ("normal",) * 3 + ("positive",)]
        block.call("nn.batch_norm", [x, *rest], axis=axis, scale=block.chance(0.8))
    else:
        block.call("nn.l2_normalize", [x], eps=1e-3, axis=[axis])


def image(block: Block, channels_last: bool) -> Entry:
    """A tensor of rank 4 with at least 3 by 3 pixels."""
    first = 1 if channels_last else 2
    fits = of_rank(4)
    try:
        return block.pick(lambda e: fits(e) and min(e.shape[first : first + 2]) >= 3)
    except Impossible:
        shape = [block.integer(1, 2), block.integer(1, 6), block.integer(3, 8), block.integer(3, 8)]
        shape = [shape[0], *shape[2:], shape[1]] if channels_last else shape
        return block.add(block.constant(shape, "float32"))


def window(block: Block, size: tuple[int, int], dilation: int = 1) -> dict[str, Any]:
    """Strides, padding and dilation for a window."""
    most = [(extent - 1) * dilation // 2 for extent in size]
    padding = [block.integer(0, most[0]), block.integer(0, most[1])]
    strides = [block.integer(1, 2), block.integer(1, 2)]
    if block.chance(0.3):
        padding = [*padding, block.integer(0, most[0]), block.integer(0, most[1])]
    return {"strides": strides, "padding": padding, "dilation": [dilation, dilation]}


def convolve(block: Block) -> None:
    """Convolutions of both layouts, with groups, and transposed."""
    last = block.chance(0.4)
    x = image(block, last)
    channels = x.shape[3 if last else 1]
    groups = channels if block.chance(0.3) else 1
    outputs = groups * block.integer(1, 4 if groups == 1 else 2)
    size = (block.integer(1, 3), block.integer(1, 3))
    attrs = {"channels": outputs, "kernel_size": list(size), "groups": groups}
    if block.chance(0.25):
        shape = (channels, outputs // groups, *size)
        attrs |= window(block, size) | {"data_layout": "NHWC" if last else "NCHW"}
        attrs["output_padding"] = [block.integer(0, s - 1) for s in attrs["strides"]]
        block.call("nn.conv2d_transpose", [x, block.weight(shape, x.dtype)], **attrs)
        return
    attrs |= window(block, size, 2 if block.chance(0.1) and size == (2, 2) else 1)
    if last:
        is_depthwise = groups == channels and groups > 1
        attrs |= {"data_layout": "NHWC", "kernel_layout": "HWOI" if is_depthwise else "HWIO"}
        inner = (channels // groups, outputs)
        shape = (*size, channels, outputs // groups) if is_depthwise else (*size, *inner)
    else:
        shape = (outputs, channels // groups, *size)
    y = block.call("nn.conv2d", [x, block.weight(shape, x.dtype)], **attrs)
    if block.chance(0.5):
        block.call("nn.bias_add", [y, block.weight((outputs,), x.dtype)], axis=3 if last else 1)


def pool(block: Block) -> None:
    """Pooling, upsampling and pixel shuffles."""
    last = block.chance(0.4)
    x = image(block, last)
    layout = "NHWC" if last else "NCHW"
    kind = block.integer(0, 3)
    if kind == 0:
        name = block.choice(("nn.global_avg_pool2d", "nn.global_max_pool2d"))
        block.call(name, [x], layout=layout)
    elif kind == 1:
        scales = [float(block.integer(1, 2)) for _ in range(2)]
        block.call("nn.upsampling", [x], scale_h=scales[0], scale_w=scales[1], layout=layout)
    else:
        size = (block.integer(2, 3), block.integer(2, 3))
        attrs = window(block, size) | {"pool_size": list(size), "layout": layout}
        if kind == 2:
            block.call("nn.max_pool2d", [x], **attrs)
        else:
            block.call("nn.avg_pool2d", [x], count_include_pad=block.chance(0.5), **attrs)


def dynamic(block: Block) -> None:
    """Operators with a shape operand: a constant, computed from an input, or an input itself."""
    x = block.pick(lambda e: len(e.shape) > 0 and e.value.size > 0)
    rank = len(x.shape)
    kind = block.integer(0, 4)
    shape = block.call("shape_of", [x], dtype="int64")
    if kind == 0:
        block.call("dyn.reshape", [x, literal(np.array([-1], "int64"))])
    elif kind == 1:
        value = block.constant((), "float32")
        block.call("dyn.full", [value, shape], dtype="float32")
    elif kind == 2:
        row = block.constant(x.shape[-1:], "float32")
        block.call("dyn.broadcast_to", [row, shape])
    elif kind == 3:
        begin, ones = np.zeros(rank, "int64"), np.ones(rank, "int64")
        end = block.call("subtract", [shape, literal(ones)])
        if min(x.shape) < 2:
            raise Impossible
        block.call("dyn.strided_slice", [x, literal(begin), end, literal(ones)])
    else:
        block.call("dyn.tile", [x, literal(np.full(rank, block.integer(1, 2), "int64"))])


def quantized(block: Block) -> None:
    """Quantize, compute on integers, and dequantize."""
    x = block.pick(lambda e: e.dtype == "float32" and e.value.size > 0)
    scale = block.constant((), "float32", "positive")
    scale = literal(np.float32(scale.value / 16))
    dtype = block.choice(("int8", "uint8"))
    zero = literal(np.int32(block.integer(-3, 3) if dtype == "int8" else 128))
    q = block.call("qnn.quantize", [x, scale, zero], out_dtype=dtype)
    target = literal(np.float32(scale.value * block.choice((0.5, 1.0, 1.7))))
    if block.chance(0.4):
        in_int32 = block.call("cast", [q], dtype="int32")
        args = [in_int32, scale, zero, target, zero]
        q = block.call("qnn.requantize", args, out_dtype=dtype)
        scale = target
    elif block.chance(0.4):
        q = block.call("qnn.add", [q, q, scale, zero, scale, zero, target, zero])
        scale = target
    if block.chance(0.8):
        block.call("qnn.dequantize", [q, scale, zero])


FAMILIES: tuple[Callable[[Block], None], ...] = (
    *(unary, unary, binary, binary, binary, choose, reduce, reduce, scan, reshape, reshape),
    *(join, repeat, select, select, product, product, normalize, convolve, convolve, pool),
    *(dynamic, quantized),
)
