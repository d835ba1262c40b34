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
"""Relay operators that slice, broadcast and index: values."""

import numpy as np
import pytest
import tvm.testing

from helpers.relax_modules import integers
from helpers.relay_checks import check_program, run_program
from tvm_fixes.errors import RelayError


def indices(*values, dtype="int32"):
    return np.array(values, dtype)


def test_strided_slice():
    x = integers(5, 6)
    check_program(
        {
            "strided_slice(%x0, begin=[1, 2], end=[3, 5], strides=[1, 1])": x[1:3, 2:5],
            "strided_slice(%x0, begin=[1], end=[4], strides=[2])": x[1:4:2],
            "strided_slice(%x0, begin=[-1, 5], end=[-6, 0], strides=[-2, -1])": x[::-2, 5:0:-1],
            "strided_slice(%x0, begin=[0], end=[100], strides=[3])": x[::3],
            "strided_slice(%x0, begin=[1], end=[1], strides=[1])": x[1:1],
            "strided_slice(%x0, begin=[2], end=[6], strides=[2], axes=[-1])": x[:, 2:6:2],
            'strided_slice(%x0, begin=[1, 2], end=[2, -1], strides=[1, 1], slice_mode="size")': x[
                1:3, 2:
            ],
            'strided_slice(%x0, begin=[-3], end=[2], slice_mode="size")': x[2:4],
        },
        x,
    )


def test_strided_slice_of_unknown_extents():
    x = integers(5, 6)
    check_program(
        {
            "strided_slice(%x0, begin=[1, 2], end=[3, 5], strides=[1, 1])": x[1:3, 2:5],
            "strided_slice(%x0, begin=[-3], end=[100], strides=[2])": x[-3::2],
            "strided_slice(%x0, begin=[4], end=[-100], strides=[-1])": x[::-1],
            "strided_slice(%x0, begin=[1], end=[-1], strides=[1], axes=[1])": x[:, 1:-1],
        },
        x,
        shapes=[("?", 6)],
    )


def test_strided_set():
    x, y = integers(4, 5), integers(2, 2, seed=1)
    first, second, third = x.copy(), x.copy(), x.copy()
    first[1:3, 1:5:2] = y
    second[3:1:-1, 5:1:-2] = y
    third[2:] = np.tile(y, (1, 3))[:, :5]
    check_program(
        {
            "strided_set(%x0, %x1, %x3, %x4, %x5)": first,
            "strided_set(%x0, %x1, %x4, %x3, %x6)": second,
            "strided_set(%x0, %x2, %x7, %x8, %x9)": third,
        },
        x,
        y,
        third[2:],
        indices(1, 1),
        indices(3, 5),
        indices(1, 2),
        indices(-1, -2, dtype="int64"),
        indices(-2),
        indices(100),
        indices(1),
    )


def test_slice_like_and_broadcast():
    x, y, row = integers(4, 5), integers(2, 3, seed=1), integers(3, seed=2)
    check_program(
        {
            "slice_like(%x0, %x1)": x[:2, :3],
            "slice_like(%x0, %x1, axes=[-1])": x[:, :3],
            "slice_like(%x0, %x2)": x[:3],
            "broadcast_to(%x2, shape=[2, 4, 3])": np.broadcast_to(row, (2, 4, 3)),
            "broadcast_to_like(%x2, %x1)": np.broadcast_to(row, (2, 3)),
            "collapse_sum_like(%x1, %x2)": y.sum(0),
            "collapse_sum_like(%x1, %x1)": y,
            "collapse_sum_to(%x1, %x3, shape=[2, 1])": y.sum(1, keepdims=True),
        },
        x,
        y,
        row,
        indices(2, 1),
    )


def test_like_operators_with_unknown_extents():
    x, y, row = integers(4, 3), integers(2, 3, seed=1), integers(3, seed=2)
    check_program(
        {
            "slice_like(%x0, %x1)": x[:2],
            "broadcast_to_like(%x2, %x1)": np.broadcast_to(row, (2, 3)),
            "collapse_sum_like(%x1, %x2)": y.sum(0),
        },
        x,
        y,
        row,
        shapes=[("?", 3), ("?", 3), (3,)],
    )


def test_broadcast_to_of_unknown_extents():
    """An extent that is 1 at run time is repeated; any other one must be equal."""
    bodies = {
        "broadcast_to(%x0, shape=[2, 4, 3])": lambda x: np.broadcast_to(x, (2, 4, 3)),
        "broadcast_to_like(%x0, %x1)": lambda x: np.broadcast_to(x, (4, 3)),
        'dyn.broadcast_to(%x0, shape_of(%x1, dtype="int64"))': lambda x: np.broadcast_to(x, (4, 3)),
    }
    other = integers(4, 3, seed=1)
    for rows in (1, 4):
        x = integers(rows, 3)
        expected = {body: compute(x) for body, compute in bodies.items()}
        check_program(expected, x, other, shapes=[("?", 3), ("?", 3)])
    for body in bodies:
        with pytest.raises(Exception, match="match_cast"):
            check_program({body: other}, integers(3, 3), other, shapes=[("?", 3), ("?", 3)])


def test_strided_slices_to_the_end_of_unknown_extents():
    """The memory for the result has no bound that fits in int64."""
    x = integers(6, 4)
    end = 2**31 - 1
    body = (
        f"broadcast_to_like(7f, strided_slice(%x0, begin=[4, 1], end=[{end}, {end}], "
        "strides=[1, 1]))"
    )
    check_program({body: np.full((2, 3), 7, "float32")}, x, shapes=[("?", "?")])


def test_take():
    x = integers(3, 4, 2)
    inside, outside = indices(2, 0, 1), indices([-9, 3], [1, 7])
    check_program(
        {
            "take(%x0, %x1, axis=0)": x[inside],
            'take(%x0, %x1, axis=-2, mode="fast")': x[:, inside],
            "take(%x0, %x2, axis=1)": x[:, outside.clip(0, 3)],
            'take(%x0, %x2, axis=1, mode="wrap")': x[:, outside % 4],
            "take(%x0, %x2)": x.reshape(-1)[outside.clip(0, 23)],
            'take(%x0, %x2, mode="wrap")': x.reshape(-1)[outside % 24],
        },
        x,
        inside,
        outside,
    )


def test_take_with_batch_dims():
    x, at = integers(2, 3, 4), indices([[0, 9], [2, -1]], [[1, 1], [-7, 2]])
    expected = {
        mode: np.stack([x[i][:, fit[i]] for i in range(2)])
        for mode, fit in (("clip", at.clip(0, 3)), ("wrap", at % 4))
    }
    body = 'take(%x0, %x1, axis=2, batch_dims=1, mode="{}")'
    check_program({body.format(mode): value for mode, value in expected.items()}, x, at)


def test_gather_and_gather_nd():
    x, at = integers(2, 3), indices([1, 0, 2, 2], [0, 0, 1, 2], dtype="int64")
    y, columns = integers(2, 3, 4), indices([0, 1, 1], [2, 0, 1])
    batched = indices([[2, 0], [1, 1]])
    check_program(
        {
            "gather(%x0, %x1, axis=1)": np.take_along_axis(x, at, 1),
            "gather(%x0, %x1, axis=-1)": np.take_along_axis(x, at, 1),
            "gather_nd(%x2, %x3)": y[columns[0], columns[1]],
            "gather_nd(%x2, %x4, batch_dims=1, index_rank=1)": np.stack(
                [y[i][batched[0, i]] for i in range(2)]
            ),
            "adv_index((%x2, %x5, %x6))": y[indices([0], [1]), indices(2, 0)],
        },
        x,
        at,
        y,
        columns,
        batched,
        indices([0], [1]),
        indices(2, 0),
    )


REDUCTIONS = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": min,
    "max": max,
}


def scattered(data, at, updates, axis, reduction):
    result = data.copy()
    for position in np.ndindex(*at.shape):
        target = list(position)
        target[axis] = at[position]
        result[tuple(target)] = REDUCTIONS[reduction](result[tuple(target)], updates[position])
    return result


def test_scatter_elements():
    x, at, updates = integers(3, 4), indices([0, 2], [-1, 2], [3, 3]), integers(3, 2, seed=1)
    bodies = {
        f'scatter_elements(%x0, %x1, %x2, axis=1, reduction="{name}")': scattered(
            x, at, updates, 1, name
        )
        for name in REDUCTIONS
    }
    bodies["scatter(%x0, %x1, %x2, axis=-1)"] = scattered(x, at, updates, 1, "update")
    bodies["scatter_add(%x0, %x1, %x2, axis=1)"] = scattered(x, at, updates, 1, "add")
    check_program(bodies, x, at, updates)


def test_scatter_nd():
    x, at, updates = integers(3, 4), indices([0, 2, 2]), integers(3, 4, seed=1)
    single, values = indices([0, 2, 2], [1, 3, 3]), integers(3, seed=2)
    bodies = {}
    for mode in ("update", "add", "mul", "min", "max"):
        rows, elements = x.copy(), x.copy()
        combine = np.frompyfunc(REDUCTIONS[mode], 2, 1)
        for i in range(3):
            rows[at[0, i]] = combine(rows[at[0, i]], updates[i])
            target = tuple(single[:, i])
            elements[target] = combine(elements[target], values[i])
        bodies[f'scatter_nd(%x0, %x1, %x2, mode="{mode}")'] = rows
        bodies[f'scatter_nd(%x0, %x3, %x4, mode="{mode}")'] = elements
    check_program(bodies, x, at, updates, single, values)


def test_sequence_mask_and_one_hot():
    x, lengths, at = integers(3, 2, 2), indices(1, 3), indices([0, 3, 1], [2, -1, 4])
    masked = np.where((np.arange(3)[:, None] < lengths)[..., None], x, np.float32(0.5))
    hot = np.where(at[..., None] == np.arange(4), np.float32(5), np.float32(-1))
    check_program(
        {
            "sequence_mask(%x0, %x1, mask_value=0.5f)": masked,
            "sequence_mask(%x2, %x1, mask_value=0.5f, axis=1)": masked.transpose(1, 0, 2),
            'one_hot(%x3, 5f, -1f, depth=4, axis=-1, dtype="float32")': hot,
            'one_hot(%x3, 5f, -1f, depth=4, axis=1, dtype="float32")': hot.transpose(0, 2, 1),
            'one_hot(%x3, 1, 0, depth=2, axis=0, dtype="int8")': (
                at == np.arange(2)[:, None, None]
            ).astype("int8"),
        },
        x,
        lengths,
        np.ascontiguousarray(x.transpose(1, 0, 2)),
        at,
    )


def test_sparse_to_dense():
    one, two, zero = np.float32(1), np.float32(2), np.float32(0)
    at, values = indices([0, 1], [2, 3], [0, 1]), np.array([1, 2, 3], "float32")
    expected = np.zeros((3, 4), "float32")
    expected[0, 1], expected[2, 3] = 3, 2
    row = np.array([7, 1, 7, 2, 7], "float32")
    check_program(
        {
            "sparse_to_dense(%x0, %x1, 0f, output_shape=[3, 4])": expected,
            "sparse_to_dense(%x2, %x3, 7f, output_shape=[5])": row,
            "sparse_to_dense(1, 2f, 0f, output_shape=[3])": np.array([zero, two, zero]),
            "sparse_to_dense(%x2, 1f, 0f, output_shape=[4])": np.array([zero, one, zero, one]),
        },
        at,
        values,
        indices(1, 3),
        np.array([1, 2], "float32"),
    )


def with_diagonals(x, diagonal, low, high, super_right=True, sub_right=False):
    """MatrixSetDiag as TensorFlow defines it."""
    result, length = x.copy(), diagonal.shape[-1]
    rows, columns = x.shape[-2:]
    band = diagonal if low != high else diagonal[..., None, :]
    for k in range(low, high + 1):
        count = min(rows + min(k, 0), columns - max(k, 0))
        right = super_right if k >= 0 else sub_right
        offset = length - count if right else 0
        for i in range(count):
            row, column = i - min(k, 0), i + max(k, 0)
            result[..., row, column] = band[..., high - k, offset + i]
    return result


def test_matrix_set_diag():
    x = integers(2, 3, 4)
    main, above, band = (integers(2, *s, seed=i) for i, s in enumerate([(3,), (3,), (3, 3)]))
    check_program(
        {
            "matrix_set_diag(%x0, %x1)": with_diagonals(x, main, 0, 0),
            "matrix_set_diag(%x0, %x2, k1=1, k2=1)": with_diagonals(x, above, 1, 1),
            "matrix_set_diag(%x0, %x3, k1=-1, k2=1)": with_diagonals(x, band, -1, 1),
            "matrix_set_diag(%x0, %x3, k1=-1, k2=1, super_diag_right_align=0, "
            "sub_diag_right_align=1)": with_diagonals(x, band, -1, 1, False, True),
        },
        x,
        main,
        above,
        band,
    )


def test_unravel_argwhere_trilu_and_permutation():
    flat, shape = indices(22, 41, 37), indices(7, 6)
    x = np.array([[0, 2, 0], [3, 0, 1]], "int32")
    order = indices(2, 0, 3, 1, dtype="int64")
    check_program(
        {
            "unravel_index(%x0, %x1)": np.stack(np.unravel_index(flat, shape)).astype("int32"),
            "argwhere(%x2)": np.argwhere(x).astype("int32"),
            "trilu(%x2, 1)": np.triu(x, 1),
            "trilu(%x2, -1, upper=0)": np.tril(x, -1),
            "trilu(%x2, 0i64)": np.triu(x),
            "invert_permutation(%x3)": np.argsort(order),
        },
        flat,
        shape,
        x,
        order,
    )


def test_unknown_extents():
    x, at = integers(3, 4), indices([0, 2], [1, 0])
    row, written = np.sort(x, 1), x.copy()
    updates = integers(3, 4, seed=1)
    positions = np.argsort(updates, 1).astype("int32")
    np.put_along_axis(written, positions, updates, 1)
    check_program(
        {
            "take(%x0, %x1, axis=0)": x[at],
            "take(%x0, %x1)": x.reshape(-1)[at],
            "gather(%x0, %x3, axis=1)": np.take_along_axis(x, positions, 1),
            "gather_nd(%x0, %x1)": x[at[0], at[1]],
            "adv_index((%x0, %x1))": x[at],
            "scatter_elements(%x0, %x3, %x2, axis=1)": scattered(
                x, positions, updates, 1, "update"
            ),
            'one_hot(%x1, 1f, 0f, depth=4, dtype="float32")': np.eye(4, dtype="float32")[at],
            "argwhere(%x0)": np.argwhere(x).astype("int32"),
            "trilu(%x0, 0)": np.triu(x),
            "sort(%x0)": row,
            'topk(%x0, k=2, ret_type="values", is_ascend=1)': row[:, :2],
            'argsort(%x2, dtype="int32")': np.argsort(updates, 1, kind="stable").astype("int32"),
        },
        x,
        at,
        updates,
        positions,
        shapes=[("?", "?"), (2, "?"), ("?", "?"), ("?", "?")],
    )


def test_indices_out_of_range_are_errors_at_run_time():
    x, at = integers(3, 2), indices([1, 10**8], [0, 1])
    for body in ("gather(%x0, %x1, axis=0)", "gather_nd(%x0, %x1)", "adv_index((%x0, %x1))"):
        with pytest.raises(AssertionError, match="index 100000000 is out of range for axis 0 of 3"):
            run_program(body, x, at)


def test_sliding_window():
    x = integers(2, 7, 9)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 2), (1, 2))[:, ::2, ::3]
    bodies = {"sliding_window(%x0, axis=1, window_shape=[3, 2], strides=[2, 3])": windows}
    for shapes in (None, [("?", 7, "?")]):
        check_program(bodies, x, shapes=shapes)
    for attrs in (
        "axis=1, window_shape=[3], strides=[1, 1]",
        "axis=-1, window_shape=[3], strides=[1]",
        "axis=2, window_shape=[10], strides=[1]",
        "axis=2, window_shape=[1], strides=[0]",
    ):
        with pytest.raises(RelayError, match=r"sliding_window at 1:.*expected"):
            run_program(f"sliding_window(%x0, {attrs})", x)


def test_slices_that_cannot_be_known_are_errors():
    with pytest.raises(RelayError, match="must be a constant"):
        run_program("collapse_sum_to(%x0, %x1)", integers(2, 3), indices(2, 1))


if __name__ == "__main__":
    tvm.testing.main()
