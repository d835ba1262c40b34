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
"""Relay operators that give the same elements another shape, join or split: values."""

import numpy as np
import pytest
import tvm.testing
from tvm import relax

from helpers.relax_modules import cpu, integers
from helpers.relay_checks import check_program, program, run_program
from helpers.relay_interpreter import Interpreter
from tvm_fixes import pipeline
from tvm_fixes.errors import UnsupportedOperatorError
from tvm_fixes.frontend.relay import from_relay


def test_reshape_resolves_special_values():
    x = integers(2, 3, 4, 5)
    check_program(
        {
            "reshape(%x0, newshape=[-1])": x.reshape(-1),
            "reshape(%x0, newshape=[4, 0, -1])": x.reshape(4, 3, -1),
            "reshape(%x0, newshape=[0, -2])": x,
            "reshape(%x0, newshape=[-3, -3])": x.reshape(6, 20),
            "reshape(%x0, newshape=[0, -3, -2])": x.reshape(2, 12, 5),
            "reshape(%x0, newshape=[-4, 1, -1, -2])": x.reshape(1, 2, 3, 4, 5),
            "reshape(%x0, newshape=[-3, -4, -1, 2, 5])": x.reshape(6, 2, 2, 5),
            "reshape(%x0, newshape=[-1, 2], reverse=1)": x.reshape(-1, 2),
            "contrib_reverse_reshape(%x0, newshape=[-1, 0])": x.reshape(24, 5),
            "_contrib_reverse_reshape(%x0, newshape=[-3, 0, 0])": x.reshape(6, 4, 5),
            "squeeze(expand_dims(%x0, axis=-1, num_newaxis=3))": x,
        },
        x,
    )


def test_reshape_of_empty_and_scalar():
    x, y = np.zeros((0, 3), "int32"), np.array(7, "int32")
    check_program(
        {
            "reshape(%x0, newshape=[3, 0], allowzero=1)": x.reshape(3, 0),
            "reshape(%x1, newshape=[1, 1])": y.reshape(1, 1),
            "reshape(reshape(%x1, newshape=[1]), newshape=[])": y,
        },
        x,
        y,
    )


def test_reshape_with_unknown_extents():
    x = integers(4, 3, 6)
    check_program(
        {
            "reshape(%x0, newshape=[-1, 9])": x.reshape(-1, 9),
            "reshape(%x0, newshape=[0, -1])": x.reshape(4, -1),
            "reshape(%x0, newshape=[-3, 2, -1])": x.reshape(12, 2, -1),
            "reshape(%x0, newshape=[-4, 2, -1, -2])": x.reshape(2, 2, 3, 6),
            "contrib_reverse_reshape(%x0, newshape=[-1, 0])": x.reshape(12, 6),
            "transpose(%x0)": x.T,
            "expand_dims(%x0, axis=1, num_newaxis=2)": x[:, None, None],
            "reshape_like(%x0, %x0, lhs_begin=1, rhs_begin=1)": x,
        },
        x,
        shapes=[("?", 3, "?")],
    )


def test_reshape_like_replaces_a_range():
    x, y = integers(2, 3, 4), integers(6, 5, 2, 2)
    check_program(
        {
            "reshape_like(%x0, %x1, lhs_begin=0, lhs_end=2, rhs_begin=0, rhs_end=1)": (
                x.reshape(6, 4)
            ),
            "reshape_like(%x0, %x1, lhs_begin=-1, rhs_begin=-2)": x.reshape(2, 3, 2, 2),
        },
        x,
        y,
    )


def test_squeeze_drops_the_named_axes():
    x = integers(1, 3, 1, 1)
    check_program(
        {
            "squeeze(%x0)": x.squeeze(),
            "squeeze(%x0, axis=[0])": x[0],
            "squeeze(%x0, axis=[-1, 0])": x[0, ..., 0],
            "squeeze(%x0, axis=[2])": x[:, :, 0],
            "squeeze(%x0, axis=[])": x,
        },
        x,
    )


def test_squeeze_of_an_unknown_extent_is_checked():
    body = "squeeze(%x0, axis=[0])"
    np.testing.assert_array_equal(
        run_program(body, integers(1, 3), shapes=[("?", 3)]), integers(1, 3)[0]
    )
    with pytest.raises(Exception, match=r"[Mm]atch|extent|shape"):
        run_program(body, integers(2, 3), shapes=[("?", 3)])


def test_transpose_and_expand_dims():
    x = integers(2, 3, 5)
    check_program(
        {
            "transpose(%x0)": x.T,
            "transpose(%x0, axes=[0, -1, 1])": x.transpose(0, 2, 1),
            "expand_dims(%x0, axis=0)": x[None],
            "expand_dims(%x0, axis=-2, num_newaxis=2)": x.reshape(2, 3, 1, 1, 5),
            "expand_dims(%x0, axis=1, num_newaxis=0)": x,
        },
        x,
    )


def test_concatenate_stack_and_meshgrid():
    x, y = integers(2, 3), integers(4, 3, seed=1)
    u, v, s = integers(3), integers(2, seed=1), np.array(5, "float32")
    check_program(
        {
            "concatenate((%x0, %x1, %x0), axis=0)": np.concatenate([x, y, x]),
            "concatenate((%x0, %x0), axis=-1)": np.concatenate([x, x], -1),
            "stack((%x0, %x0), axis=-1)": np.stack([x, x], -1),
            "stack((%x0, %x0), axis=0)": np.stack([x, x]),
            "stack((%x4, %x4), axis=0)": np.stack([s, s]),
            "meshgrid((%x2, %x3, %x4)).0": np.meshgrid(u, v, s, indexing="ij")[0],
            "meshgrid((%x2, %x3, %x4)).1": np.meshgrid(u, v, s, indexing="ij")[1],
            'meshgrid((%x2, %x3), indexing="xy").0': np.meshgrid(u, v)[0],
            'meshgrid((%x2, %x3), indexing="xy").1': np.meshgrid(u, v)[1],
        },
        x,
        y,
        u,
        v,
        s,
    )


def test_join_and_split_unknown_extents():
    x, y = integers(4, 3), integers(2, 3, seed=1)
    check_program(
        {
            "concatenate((%x0, %x1), axis=0)": np.concatenate([x, y]),
            "stack((%x0, %x0), axis=1)": np.stack([x, x], 1),
            "split(%x0, indices_or_sections=2).1": x[2:],
            "split(%x0, indices_or_sections=[1]).1": x[1:],
            "split(%x0, indices_or_sections=[1]).0": x[:1],
            "split(%x0, indices_or_sections=3, axis=1).2": x[:, 2:],
            "repeat(%x0, repeats=2, axis=0)": x.repeat(2, 0),
            "tile(%x0, reps=[2, 1])": np.tile(x, (2, 1)),
            "reverse(%x0, axis=0)": x[::-1],
        },
        x,
        y,
        shapes=[("?", 3), ("?", 3)],
    )


def test_split():
    x = integers(6, 5)
    check_program(
        {
            "split(%x0, indices_or_sections=3).2": x[4:],
            "split(%x0, indices_or_sections=1).0": x,
            "split(%x0, indices_or_sections=[1, 4], axis=-1).1": x[:, 1:4],
            "split(%x0, indices_or_sections=[1, 4], axis=1).2": x[:, 4:],
        },
        x,
    )


def test_repeat_tile_and_reverse():
    x = integers(2, 3)
    check_program(
        {
            "repeat(%x0, repeats=3, axis=-1)": x.repeat(3, -1),
            "repeat(%x0, repeats=1, axis=0)": x,
            "tile(%x0, reps=[2])": np.tile(x, 2),
            "tile(%x0, reps=[2, 1, 3])": np.tile(x, (2, 1, 3)),
            "reverse(%x0, axis=-1)": x[:, ::-1],
            "reverse(%x0, axis=0)": x[::-1],
        },
        x,
    )


def test_reverse_sequence():
    x, lengths = integers(4, 3, 2), np.array([0, 2, 4], "int32")
    expected = x.copy()
    for batch, length in enumerate(lengths):
        expected[:length, batch] = x[:length, batch][::-1]
    swapped = x.transpose(1, 0, 2)
    check_program(
        {
            "reverse_sequence(%x0, %x1, seq_axis=0, batch_axis=1)": expected,
            "reverse_sequence(%x2, %x1)": expected.transpose(1, 0, 2),
            "reverse_sequence(%x2, %x1, seq_axis=-2, batch_axis=-3)": expected.transpose(1, 0, 2),
        },
        x,
        lengths,
        np.ascontiguousarray(swapped),
    )


def test_auto_scheduler_layout_is_rejected():
    body = 'auto_scheduler_layout_transform(%x0, src_layout="2a", dst_layout="2a")'
    with pytest.raises(UnsupportedOperatorError, match="auto-scheduler"):
        run_program(body, integers(2))


@pytest.mark.parametrize("stride", (1, 2, -1, -2))
def test_slices_of_an_axis_of_unknown_extent(stride):
    """Of any length, between functions that are fused; the shape has no T.if_then_else."""
    rng = np.random.default_rng(stride + 2)
    for begin, end in rng.integers(-6, 7, (6, 2)):
        if stride < 0 and end < 0:
            end = -9
        body = (
            f"%0 = strided_slice(%x, begin=[{begin}], end=[{end}], strides=[{stride}], axes=[1]);"
            " sqrt(add(abs(%0), 0.3f))"
        )
        mod = program(body, "%x: Tensor[(2, ?), float32]")
        built = relax.build(from_relay(mod), cpu(), relax_pipeline=pipeline())
        machine = relax.VirtualMachine(built, tvm.cpu())
        for extent in (0, 1, 4, 9):
            x = rng.normal(size=(2, extent)).astype("float32")
            expected = Interpreter(mod).run(x)
            result = machine["main"](tvm.runtime.tensor(x)).numpy()
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_symbol_that_equals_another_one():
    """An axis and its first element broadcast to the axis, if that is not empty."""
    x = np.arange(5, dtype="int8")
    body = "%0 = strided_slice(%x0, begin=[0], end=[1], strides=[1], axes=[0]); less(%0, %x0)"
    np.testing.assert_array_equal(run_program(body, x, shapes=["?"]), x[:1] < x)


if __name__ == "__main__":
    tvm.testing.main()
