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
"""Operators of TFLite on floats and integers: against NumPy, PyTorch, and LiteRT if installed."""

from typing import Any

import numpy as np
import torch
import tvm
from torch.nn import functional

from helpers.tflite_models import Case


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def _torch(function: Any, *arrays: np.ndarray, **options: Any) -> np.ndarray:
    return function(*map(torch.from_numpy, arrays), **options).numpy()


def _images(function: Any, data: np.ndarray, *others: np.ndarray, **options: Any) -> np.ndarray:
    """A function of PyTorch on an image whose channels are last."""
    moved = np.ascontiguousarray(data.transpose(0, 3, 1, 2))
    return _torch(function, moved, *others, **options).transpose(0, 2, 3, 1)


def test_elementwise():
    case = Case()
    x, y = floats(2, 3, 4), np.abs(floats(2, 1, 4, seed=1)) + 0.5
    a, b = case.input(x), case.input(y)
    for name, function in {
        "ABS": np.abs,
        "CEIL": np.ceil,
        "COS": np.cos,
        "EXP": np.exp,
        "FLOOR": np.floor,
        "NEG": np.negative,
        "ROUND": np.round,
        "SIGN": np.sign,
        "SIN": np.sin,
        "SQUARE": np.square,
    }.items():
        case.add(name, [a], function(x))
    for name, function in {
        "LOG": np.log,
        "RSQRT": lambda v: 1 / np.sqrt(v),
        "SQRT": np.sqrt,
    }.items():
        case.add(name, [b], function(y))
    for name, result, options in [
        ("ADD", np.maximum(x + y, 0), "RELU"),
        ("SUB", np.clip(x - y, -1, 1), "RELU_N1_TO_1"),
        ("MUL", np.clip(x * y, 0, 6), "RELU6"),
        ("DIV", x / y, "NONE"),
    ]:
        options = (f"{name.capitalize()}Options", {"fused_activation_function": options})
        case.add(name, [a, b], result, options)
    case.add("POW", [b, a], y**x)
    case.add("ATAN2", [a, a], np.arctan2(x, x))
    case.add("FLOOR_DIV", [a, b], np.floor(x / y))
    case.add("FLOOR_MOD", [a, b], np.mod(x, y))
    case.add("SQUARED_DIFFERENCE", [a, b], (x - y) ** 2)
    case.add("MAXIMUM", [a, b], np.maximum(x, y))
    case.add("MINIMUM", [a, b], np.minimum(x, y))
    case.add("ADD_N", [a, a, a], 3 * x)
    case.add("ZEROS_LIKE", [a], np.zeros_like(x))
    for name, function in {"LESS": np.less, "GREATER_EQUAL": np.greater_equal}.items():
        case.add(name, [a, b], function(x, y))
    case.add("CAST", [a], x.astype("int32"), ("CastOptions", {"out_data_type": "int32"}))
    case.add("CAST", [a], x != 0, ("CastOptions", {"out_data_type": "bool"}))
    case.check()


def test_integers_and_booleans():
    case = Case()
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 9, (2, 3, 4)).astype("int32")
    y = rng.integers(1, 5, (3, 1)).astype("int32")
    p, q = x > 0, rng.integers(0, 2, (2, 3, 4)).astype("bool")
    a, b, c, d = (case.input(one) for one in (x, y, p, q))
    case.add(
        "ADD", [a, b], np.maximum(x + y, 0), ("AddOptions", {"fused_activation_function": "RELU"})
    )
    case.add("SUB", [a, b], x - y)
    case.add("MUL", [a, b], x * y)
    case.add("FLOOR_DIV", [a, b], x // y)
    case.add("FLOOR_MOD", [a, b], x % y)
    case.add("MINIMUM", [a, b], np.minimum(x, y))
    case.add("EQUAL", [a, b], x == y)
    case.add("NOT_EQUAL", [a, b], x != y)
    case.add("LESS_EQUAL", [a, b], x <= y)
    case.add("GREATER", [a, b], x > y)
    case.add("LOGICAL_AND", [c, d], p & q)
    case.add("LOGICAL_OR", [c, d], p | q)
    case.add("LOGICAL_NOT", [c], ~p)
    case.add("SELECT", [c, a, a], x)
    case.add("SELECT_V2", [c, a, b], np.where(p, x, y))
    case.add("BITWISE_XOR", [a, b], x ^ y)
    case.add("RIGHT_SHIFT", [a, b], x >> y)
    case.add("CAST", [c], p.astype("float32"))
    case.add("CAST", [a], x.astype("int64"))
    reducer = ("ReducerOptions", {"keep_dims": True})
    axes = case.constant(np.array([1, -1], "int32"))
    case.add("REDUCE_ANY", [c, axes], p.any((1, 2), keepdims=True), reducer)
    case.add("REDUCE_ALL", [d, axes], q.all((1, 2), keepdims=True), reducer)
    case.add("SUM", [a, axes], x.sum((1, 2), keepdims=True, dtype="int32"), reducer)
    case.check()


def test_activations():
    case = Case()
    x = 2 * floats(2, 3, 5)
    a = case.input(x)
    t = torch.from_numpy(x)
    case.add("RELU", [a], np.maximum(x, 0))
    case.add("RELU6", [a], np.clip(x, 0, 6))
    case.add("RELU_N1_TO_1", [a], np.clip(x, -1, 1))
    case.add("RELU_0_TO_1", [a], np.clip(x, 0, 1))
    case.add("ELU", [a], functional.elu(t).numpy())
    case.add("LOGISTIC", [a], torch.sigmoid(t).numpy())
    case.add("TANH", [a], np.tanh(x))
    case.add("HARD_SWISH", [a], functional.hardswish(t).numpy())
    case.add("GELU", [a], functional.gelu(t).numpy(), ("GeluOptions", {"approximate": False}))
    tanh = functional.gelu(t, approximate="tanh").numpy()
    case.add("GELU", [a], tanh, ("GeluOptions", {"approximate": True}))
    leaky = functional.leaky_relu(t, 0.2).numpy()
    case.add("LEAKY_RELU", [a], leaky, ("LeakyReluOptions", {"alpha": 0.2}))
    slope = np.array([0.1, 0.2, -0.3, 0.4, 2], "float32")
    case.add("PRELU", [a, case.constant(slope)], np.where(x < 0, x * slope, x))
    soft = torch.softmax(0.5 * t, -1).numpy()
    case.add("SOFTMAX", [a], soft, ("SoftmaxOptions", {"beta": 0.5}))
    case.add("LOG_SOFTMAX", [a], torch.log_softmax(t, -1).numpy())
    case.add(
        "L2_NORMALIZATION",
        [a],
        functional.normalize(t, dim=-1, eps=1e-6).numpy(),
        ("L2NormOptions", {}),
    )
    image = floats(1, 2, 2, 7)
    squares = np.pad(image**2, [(0, 0)] * 3 + [(2, 2)])
    total = sum(squares[..., k : k + 7] for k in range(5))
    normalized = image * (1.5 + 0.1 * total) ** -0.75
    options = {"radius": 2, "bias": 1.5, "alpha": 0.1, "beta": 0.75}
    case.add(
        "LOCAL_RESPONSE_NORMALIZATION",
        [case.input(image)],
        normalized,
        ("LocalResponseNormalizationOptions", options),
    )
    case.check()


def test_convolutions_and_pooling():
    case = Case()
    x = floats(2, 9, 8, 4)
    a = case.input(x)
    w, bias = floats(6, 3, 3, 4, seed=1), floats(6, seed=2)
    weight = case.constant(w), case.constant(bias)
    oihw = np.ascontiguousarray(w.transpose(0, 3, 1, 2))
    options = {"stride_w": 2, "stride_h": 1, "padding": "VALID"}
    wanted = _images(functional.conv2d, x, oihw, bias, stride=(1, 2))
    case.add("CONV_2D", [a, *weight], wanted, ("Conv2DOptions", options))
    # SAME: 9 rows with a stride of 2 have a padding of 1 and 1; 8 columns 0 and 1.
    options = {"stride_w": 2, "stride_h": 2, "padding": "SAME", "fused_activation_function": "RELU"}
    padded = np.pad(x, [(0, 0), (1, 1), (0, 1), (0, 0)])
    wanted = np.maximum(_images(functional.conv2d, padded, oihw, bias, stride=2), 0)
    case.add("CONV_2D", [a, *weight], wanted, ("Conv2DOptions", options))
    options = {"stride_w": 1, "stride_h": 1, "padding": "SAME", "dilation_h_factor": 2}
    wanted = _images(functional.conv2d, x, oihw, bias, padding=(2, 1), dilation=(2, 1))
    case.add("CONV_2D", [a, *weight], wanted, ("Conv2DOptions", options))
    grouped = floats(6, 3, 3, 2, seed=3)
    wanted = _images(
        functional.conv2d, x, np.ascontiguousarray(grouped.transpose(0, 3, 1, 2)), bias, groups=2
    )
    options = {"stride_w": 1, "stride_h": 1, "padding": "VALID"}
    case.add("CONV_2D", [a, case.constant(grouped), weight[1]], wanted, ("Conv2DOptions", options))
    deep = floats(1, 3, 2, 8, seed=4)
    wanted = _images(
        functional.conv2d, x, np.ascontiguousarray(deep.transpose(3, 0, 1, 2)), groups=4
    )
    options = {**options, "depth_multiplier": 2}
    case.add(
        "DEPTHWISE_CONV_2D", [a, case.constant(deep)], wanted, ("DepthwiseConv2DOptions", options)
    )
    up = floats(5, 3, 3, 4, seed=5)
    iohw = np.ascontiguousarray(up.transpose(3, 0, 1, 2))
    for padding, shape, crop in [
        ("VALID", [2, 19, 17, 5], (slice(None), slice(None))),
        ("SAME", [2, 18, 16, 5], (slice(0, 18), slice(0, 16))),
    ]:
        full = _images(functional.conv_transpose2d, x, iohw, bias[:5], stride=2)
        target = case.constant(np.array(shape, "int32"))
        options = {
            "stride_w": 2,
            "stride_h": 2,
            "padding": padding,
            "fused_activation_function": "RELU",
        }
        operands = [target, case.constant(up), a, case.constant(bias[:5])]
        wanted = np.maximum(full[:, crop[0], crop[1]], 0)
        case.add("TRANSPOSE_CONV", operands, wanted, ("TransposeConvOptions", options))
    pool = {"stride_w": 2, "stride_h": 2, "filter_width": 3, "filter_height": 2, "padding": "VALID"}
    wanted = _images(functional.max_pool2d, x, kernel_size=(2, 3), stride=2)
    case.add("MAX_POOL_2D", [a], wanted, ("Pool2DOptions", pool))
    wanted = _images(functional.avg_pool2d, x, kernel_size=(2, 3), stride=2)
    case.add("AVERAGE_POOL_2D", [a], wanted, ("Pool2DOptions", pool))
    wanted = np.sqrt(_images(functional.avg_pool2d, x**2, kernel_size=(2, 3), stride=2))
    case.add("L2_POOL_2D", [a], wanted, ("Pool2DOptions", pool))
    same = {"stride_w": 1, "stride_h": 1, "filter_width": 3, "filter_height": 3, "padding": "SAME"}
    wanted = _images(
        functional.avg_pool2d, x, kernel_size=3, stride=1, padding=1, count_include_pad=False
    )
    case.add("AVERAGE_POOL_2D", [a], wanted, ("Pool2DOptions", same))
    volume, cube = floats(1, 4, 5, 6, 2, seed=6), floats(2, 3, 2, 2, 3, seed=7)
    wanted = _torch(
        functional.conv3d,
        np.ascontiguousarray(volume.transpose(0, 4, 1, 2, 3)),
        np.ascontiguousarray(cube.transpose(4, 3, 0, 1, 2)),
        stride=(1, 1, 2),
    ).transpose(0, 2, 3, 4, 1)
    options = {"stride_d": 1, "stride_h": 1, "stride_w": 2, "padding": "VALID"}
    case.add(
        "CONV_3D", [case.input(volume), case.constant(cube)], wanted, ("Conv3DOptions", options)
    )
    case.check()


def test_products_and_reductions():
    case = Case()
    x, w, bias = floats(2, 3, 4), floats(5, 4, seed=1), floats(5, seed=2)
    a, weight, b = case.input(x), case.constant(w), case.constant(bias)
    relu = {"fused_activation_function": "RELU"}
    case.add(
        "FULLY_CONNECTED",
        [a, weight, b],
        np.maximum(x.reshape(6, 4) @ w.T + bias, 0),
        ("FullyConnectedOptions", relu),
    )
    case.add(
        "FULLY_CONNECTED",
        [a, weight, -1],
        x @ w.T,
        ("FullyConnectedOptions", {"keep_num_dims": True}),
    )
    wide = floats(3, 8, seed=3)
    case.add(
        "FULLY_CONNECTED",
        [a, case.constant(wide)],
        x.reshape(3, 8) @ wide.T,
        ("FullyConnectedOptions", {}),
    )
    y = floats(1, 3, 5, seed=4)
    c = case.input(y)
    adjoint = ("BatchMatMulOptions", {"adj_x": True, "adj_y": False})
    case.add("BATCH_MATMUL", [a, c], x.transpose(0, 2, 1) @ y, adjoint)
    z = floats(2, 6, 4, seed=5)
    adjoint = ("BatchMatMulOptions", {"adj_x": False, "adj_y": True})
    case.add("BATCH_MATMUL", [a, case.constant(z)], x @ z.transpose(0, 2, 1), adjoint)
    axes = case.constant(np.array([-1, 1], "int32"))
    for name, function in {
        "MEAN": np.mean,
        "SUM": np.sum,
        "REDUCE_PROD": np.prod,
        "REDUCE_MAX": np.max,
        "REDUCE_MIN": np.min,
    }.items():
        case.add(
            name, [a, axes], function(x, axis=(1, 2)), ("ReducerOptions", {"keep_dims": False})
        )
    axis = case.constant(np.array(1, "int32"))
    ints = {"output_type": "int32"}
    case.add("ARG_MAX", [a, axis], x.argmax(1).astype("int32"), ("ArgMaxOptions", ints))
    case.add(
        "ARG_MIN",
        [a, axis],
        x.argmin(1).astype("int64"),
        ("ArgMinOptions", {"output_type": "int64"}),
    )
    backward = np.cumsum(x[:, ::-1], 1)[:, ::-1]
    case.add("CUMSUM", [a, axis], np.cumsum(x, 1), ("CumsumOptions", {}))
    case.add(
        "CUMSUM", [a, axis], backward - x, ("CumsumOptions", {"exclusive": True, "reverse": True})
    )
    order = np.argsort(-x, -1)[..., :2]
    largest = np.take_along_axis(x, order, -1)
    case.add("TOPK_V2", [a, case.constant(np.array(2, "int32"))], [largest, order.astype("int32")])
    case.check()


def test_shapes_and_parts():
    case = Case()
    x = floats(2, 3, 4)
    a = case.input(x)

    def ints(*values: Any) -> int:
        return case.constant(np.array(values[0] if len(values) == 1 else values, "int32"))

    case.add("RESHAPE", [a, ints(4, -1)], x.reshape(4, 6))
    case.add("RESHAPE", [a], x.reshape(24), ("ReshapeOptions", {"new_shape": [24]}))
    case.add("EXPAND_DIMS", [a, ints(-1)], x[..., None])
    one = floats(1, 3, 1, seed=1)
    b = case.input(one)
    case.add("SQUEEZE", [b], one.reshape(3), ("SqueezeOptions", {}))
    case.add("SQUEEZE", [b], one[..., 0], ("SqueezeOptions", {"squeeze_dims": [-1]}))
    case.add("TRANSPOSE", [a, ints(2, 0, 1)], x.transpose(2, 0, 1))
    case.add(
        "CONCATENATION", [a, a], np.concatenate([x, x], -1), ("ConcatenationOptions", {"axis": -1})
    )
    case.add("PACK", [a, a], np.stack([x, x], 1), ("PackOptions", {"axis": 1, "values_count": 2}))
    case.add("UNPACK", [a], [x[:, 0], x[:, 1], x[:, 2]], ("UnpackOptions", {"axis": 1, "num": 3}))
    case.add("SPLIT", [ints([2]), a], np.split(x, 2, 2), ("SplitOptions", {"num_splits": 2}))
    parts = [x[..., :1], x[..., 1:]]
    case.add("SPLIT_V", [a, ints(1, -1), ints(-1)], parts, ("SplitVOptions", {"num_splits": 2}))
    case.add("TILE", [a, ints(1, 2, 1)], np.tile(x, (1, 2, 1)))
    case.add("BROADCAST_TO", [b, ints(2, 3, 4)], np.broadcast_to(one, (2, 3, 4)), version=2)
    case.add("FILL", [ints(2, 3), case.constant(np.float32(7))], np.full((2, 3), 7, "float32"))
    case.add("SHAPE", [a], np.array([2, 3, 4], "int32"), ("ShapeOptions", {"out_type": "int32"}))
    case.add("RANK", [a], np.array(3, "int32"))
    case.add("RANGE", [ints(1), ints(9), ints(3)], np.arange(1, 9, 3, "int32"))
    pads = ints([[0, 0], [1, 2], [0, 1]])
    widths = [(0, 0), (1, 2), (0, 1)]
    case.add("PAD", [a, pads], np.pad(x, widths))
    case.add("PADV2", [a, pads, case.constant(np.float32(5))], np.pad(x, widths, constant_values=5))
    case.add(
        "MIRROR_PAD",
        [a, pads],
        np.pad(x, widths, "reflect"),
        ("MirrorPadOptions", {"mode": "REFLECT"}),
    )
    case.add(
        "MIRROR_PAD",
        [a, pads],
        np.pad(x, widths, "symmetric"),
        ("MirrorPadOptions", {"mode": "SYMMETRIC"}),
    )
    case.add("REVERSE_V2", [a, ints([1])], x[:, ::-1])
    lengths = case.constant(np.array([2, 3], "int32"))
    reversed_ = np.stack([x[0][[1, 0, 2]], x[1][::-1]])
    case.add(
        "REVERSE_SEQUENCE", [a, lengths], reversed_, ("ReverseSequenceOptions", {"seq_dim": 1})
    )
    case.add("SLICE", [a, ints(0, 1, 1), ints(-1, 2, 2)], x[:, 1:, 1:3])
    for begin, end, steps, masks, wanted in [
        ([0, 0, 0], [2, 3, 4], [1, 2, 3], {}, x[:, ::2, ::3]),
        ([0, -1, 0], [2, 0, -1], [1, -1, 1], {}, x[:, -1:0:-1, 0:-1]),
        ([9, 0, 2], [9, 9, 9], [1, -1, 1], {"begin_mask": 3, "end_mask": 7}, x[:, ::-1, 2:]),
        ([1, 0], [2, 4], [1, 1], {"shrink_axis_mask": 1}, x[1, 0:4]),
        (
            [0, 0, -1],
            [0, 1, 0],
            [1, 1, 1],
            {"new_axis_mask": 2, "ellipsis_mask": 1, "shrink_axis_mask": 4},
            x[..., None, -1],
        ),
    ]:
        bounds = [ints(begin), ints(end), ints(steps)]
        case.add("STRIDED_SLICE", [a, *bounds], wanted, ("StridedSliceOptions", masks))
    case.check()


def test_blocks():
    case = Case()
    x = floats(1, 4, 6, 8)
    a = case.input(x)
    blocks = x.reshape(1, 2, 2, 3, 2, 8).transpose(0, 1, 3, 2, 4, 5).reshape(1, 2, 3, 32)
    case.add("SPACE_TO_DEPTH", [a], blocks, ("SpaceToDepthOptions", {"block_size": 2}))
    space = x.reshape(1, 4, 6, 2, 2, 2).transpose(0, 1, 3, 2, 4, 5).reshape(1, 8, 12, 2)
    case.add("DEPTH_TO_SPACE", [a], space, ("DepthToSpaceOptions", {"block_size": 2}))
    sizes = case.constant(np.array([2, 3], "int32"))
    pads = case.constant(np.array([[1, 1], [0, 3]], "int32"))
    padded = np.pad(x, [(0, 0), (1, 1), (0, 3), (0, 0)])
    batches = padded.reshape(1, 3, 2, 3, 3, 8).transpose(2, 4, 0, 1, 3, 5).reshape(6, 3, 3, 8)
    case.add("SPACE_TO_BATCH_ND", [a, sizes, pads], batches)
    case.add("BATCH_TO_SPACE_ND", [case.input(batches), sizes, pads], x)
    case.check()


def test_indices():
    case = Case()
    x = floats(2, 3, 4, 5)
    a = case.input(x)
    places = np.array([[2, 0], [1, 1]], "int32")
    b = case.input(places)
    case.add("GATHER", [a, b], x[:, places], ("GatherOptions", {"axis": 1}))
    batched = np.stack([x[k][:, places[k]] for k in range(2)])
    case.add("GATHER", [a, b], batched, ("GatherOptions", {"axis": 2, "batch_dims": 1}))
    vectors = np.array([[0, 2], [1, 0], [1, 1]], "int32")
    c = case.input(vectors)
    case.add("GATHER_ND", [a, c], x[vectors[:, 0], vectors[:, 1]])
    added = np.zeros((3, 3), "float32")
    np.add.at(added, (vectors[:, 0], vectors[:, 1]), [1, 2, 3])
    updates, shape = (
        case.constant(np.array([1, 2, 3], "float32")),
        case.constant(np.array([3, 3], "int32")),
    )
    case.add("SCATTER_ND", [c, updates, shape], added)
    table = floats(4, 3, seed=1)
    lookup = np.array([3, 0, 3], "int32")
    case.add("EMBEDDING_LOOKUP", [case.input(lookup), case.constant(table)], table[lookup])
    depth, on, off = (
        case.constant(np.array(v, d)) for v, d in ((4, "int32"), (2, "float32"), (-1, "float32"))
    )
    hot = np.where(places[:, None] == np.arange(4)[None, :, None], 2, -1).astype("float32")
    case.add("ONE_HOT", [b, depth, on, off], hot, ("OneHotOptions", {"axis": 1}))
    row = floats(2, 3, seed=2)
    case.add("MATRIX_DIAG", [case.input(row)], np.stack([np.diag(one) for one in row]))
    case.check()


def test_resize():
    case = Case()
    x = floats(1, 4, 5, 3)
    a = case.input(x)
    size = case.constant(np.array([7, 10], "int32"))
    for align, half in [(False, False), (True, False), (False, True)]:
        options = {"align_corners": align, "half_pixel_centers": half}
        wanted = (
            None
            if not (align or half)
            else _images(
                functional.interpolate, x, size=(7, 10), mode="bilinear", align_corners=align
            )
        )
        case.add(
            "RESIZE_BILINEAR",
            [a, size],
            wanted,
            ("ResizeBilinearOptions", options),
            shape=(1, 7, 10, 3),
        )
        rows, columns = (
            _nearest(before, after, align, half) for before, after in ((4, 7), (5, 10))
        )
        case.add(
            "RESIZE_NEAREST_NEIGHBOR",
            [a, size],
            x[:, rows][:, :, columns],
            ("ResizeNearestNeighborOptions", options),
        )
    case.check()


def _nearest(before: int, after: int, align: bool, half: bool) -> np.ndarray:
    places = np.arange(after)
    if align:
        found = np.floor(places * ((before - 1) / (after - 1)) + 0.5)
    else:
        found = np.floor((places + 0.5 * half) * (before / after))
    return np.minimum(found, before - 1).astype("int64")


if __name__ == "__main__":
    tvm.testing.main()
