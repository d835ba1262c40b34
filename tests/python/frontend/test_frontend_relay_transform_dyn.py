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
"""Relay operators whose inputs decide about the shape of the result: values."""

import numpy as np
import pytest
import tvm.testing

from helpers.relax_modules import integers, run
from helpers.relay_checks import check_program, parameters, program, run_program
from tvm_fixes import pipeline
from tvm_fixes.errors import RelayError
from tvm_fixes.frontend.relay import from_relay


def vector(*values, dtype="int64"):
    return np.array(values, dtype)


def check_constants(bodies, inputs, **constants):
    """Compile expressions of %x0, %x1 ... and of constants by name, and compare the results."""
    params = parameters(inputs)
    for name, value in constants.items():
        params += ", " + parameters([value]).replace("%x0", f"%{name}")
    mod = from_relay(program(f"({', '.join(bodies)},)", params), constants)
    got = run(mod, *inputs, pipeline=pipeline())
    for (body, reference), result in zip(bodies.items(), got, strict=True):
        assert (result.dtype, result.shape) == (reference.dtype, reference.shape), body
        np.testing.assert_array_equal(result, reference, err_msg=body)


def test_constant_shapes():
    x = integers(2, 3, 4)
    check_constants(
        {
            "dyn.reshape(%x0, %shape)": x.reshape(6, 4),
            "dyn.tile(%x0, %pair)": np.tile(x, (2, 1)),
            "dyn.broadcast_to(%x0, %wide)": np.broadcast_to(x, (2, 2, 3, 4)),
            'dyn.zeros(%pair, dtype="int8")': np.zeros((2, 1), "int8"),
            'dyn.ones(%pair, dtype="float64")': np.ones((2, 1)),
            "dyn.full(5, %pair)": np.full((2, 1), 5, "int32"),
            'dyn.full(5, %pair, dtype="float32")': np.full((2, 1), 5, "float32"),
            "dyn.strided_slice(%x0, %low, %high, %step)": x[:, 2:0:-1],
            "dyn.expand_dims(%x0, %axis, num_newaxis=2)": x[:, None, None],
            "dyn.squeeze(%x1, %axes)": integers(2),
            'dyn.topk(%x0, %count, ret_type="values")': -np.sort(-x)[..., :2],
        },
        [x, integers(1, 2, 1)],
        shape=vector(-3, -1),
        pair=vector(2, 1),
        wide=vector(2, 2, 3, 4, dtype="int32"),
        low=vector(0, 2),
        high=vector(2, 0),
        step=vector(1, -1),
        axis=vector(1)[0],
        axes=vector(0, -1),
        count=vector(2),
    )


def test_constant_depth_and_output_shape():
    at, values = np.array([1, 3], "int32"), np.array([5, 6], "float32")
    check_constants(
        {
            'dyn.one_hot(%x0, 1f, 0f, %depth, axis=0, dtype="float32")': (
                np.arange(4)[:, None] == at
            ).astype("float32"),
            "dyn.sparse_to_dense(%x0, %x1, 0f, %length)": vector(0, 5, 0, 6, 0, dtype="float32"),
        },
        [at, values],
        depth=np.array(4, "int64"),
        length=vector(5),
    )


def test_constant_sizes_of_images():
    x = integers(1, 2, 2, 3)
    doubled = x.repeat(2, 2).repeat(2, 3)
    modes = 'method="nearest_neighbor", coordinate_transformation_mode="asymmetric"'
    check_constants(
        {
            "dyn.nn.pad(%x0, %w, 7f)": np.pad(
                x, [(0, 0), (0, 0), (1, 0), (0, 2)], constant_values=7
            ),
            "dyn.nn.upsampling(%x0, %s, %s)": doubled,
            f'dyn.image.resize2d(%x0, %n, %r, {modes}, rounding_method="floor")': doubled,
        },
        [x],
        w=vector(0, 0, 0, 0, 1, 0, 0, 2).reshape(4, 2),
        s=np.array(2, "float32"),
        n=vector(4, 6),
        r=np.zeros(4, "float32"),
    )


def test_reshape_at_run_time():
    x = integers(2, 3, 4)
    targets = {(6, 4): (6, 4), (-1, 3): (8, 3), (0, -1): (2, 12), (-3, 4): (6, 4)}
    bodies = {
        f"dyn.reshape(%x0, %x{i})": x.reshape(shape) for i, shape in enumerate(targets.values(), 1)
    }
    check_program(bodies, x, *(vector(*newshape, dtype="int32") for newshape in targets))


def test_shapes_at_run_time():
    x, shape = integers(1, 3), vector(2, 3)
    check_program(
        {
            "dyn.broadcast_to(%x0, %x1)": np.broadcast_to(x, (2, 3)),
            "dyn.tile(%x0, %x1)": np.tile(x, (2, 3)),
            'dyn.zeros(%x1, dtype="float32")': np.zeros((2, 3), "float32"),
            'dyn.ones(%x1, dtype="int32")': np.ones((2, 3), "int32"),
            "dyn.full(7f, %x1)": np.full((2, 3), 7, "float32"),
        },
        x,
        shape,
    )


def test_strided_slice_at_run_time():
    x, begin = integers(5, 6, 2), vector(1, 4, dtype="int32")
    check_program(
        {
            "dyn.strided_slice(%x0, %x1, %x2, %x3)": x[1:-1:2, 4:0:-2],
            'dyn.strided_slice(%x0, %x1, %x4, %x3, slice_mode="size")': x[1:4, 4:],
        },
        x,
        begin,
        vector(-1, 0, dtype="int32"),
        vector(2, -2, dtype="int32"),
        vector(3, -1, dtype="int32"),
    )


def test_inputs_that_must_be_constants():
    for body in (
        "dyn.squeeze(%x0, %x1)",
        "dyn.topk(%x0, %x1)",
    ):
        with pytest.raises(RelayError, match="must be"):
            run_program(body, integers(1, 3), vector(0))


if __name__ == "__main__":
    tvm.testing.main()
