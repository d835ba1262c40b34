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
"""Obligations of operators: proved, disproved and unknown."""

from functools import partial

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.relax import op

from helpers.relax_modules import tensor
from helpers.verifying import assert_found, found, module, typed

pytestmark = pytest.mark.native

n = tirx.Var("n", "int64")
m = tirx.Var("m", "int64")
VALUE = "main.body.blocks[0].bindings[0].value"


def of_call(types, emit):
    """A module of one call without a stated result type."""
    params = [relax.Var(f"x{i}", ty) for i, ty in enumerate(types)]
    result = relax.Var("y", relax.AnyType())
    return module(params, [(result, typed(emit(*params), relax.AnyType()))], result)


def const(values, dtype="int64"):
    return relax.const(np.array(values, dtype), dtype)


def unshaped(ndim):
    return relax.TensorType(dtype="float32", ndim=ndim)


def shaped_by_variable(ndim):
    return relax.TensorType(relax.Var("s", relax.ShapeType(ndim=ndim)), "float32")


def joined(*args, function=op.concat, **attrs):
    return function(list(args), **attrs)


take = partial(op.take, axis=0)
conv2d = op.nn.conv2d
split = partial(op.split, axis=0)


def taken(indices, **attrs):
    return lambda x: op.take(x, indices, **({"axis": 0} | attrs))


def indexed(*indices):
    return lambda x: op.index_tensor(x, [const(index) for index in indices])


def gathered(function, indices, **attrs):
    return lambda x: function(x, const(indices), **attrs)


def scattered(indices, updates, **attrs):
    return lambda x: op.scatter_elements(x, const(indices), const(updates, "float32"), **attrs)


def scattered_nd(indices, updates):
    return lambda x: op.scatter_nd(x, const(indices), const(updates, "float32"))


def one_hot(depth, axis):
    one, zero = relax.prim_value(1), relax.prim_value(0)
    return lambda x: op.one_hot(x, one, zero, depth, axis)


RIGHT = {
    "matmul": (op.matmul, [tensor(4, 5), tensor(5, 7)]),
    "matmul of a row": (op.matmul, [tensor(5), tensor(3, 5, 2)]),
    "matmul of rows": (op.matmul, [tensor(n), tensor(n)]),
    "matmul of batches": (op.matmul, [tensor(n, 1, 4, m), tensor(3, m, 2)]),
    "matmul, unknown shape": (op.matmul, [unshaped(2), tensor(5, 2)]),
    "conv1d": (op.nn.conv1d, [tensor(n, 3, m), tensor(4, 3, 3)]),
    "conv2d in groups": (partial(conv2d, groups=2), [tensor(1, 6, n, n), tensor(4, 3, 3, 3)]),
    "conv2d of symbolic groups": (
        partial(conv2d, groups=2),
        [tensor(m, 2 * n, 8, 8), tensor(2 * m, n, 3, 3)],
    ),
    "conv2d, packed": (
        partial(conv2d, data_layout="NCHW4c", kernel_layout="OIHW4i4o"),
        [tensor(1, 2, 8, 8, 4), tensor(4, 2, 3, 3, 4, 4)],
    ),
    "conv2d, NHWC": (
        partial(conv2d, data_layout="NHWC", kernel_layout="HWIO"),
        [tensor(1, 8, 8, 3), tensor(3, 3, 3, 4)],
    ),
    "conv2d of the kernel's size": (conv2d, [tensor(1, 3, 5, 5), tensor(4, 3, 5, 5)]),
    "conv2d_transpose": (
        partial(op.nn.conv2d_transpose, groups=2),
        [tensor(1, 6, 8, 8), tensor(6, 4, 3, 3)],
    ),
    "reshape": (partial(op.reshape, shape=(2, 6)), [tensor(3, 4)]),
    "reshape, symbolic": (partial(op.reshape, shape=(n, 2, 2 * m)), [tensor(n, m, 4)]),
    "reshape, inferred": (partial(op.reshape, shape=(-1, 6)), [tensor(n, 12)]),
    "reshape to a variable": (op.reshape, [tensor(n), relax.ShapeType(ndim=2)]),
    "permute_dims": (partial(op.permute_dims, axes=[-1, 0, 1]), [tensor(2, 3, 4)]),
    "squeeze": (partial(op.squeeze, axis=[-2]), [tensor(n, 1, 4)]),
    "squeeze of no unit axis": (partial(op.squeeze, axis=[0]), [tensor(3, 4)]),
    "expand_dims": (partial(op.expand_dims, axis=[0, -1]), [tensor(3, 4)]),
    "add": (op.add, [tensor(n, 1, m), tensor(4, m)]),
    "add of a scalar": (op.add, [tensor(n), tensor()]),
    "add of an unknown shape": (op.add, [unshaped(2), tensor(4, 5)]),
    "where": (op.where, [tensor(1, m, dtype="bool"), tensor(n, 1), tensor()]),
    "ewise_fma": (op.ewise_fma, [tensor(n, 3)] * 3),
    "broadcast_to": (partial(op.broadcast_to, shape=(5, 3, 4)), [tensor(1, 4)]),
    "take": (taken(const([0, 4])), [tensor(5, 2)]),
    "take of unknown indices": (take, [tensor(n, 2), tensor(m, dtype="int64")]),
    "take of the first": (taken(const([0])), [tensor(n, 2)]),
    "take, clipped": (taken(const([-7, 9]), mode="clip"), [tensor(5)]),
    "take, wrapped": (taken(const([-7, 9]), mode="wrap"), [tensor(5)]),
    "take, or NaN": (taken(const([-7, 9]), mode="nan"), [tensor(5)]),
    "take of nothing": (taken(const([])), [tensor(5)]),
    "take of uint8": (taken(const([4], "uint8")), [tensor(5)]),
    "gather_elements": (gathered(op.gather_elements, [[0, 3]], axis=1), [tensor(2, 4)]),
    "gather_nd": (gathered(op.gather_nd, [[1, 1]]), [tensor(2, 2, n)]),
    "scatter_elements": (scattered([[-4, 3]], [[1, 2]], axis=1), [tensor(2, 4)]),
    "scatter_nd": (scattered_nd([[1], [0]], np.zeros((2, 3))), [tensor(2, 3)]),
    "index_tensor": (indexed([0, 3], [[1], [4]]), [tensor(4, 5, n)]),
    "index_put": (
        lambda x: op.index_put(x, (const([-4, 3]),), const([1, 2], "float32")),
        [tensor(4)],
    ),
    "one_hot": (one_hot(5, -1), [tensor(n, dtype="int64")]),
    "concat": (partial(joined, axis=-1), [tensor(n, 3), tensor(n, m)]),
    "stack": (partial(joined, function=op.stack, axis=2), [tensor(n, 3), tensor(n, 3)]),
    "split": (partial(split, indices_or_sections=3), [tensor(8)]),
    "split of n": (partial(split, indices_or_sections=2), [tensor(n)]),
    "split at": (partial(split, indices_or_sections=[2, 5]), [tensor(5)]),
    "batch_norm": (
        partial(op.nn.batch_norm, axis=1),
        [tensor(n, m, 8)] + [tensor(m)] * 4,
    ),
    "layer_norm": (
        partial(op.nn.layer_norm, axes=[-2, -1]),
        [tensor(n, 3, 8), tensor(3, 8), tensor(3, 8)],
    ),
    "rms_norm": (partial(op.nn.rms_norm, axes=[-1]), [tensor(n, m), tensor(m)]),
    "group_norm": (
        partial(op.nn.group_norm, num_groups=4, channel_axis=1, axes=[2]),
        [tensor(n, 8, 4), tensor(8), tensor(8)],
    ),
    "instance_norm": (
        partial(op.nn.instance_norm, channel_axis=1, axes=[2]),
        [tensor(n, 8, 4), tensor(8), tensor(8)],
    ),
    "prelu of one slope": (op.nn.prelu, [tensor(n, 8), tensor(1)]),
    "pad": (partial(op.nn.pad, pad_width=[0, 0, 9, 1]), [tensor(2, 8)]),
    "pad, reflected": (
        partial(op.nn.pad, pad_width=[0, 0, 7, 1], pad_mode="reflect"),
        [tensor(n, 8)],
    ),
    "pad, round and round": (
        partial(op.nn.pad, pad_width=[0, 0, 7, 8], pad_mode="circular"),
        [tensor(n, 3)],
    ),
    "pad, replicated": (
        partial(op.nn.pad, pad_width=[7, 0], pad_mode="replicate"),
        [tensor(1)],
    ),
    "repeat": (partial(op.repeat, repeats=1, axis=0), [tensor(n)]),
    "strided_slice": (
        partial(op.strided_slice, axes=[-1], begin=[2], end=[99]),
        [tensor(n, m)],
    ),
    "strided_slice, inbound": (
        partial(op.strided_slice, axes=[0, 1], begin=[0, 2], end=[n, 8], assume_inbound=True),
        [tensor(n, 8)],
    ),
    "dynamic_strided_slice": (
        op.dynamic_strided_slice,
        [tensor(n, 8)] + [tensor(2, dtype="int64")] * 3,
    ),
    "attention": (
        op.nn.attention,
        [tensor(n, 4, 8, 16), tensor(n, m, 2, 16), tensor(n, m, 2, 5)],
    ),
    "attention, biased": (
        op.nn.attention,
        [tensor(2, 4, 8, 16), tensor(2, m, 8, 16), tensor(2, m, 8, 5), tensor(1, 8, 1, m)],
    ),
    "max_pool2d": (partial(op.nn.max_pool2d, layout="NCHW4c"), [tensor(n, 2, 8, 8, 4)]),
    "pixel_shuffle": (partial(op.nn.pixel_shuffle, upscale_factor=2), [tensor(n, 8, m, m)]),
}

DISPROVED = {
    "matmul": (
        op.matmul,
        [tensor(4, 5), tensor(6, 7)],
        ("op.matmul", ".args[1]", "dim 0 of argument 1: expected 5 (dim 1 of argument 0), got 6"),
    ),
    "matmul of rows": (
        op.matmul,
        [tensor(n), tensor(n + 1)],
        (
            "op.matmul",
            ".args[1]",
            "dim 0 of argument 1: expected n (dim 0 of argument 0), got n + 1",
        ),
    ),
    "matmul of batches": (
        op.matmul,
        [tensor(2, 4, 5), tensor(3, 5, 7)],
        (
            "op.matmul",
            ".args[1]",
            "dim 0 of argument 1: expected 2 or 1 (dim 0 of argument 0), got 3",
        ),
    ),
    "matmul of a scalar": (
        op.matmul,
        [tensor(), tensor(5)],
        ("op.matmul", ".args[0]", "rank of argument 0: expected at least 1, got 0"),
    ),
    "conv2d": (
        conv2d,
        [tensor(1, 6, 8, 8), tensor(4, 8, 3, 3)],
        ("op.conv", ".args[0]", "dim 1 of argument 0: expected 8 (dim 1 of argument 1), got 6"),
    ),
    "conv1d in groups": (
        partial(op.nn.conv1d, groups=2),
        [tensor(1, 6, 8), tensor(4, 4, 3)],
        (
            "op.conv",
            ".args[0]",
            "dim 1 of argument 0: expected 8 (groups times the input channels of argument 1), "
            "got 6",
        ),
    ),
    "conv2d in groups": (
        partial(conv2d, groups=2),
        [tensor(1, 6, 8, 8), tensor(5, 3, 3, 3)],
        (
            "op.conv",
            ".args[1]",
            "dim 0 of argument 1: expected a multiple of 2 (groups), got 5",
        ),
    ),
    "conv2d, packed": (
        partial(conv2d, data_layout="NCHW4c", kernel_layout="OIHW4o"),
        [tensor(1, 2, 8, 8, 4), tensor(4, 7, 3, 3, 4)],
        (
            "op.conv",
            ".args[0]",
            "the channels of argument 0: expected 7 (dim 1 of argument 1), got 8",
        ),
    ),
    "conv2d of few pixels": (
        partial(conv2d, dilation=(1, 2)),
        [tensor(1, 6, 3, 4), tensor(4, 6, 3, 3)],
        (
            "op.conv",
            ".args[0]",
            "axis W of argument 0, with its padding: expected at least 5 (the extent of the "
            "dilated kernel), got 4",
        ),
    ),
    "conv3d of another rank": (
        op.nn.conv3d,
        [tensor(1, 6, 2, 2), tensor(4, 6, 3, 3, 3)],
        ("op.conv", ".args[0]", "rank of argument 0: expected 5 (NCDHW), got 4"),
    ),
    "conv2d_transpose": (
        partial(op.nn.conv2d_transpose, groups=4),
        [tensor(1, 6, 8, 8), tensor(6, 4, 3, 3)],
        (
            "op.conv",
            ".args[1]",
            "dim 0 of argument 1: expected a multiple of 4 (groups), got 6",
        ),
    ),
    "reshape": (
        partial(op.reshape, shape=(4, 4)),
        [tensor(3, 5)],
        (
            "op.reshape",
            ".args[1]",
            "the product of the extents of argument 1: expected 15 (the number of elements of "
            "argument 0), got 16",
        ),
    ),
    "permute_dims": (
        partial(op.permute_dims, axes=[0, -2]),
        [tensor(2, 8)],
        ("op.axes", "", "axes: -2 is repeated"),
    ),
    "permute_dims of another rank": (
        partial(op.permute_dims, axes=[0, 1]),
        [tensor(2, 3, 4)],
        ("op.axes", "", "axes: expected 3 axes (the rank of argument 0), got 2"),
    ),
    "squeeze": (
        partial(op.squeeze, axis=[2]),
        [tensor(2, 1)],
        ("op.axes", "", "axis: expected -2 to 1, got 2"),
    ),
    "add": (
        op.add,
        [tensor(2, 3), tensor(4, 5)],
        (
            "op.broadcast",
            ".args[1]",
            "dim 0 of argument 1: expected 2 or 1 (dim 0 of argument 0), got 4; "
            "dim 1 of argument 1: expected 3 or 1 (dim 1 of argument 0), got 5",
        ),
    ),
    "add of an even extent": (
        op.add,
        [tensor(n, 2 * n), tensor(3)],
        (
            "op.broadcast",
            ".args[1]",
            "dim 0 of argument 1: expected 2 * n or 1 (dim 1 of argument 0), got 3",
        ),
    ),
    "where": (
        op.where,
        [tensor(3, dtype="bool"), tensor(2, 1), tensor(4)],
        (
            "op.broadcast",
            ".args[2]",
            "dim 0 of argument 2: expected 3 or 1 (dim 0 of argument 0), got 4",
        ),
    ),
    "ewise_fma": (
        op.ewise_fma,
        [tensor(2, 3), tensor(2, 1), tensor(2, 3)],
        (
            "op.broadcast",
            ".args[1]",
            "dim 1 of argument 1: expected 3 (dim 1 of argument 0), got 1",
        ),
    ),
    "broadcast_to": (
        partial(op.broadcast_to, shape=(3, 4)),
        [tensor(2, 4)],
        (
            "op.broadcast",
            ".args[0]",
            "dim 0 of argument 0: expected 3 or 1 (dim 0 of argument 1), got 2",
        ),
    ),
    "broadcast_to of a lower rank": (
        partial(op.broadcast_to, shape=(4,)),
        [tensor(2, 4)],
        (
            "op.broadcast",
            ".args[1]",
            "rank of argument 1: expected at least 2 (the rank of argument 0), got 1",
        ),
    ),
    "take": (
        taken(const([0, 7])),
        [tensor(5, 2)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -5 to 4 (dim 0 of argument 0 is 5), got 0 to 7",
        ),
    ),
    "take from the end": (
        taken(const([-6], "int32")),
        [tensor(5, 2)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -5 to 4 (dim 0 of argument 0 is 5), got -6",
        ),
    ),
    "take of a scalar": (
        taken(relax.prim_value(9)),
        [tensor(5)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -5 to 4 (dim 0 of argument 0 is 5), got 9",
        ),
    ),
    "take without an axis": (
        taken(const([0]), axis=None),
        [tensor(5, 2)],
        ("op.index", ".args[0]", "rank of argument 0: expected 1 (no axis is given), got 2"),
    ),
    "gather_elements": (
        gathered(op.gather_elements, [[0, -5]], axis=1),
        [tensor(4, 4)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -4 to 3 (dim 1 of argument 0 is 4), got -5 to 0",
        ),
    ),
    "gather_elements of more": (
        gathered(op.gather_elements, [[0], [0], [0]], axis=1),
        [tensor(2, 4)],
        (
            "op.index",
            ".args[0]",
            "dim 0 of argument 0: expected at least 3 (dim 0 of argument 1), got 2",
        ),
    ),
    "gather_nd": (
        gathered(op.gather_nd, [[0, 5]]),
        [tensor(4, 4)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -4 to 3 (dim 0 of argument 0 is 4), got 0 to 5",
        ),
    ),
    "gather_nd of many coordinates": (
        gathered(op.gather_nd, [[0, 1, 2]]),
        [tensor(4, 4)],
        (
            "op.index",
            ".args[1]",
            "dim 1 of argument 1: expected at most 2 (axes of argument 0), got 3",
        ),
    ),
    "scatter_elements": (
        scattered([[-5, 0]], [[1, 2]], axis=1),
        [tensor(2, 4)],
        (
            "op.index",
            ".args[1]",
            "the indices of argument 1: expected -4 to 3 (dim 1 of argument 0 is 4), got -5 to 0",
        ),
    ),
    "scatter_elements of more updates": (
        scattered([[0, 1]], [[1, 2, 3]], axis=1),
        [tensor(2, 4)],
        (
            "op.index",
            ".args[2]",
            "dim 1 of argument 2: expected 2 (dim 1 of argument 1), got 3",
        ),
    ),
    "scatter_nd": (
        scattered_nd([[1], [0]], np.zeros((2, 4))),
        [tensor(2, 3)],
        (
            "op.index",
            ".args[2]",
            "dim 1 of argument 2: expected 3 (dim 1 of argument 0), got 4",
        ),
    ),
    "index_tensor": (
        indexed([0, 4], [0, 1]),
        [tensor(4, 4)],
        (
            "op.index",
            ".args[1].fields[0]",
            "the indices of field 0 of argument 1: expected -4 to 3 (dim 0 of argument 0 is 4), "
            "got 0 to 4",
        ),
    ),
    "index_tensor of many": (
        indexed([0], [0], [0]),
        [tensor(4, 4)],
        (
            "op.index",
            ".args[1]",
            "argument 1: expected at most 2 fields (axes of argument 0), got 3",
        ),
    ),
    "one_hot": (
        one_hot(5, 3),
        [tensor(4, dtype="int64")],
        ("op.index", "", "axis: expected -2 to 1, got 3"),
    ),
    "concat": (
        partial(joined, axis=1),
        [tensor(4, 4), tensor(5, 4)],
        (
            "op.concat",
            ".args[0].fields[1]",
            "dim 0 of field 1 of argument 0: expected 4 (dim 0 of field 0 of argument 0), got 5",
        ),
    ),
    "concat of another rank": (
        partial(joined, axis=0),
        [tensor(4, 4), tensor(4)],
        (
            "op.concat",
            ".args[0].fields[1]",
            "rank of field 1 of argument 0: expected 2 (as field 0), got 1",
        ),
    ),
    "stack": (
        partial(joined, function=op.stack),
        [tensor(n), tensor(n + 2)],
        (
            "op.concat",
            ".args[0].fields[1]",
            "dim 0 of field 1 of argument 0: expected n (dim 0 of field 0 of argument 0), "
            "got n + 2",
        ),
    ),
    "split": (
        partial(split, indices_or_sections=4),
        [tensor(5)],
        (
            "op.concat",
            ".args[0]",
            "dim 0 of argument 0: cannot split 5 elements into 4 parts of 2",
        ),
    ),
    "split beyond": (
        partial(split, indices_or_sections=[2, 9]),
        [tensor(5)],
        (
            "op.concat",
            ".args[0]",
            "dim 0 of argument 0: expected at least 9 (the last of indices_or_sections), got 5",
        ),
    ),
    "split backwards": (
        partial(split, indices_or_sections=[3, 2]),
        [tensor(5)],
        ("op.concat", "", "indices_or_sections: expected at least 3, got 2"),
    ),
    "batch_norm": (
        partial(op.nn.batch_norm, axis=1),
        [tensor(2, 8, 4), tensor(8), tensor(8), tensor(8), tensor(4)],
        ("op.norm", ".args[4]", "dim 0 of argument 4: expected 8 (dim 1 of argument 0), got 4"),
    ),
    "layer_norm": (
        partial(op.nn.layer_norm, axes=[-1]),
        [tensor(2, 8), tensor(7), tensor(8)],
        ("op.norm", ".args[1]", "dim 0 of argument 1: expected 8 (dim 1 of argument 0), got 7"),
    ),
    "rms_norm": (
        partial(op.nn.rms_norm, axes=[-2, -1]),
        [tensor(2, 3, 8), tensor(8)],
        ("op.norm", ".args[1]", "rank of argument 1: expected 2, got 1"),
    ),
    "group_norm": (
        partial(op.nn.group_norm, num_groups=3, channel_axis=1, axes=[2]),
        [tensor(2, 8, 4), tensor(8), tensor(8)],
        (
            "op.norm",
            ".args[0]",
            "dim 1 of argument 0: expected a multiple of 3 (num_groups), got 8",
        ),
    ),
    "group_norm of no groups": (
        partial(op.nn.group_norm, num_groups=0, channel_axis=1, axes=[2]),
        [tensor(2, 8, 4), tensor(8), tensor(8)],
        ("op.norm", "", "num_groups: expected at least 1, got 0"),
    ),
    "instance_norm": (
        partial(op.nn.instance_norm, channel_axis=1, axes=[1, 2]),
        [tensor(2, 8, 4), tensor(8), tensor(8)],
        ("op.norm", "", "axes: must not include channel_axis, got 1"),
    ),
    "prelu": (
        op.nn.prelu,
        [tensor(2, 8), tensor(3)],
        (
            "op.norm",
            ".args[1]",
            "dim 0 of argument 1: expected 8 or 1 (dim 1 of argument 0), got 3",
        ),
    ),
    "pad": (
        partial(op.nn.pad, pad_width=[1, 1]),
        [tensor(2, 8)],
        ("op.pad", "", "pad_width: expected 4 values (2 for each axis of argument 0), got 2"),
    ),
    "pad, reflected": (
        partial(op.nn.pad, pad_width=[0, 0, 8, 1], pad_mode="reflect"),
        [tensor(2, 8)],
        (
            "op.pad",
            ".args[0]",
            "dim 1 of argument 0: expected at least 9 (for pad_width), got 8",
        ),
    ),
    "pad, round": (
        partial(op.nn.pad, pad_width=[2, 0], pad_mode="circular"),
        [tensor(0)],
        (
            "op.pad",
            ".args[0]",
            "dim 0 of argument 0: expected at least 1 (for pad_width), got 0",
        ),
    ),
    "pad, replicated": (
        partial(op.nn.pad, pad_width=[0, 1], pad_mode="replicate"),
        [tensor(0)],
        (
            "op.pad",
            ".args[0]",
            "dim 0 of argument 0: expected at least 1 (for pad_width), got 0",
        ),
    ),
    "repeat": (
        partial(op.repeat, repeats=0, axis=0),
        [tensor(2)],
        ("op.repeat", "", "repeats: expected at least 1, got 0"),
    ),
    "repeat of all": (
        partial(op.repeat, repeats=-1),
        [tensor(2, n)],
        ("op.repeat", "", "repeats: expected at least 1, got -1"),
    ),
    "strided_slice": (
        partial(op.strided_slice, axes=[2], begin=[2], end=[9]),
        [tensor(2, 8)],
        ("op.slice", "", "axes: expected -2 to 1, got 2"),
    ),
    "strided_slice, inbound": (
        partial(op.strided_slice, axes=[1], begin=[2], end=[9], assume_inbound=True),
        [tensor(2, 8)],
        (
            "op.slice",
            ".args[0]",
            "dim 1 of argument 0: expected at least 9 (the bound of field 0 of argument 3), got 8",
        ),
    ),
    "dynamic_strided_slice": (
        op.dynamic_strided_slice,
        [tensor(n, 8)] + [tensor(2, dtype="int64")] * 2 + [tensor(1, dtype="int64")],
        (
            "op.slice",
            ".args[3]",
            "dim 0 of argument 3: expected 2 (the rank of argument 0), got 1",
        ),
    ),
    "attention": (
        op.nn.attention,
        [tensor(1, 4, 8, 16), tensor(1, 6, 8, 15), tensor(1, 7, 8, 16)],
        (
            "op.attention",
            ".args[1]",
            "dim 3 of argument 1: expected 16 (dim 3 of argument 0), got 15; "
            "dim 1 of argument 2: expected 6 (dim 1 of argument 1), got 7",
        ),
    ),
    "attention, biased": (
        op.nn.attention,
        [tensor(1, 4, 8, 16), tensor(1, 6, 8, 16), tensor(1, 6, 8, 16), tensor(1, 1, 4, 1)],
        (
            "op.attention",
            ".args[3]",
            "dim 3 of argument 3: expected 6 (dim 1 of argument 1), got 1",
        ),
    ),
    "max_pool2d": (
        op.nn.max_pool2d,
        [tensor(2, 8)],
        ("op.layout", ".args[0]", "rank of argument 0: expected 4 (NCHW), got 2"),
    ),
    "resize2d": (
        lambda x: op.image.resize2d(x, (4, 4), layout="NHWC"),
        [tensor(2, 8, 8)],
        ("op.layout", ".args[0]", "rank of argument 0: expected 4 (NHWC), got 3"),
    ),
    "pixel_shuffle": (
        partial(op.nn.pixel_shuffle, upscale_factor=2),
        [tensor(1, 6, 2, 2)],
        (
            "op.layout",
            ".args[0]",
            "dim 1 of argument 0: expected a multiple of 4 (the square of upscale_factor), got 6",
        ),
    ),
}

UNKNOWN = {
    "matmul": (
        op.matmul,
        [tensor(4, n), tensor(m, 7)],
        (
            "op.matmul",
            ".args[1]",
            "dim 0 of argument 1: cannot prove that m is n (dim 1 of argument 0)",
        ),
    ),
    "conv2d": (
        conv2d,
        [tensor(1, n, 8, 8), tensor(4, m, 3, 3)],
        (
            "op.conv",
            ".args[0]",
            "dim 1 of argument 0: cannot prove that n is m (dim 1 of argument 1)",
        ),
    ),
    "conv2d in groups": (
        partial(conv2d, groups=4),
        [tensor(1, 8, 8, 8), tensor(n, 2, 3, 3)],
        (
            "op.conv",
            ".args[1]",
            "dim 0 of argument 1: cannot prove that n is a multiple of 4 (groups)",
        ),
    ),
    "reshape": (
        partial(op.reshape, shape=(4, 4)),
        [tensor(n)],
        (
            "op.reshape",
            ".args[1]",
            "the product of the extents of argument 1: cannot prove that 16 is n (the number of "
            "elements of argument 0)",
        ),
    ),
    "squeeze": (
        partial(op.squeeze, axis=[0]),
        [tensor(n, 8)],
        ("op.axes", ".args[0]", "dim 0 of argument 0: cannot prove that n is 1"),
    ),
    "add": (
        op.add,
        [tensor(n), tensor(4)],
        (
            "op.broadcast",
            ".args[1]",
            "dim 0 of argument 1: cannot prove that 4 is n or 1 (dim 0 of argument 0)",
        ),
    ),
    "add where both may be 1": (
        op.add,
        [tensor(n), tensor(n + 1)],
        (
            "op.broadcast",
            ".args[1]",
            "dim 0 of argument 1: cannot prove that n + 1 is n or 1 (dim 0 of argument 0)",
        ),
    ),
    "broadcast_to": (
        partial(op.broadcast_to, shape=(3, 4)),
        [tensor(n, 4)],
        (
            "op.broadcast",
            ".args[0]",
            "dim 0 of argument 0: cannot prove that n is 3 or 1 (dim 0 of argument 1)",
        ),
    ),
    "take": (
        taken(const([2, 5])),
        [tensor(n)],
        (
            "op.index",
            ".args[0]",
            "dim 0 of argument 0: cannot prove that n is at least 6 (for the indices of "
            "argument 1)",
        ),
    ),
    "concat": (
        partial(joined, axis=1),
        [tensor(n, 4), tensor(m, 4)],
        (
            "op.concat",
            ".args[0].fields[1]",
            "dim 0 of field 1 of argument 0: cannot prove that m is n (dim 0 of field 0 of "
            "argument 0)",
        ),
    ),
    "split": (
        partial(split, indices_or_sections=[2, 4]),
        [tensor(n)],
        (
            "op.concat",
            ".args[0]",
            "dim 0 of argument 0: cannot prove that n is at least 4 (the last of "
            "indices_or_sections)",
        ),
    ),
    "layer_norm": (
        partial(op.nn.layer_norm, axes=[-1]),
        [tensor(2, n), tensor(m), tensor(n)],
        (
            "op.norm",
            ".args[1]",
            "dim 0 of argument 1: cannot prove that m is n (dim 1 of argument 0)",
        ),
    ),
    "pad, reflected": (
        partial(op.nn.pad, pad_width=[2, 0], pad_mode="reflect"),
        [tensor(n)],
        (
            "op.pad",
            ".args[0]",
            "dim 0 of argument 0: cannot prove that n is at least 3 (for pad_width)",
        ),
    ),
    "attention": (
        op.nn.attention,
        [tensor(1, 4, 8, 16), tensor(1, n, 8, 16), tensor(1, m, 8, 16)],
        (
            "op.attention",
            ".args[2]",
            "dim 1 of argument 2: cannot prove that m is n (dim 1 of argument 1)",
        ),
    ),
}

UNREAD = {
    "attention": (
        op.nn.attention,
        [tensor(1, 4, 8, 16), unshaped(4), tensor(1, 6, 8, 16)],
        (
            "op.attention",
            ".args[1]",
            'argument 1: expected a tensor of known shape, got R.Tensor(dtype="float32", ndim=4)',
        ),
    ),
    "pad": (
        partial(op.nn.pad, pad_width=[0, 0, 1, 1]),
        [shaped_by_variable(2)],
        (
            "op.pad",
            ".args[0]",
            'argument 0: expected a tensor of known shape, got R.Tensor(s, "float32")',
        ),
    ),
    "pixel_shuffle": (
        partial(op.nn.pixel_shuffle, upscale_factor=2),
        [tensor(1, n, 2, 2)],
        ("op.layout", ".args[0]", "dim 1 of argument 0: expected a static extent, got n"),
    ),
    "non_max_suppression": (
        lambda boxes, scores: op.vision.all_class_non_max_suppression(
            boxes, scores, *[relax.const(value) for value in (1, 0.5, 0.5)]
        ),
        [unshaped(3), tensor(1, 2, 6)],
        (
            "op.boxes",
            ".args[0]",
            'argument 0: expected a tensor of known shape, got R.Tensor(dtype="float32", ndim=3)',
        ),
    ),
}


def op_findings(mod, severity):
    """The findings, except those about symbols that the parameters do not define."""
    return [finding for finding in found(mod, severity) if not finding[0].startswith("scope.")]


def full(mod, finding):
    """Expand a finding of a table to the full path and the operator name."""
    rule, where, message = finding
    (binding,) = mod["main"].body.blocks[0].bindings
    return rule, VALUE + where, f"`{binding.value.op.name}`: {message}"


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    emit, types = RIGHT[name]
    mod = of_call(types, emit)
    assert not op_findings(mod, "error")
    assert not op_findings(mod, "warning")


@pytest.mark.parametrize("name", DISPROVED)
def test_disproved_is_an_error(name):
    emit, types, finding = DISPROVED[name]
    mod = of_call(types, emit)
    assert op_findings(mod, "error") == [full(mod, finding)]
    assert not op_findings(mod, "warning")


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_is_a_warning(name):
    emit, types, finding = UNKNOWN[name]
    mod = of_call(types, emit)
    assert not op_findings(mod, "error")
    assert op_findings(mod, "warning") == [full(mod, finding)]


@pytest.mark.parametrize("name", UNREAD)
def test_calls_that_abort_tvms_inference_are_errors(name):
    emit, types, finding = UNREAD[name]
    mod = of_call(types, emit)
    assert op_findings(mod, "error") == [full(mod, finding)]


def test_indices_are_seen_through_variables():
    x = relax.Var("x", tensor(5, 2))
    indices, alias = (relax.Var(name, tensor(2, dtype="int64")) for name in ("i", "j"))
    result = relax.Var("y", tensor(2, 2))
    taking = typed(op.take(x, alias, axis=0), tensor(2, 2))
    mod = module([x], [(indices, const([0, 5])), (alias, indices), (result, taking)], result)
    assert_found(
        mod,
        (
            "op.index",
            "main.body.blocks[0].bindings[2].value.args[1]",
            "`relax.take`: the indices of argument 1: expected -5 to 4 (dim 0 of argument 0 is 5), "
            "got 0 to 5",
        ),
    )


def test_a_wrong_call_is_the_only_finding():
    """Uses of its result are not reported."""
    x, w = relax.Var("x", tensor(4, 5)), relax.Var("w", tensor(6, 7))
    y, z = relax.Var("y", tensor(4, 7)), relax.Var("z", tensor(4, 7))
    product = typed(op.matmul(x, w), tensor(4, 7))
    mod = module([x, w], [(y, product), (z, typed(op.nn.relu(y), tensor(4, 7)))], z)
    assert [rule for rule, _, _ in found(mod)] == ["op.matmul"]


def test_equal_attributes_of_two_calls_are_one_inference():
    """The length of an arange depends on its arguments, even for equal attributes."""
    builder = relax.BlockBuilder()
    x, y = relax.Var("x", tensor(n)), relax.Var("y", tensor(m))
    with builder.function("main", [x, y]):
        ranges = [builder.emit(op.arange(0, end, 1, "int64")) for end in (n, m)]
        builder.emit_func_output(builder.emit(relax.Tuple(ranges)))
    assert_found(builder.get())


if __name__ == "__main__":
    tvm.testing.main()
