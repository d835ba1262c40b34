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
"""Probes of shapes that a model computes with tensors."""
# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from ..fixes.dynamic_shapes import DYNAMIC_TO_STATIC, RESHAPE_LEGALIZE, SHAPE_BOUNDS
from ..lowering import pipeline
from ._run import run
from .probe import Probe, register


@I.ir_module
class _Positions:
    """Adds its position to each element: Shape, Gather, Range and Add in ONNX."""

    @R.function
    def main(x: R.Tensor(("n",), "int64")) -> R.Tensor(dtype="int64", ndim=1):
        length = T.int64()
        with R.dataflow():
            shape = R.shape_to_tensor(R.shape_of(x))
            target = R.tensor_to_shape(shape)
            _ = R.match_cast(target, R.Shape([length]))
            positions = R.arange(0, length, 1, dtype="int64")
            result = R.add(x, positions)
            R.output(result)
        return result


@I.ir_module
class _Fifths:
    """A pooling with symbolic extents, reshaped to [5, -1]."""

    @R.function
    def main(x: R.Tensor(("n", 3, "k"), "float32")) -> R.Tensor(dtype="float32", ndim=2):
        n, k = T.int64(), T.int64()
        with R.dataflow():
            pairs = R.nn.avg_pool1d(x, pool_size=[2])
            result = R.reshape(pairs, R.shape([5, n * 3 * (k - 1) // 5]))
            R.output(result)
        return result


@I.ir_module
class _Long:
    """Whether n is at least 4, next to a tensor of `n * 2 - 4` elements."""

    @T.prim_func
    def is_long(x: T.handle, rest: T.handle, out: T.Buffer((T.int64(1),), "int64")) -> None:
        n = T.int64()
        _x = T.match_buffer(x, (n,), "float32")
        _rest = T.match_buffer(rest, (n * 2 - 4,), "float32")
        if n >= 4:
            out[0] = T.int64(1)
        else:
            out[0] = T.int64(0)

    @R.function
    def main(x: R.Tensor(("n",), "float32"), rest: R.Tensor(("n * 2 - 4",), "float32")) -> R.Tensor(
        (1,), "int64"
    ):
        cls = _Long
        with R.dataflow():
            result = R.call_tir(cls.is_long, (x, rest), out_ty=R.Tensor((1,), "int64"))
            R.output(result)
        return result


def _reshape(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.arange(90, dtype="float32").reshape(5, 3, 6)
    got = run(_Fifths, x, relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, (x[:, :, 1:] - 0.5).reshape(5, 15))


register(
    RESHAPE_LEGALIZE,
    Probe(
        stock=lambda: _reshape("default"),
        fixed=lambda: _reshape(pipeline()),
        symptom=re.compile("CanProveDivisible"),
    ),
)


def _add_positions(relax_pipeline: str | tvm.transform.Pass) -> None:
    for length in (3, 5):
        x = np.arange(length) * 10
        got = run(_Positions, x, relax_pipeline=relax_pipeline)
        np.testing.assert_array_equal(got, x + np.arange(length))


register(
    DYNAMIC_TO_STATIC,
    Probe(
        stock=lambda: _add_positions("default"),
        fixed=lambda: _add_positions(pipeline()),
        symptom=re.compile("CodeGenVM cannot emit|no lowering for relax.add"),
    ),
)


def _compare_length(relax_pipeline: str | tvm.transform.Pass) -> None:
    for length in (3, 4):
        x, rest = np.zeros(length, "float32"), np.zeros(length * 2 - 4, "float32")
        got = run(_Long, x, rest, relax_pipeline=relax_pipeline)
        np.testing.assert_array_equal(got, [length >= 4])


register(
    SHAPE_BOUNDS,
    Probe(
        stock=lambda: _compare_length("default"),
        fixed=lambda: _compare_length(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)
