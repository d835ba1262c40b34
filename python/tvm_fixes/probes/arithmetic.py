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
"""Probes of elementwise arithmetic, index arithmetic and sorting."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import numpy as np
import tvm
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from ..fixes.elements import (
    ARITHMETIC_LEGALIZE,
    FLOAT_ARITHMETIC,
    INTEGER_DIVISION,
    INTEGER_OVERFLOW,
    SORT_BY_KEYS,
    SPLIT_INDICES,
)
from ..lowering import pipeline
from ._run import run
from .probe import Probe, register


@I.ir_module
class _Divide:
    @R.function
    def main(x: R.Tensor((4,), "int32"), y: R.Tensor((4,), "int32")) -> R.Tensor((4,), "int32"):
        with R.dataflow():
            out = R.divide(x, y)
            R.output(out)
        return out


@I.ir_module
class _Increase:
    @T.prim_func(private=True, s_tir=True)
    def increases(x: T.Buffer((2,), "int32"), y: T.Buffer((2,), "bool")) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(2):
            with T.sblock("increases"):
                v = T.axis.spatial(2, i)
                y[v] = x[v] < x[v] + 1

    @R.function
    def main(x: R.Tensor((2,), "int32")) -> R.Tensor((2,), "bool"):
        cls = _Increase
        with R.dataflow():
            out = R.call_tir(cls.increases, (x,), out_ty=R.Tensor((2,), dtype="bool"))
            R.output(out)
        return out


@I.ir_module
class _Split:
    @T.prim_func(private=True, s_tir=True)
    def gather(x: T.Buffer((15,), "float32"), y: T.Buffer((16,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(16):
            with T.sblock("gather"):
                v = T.axis.spatial(16, i)
                y[v] = x[((v + 12) // 7 * 7 + (v + 5) % 7) % 15]

    @R.function
    def main(x: R.Tensor((15,), "float32")) -> R.Tensor((16,), "float32"):
        cls = _Split
        with R.dataflow():
            out = R.call_tir(cls.gather, (x,), out_ty=R.Tensor((16,), "float32"))
            R.output(out)
        return out


@I.ir_module
class _Subtract:
    @T.prim_func(private=True, s_tir=True)
    def subtract(x: T.Buffer((2,), "float32"), y: T.Buffer((2,), "float32")) -> None:
        T.func_attr({"tirx.noalias": True})
        for i in range(2):
            with T.sblock("subtract"):
                v = T.axis.spatial(2, i)
                y[v] = x[v] - x[v]

    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        cls = _Subtract
        with R.dataflow():
            out = R.call_tir(cls.subtract, (x,), out_ty=R.Tensor((2,), "float32"))
            R.output(out)
        return out


@I.ir_module
class _Softplus:
    @R.function
    def main(x: R.Tensor((1,), "float32")) -> R.Tensor((1,), "float32"):
        with R.dataflow():
            out = R.nn.softplus(x)
            R.output(out)
        return out


@I.ir_module
class _Sort:
    @R.function
    def main(x: R.Tensor((5,), "float32")) -> R.Tensor((5,), "float32"):
        with R.dataflow():
            out = R.sort(x)
            R.output(out)
        return out


def _softplus_of_negative() -> None:
    got = run(_Softplus, np.array([-25], "float32"))
    np.testing.assert_allclose(got, [1.3887944e-11], rtol=1e-6)


def _sort(relax_pipeline: str | tvm.transform.Pass) -> None:
    got = run(_Sort, np.array([2, np.nan, 1, 3, 0], "float32"), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, [0, 1, 2, 3, np.nan])


def _divide(relax_pipeline: str | tvm.transform.Pass) -> None:
    least = np.array([-(2**31)] * 4, "int32")
    got = run(_Divide, least, np.array([-1, 1, 2, -2], "int32"), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, [-(2**31), -(2**31), -(2**30), 2**30])


register(
    INTEGER_DIVISION,
    Probe(
        stock=lambda: _divide("default"),
        fixed=lambda: _divide(pipeline()),
        symptom=re.compile("SIGFPE: crashed"),
    ),
)


def _subtract(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.array([1.5, np.inf], "float32")
    got = run(_Subtract, x, relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, np.array([0, np.nan], "float32"))


def _increase(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.array([1, 2**31 - 1], "int32")
    np.testing.assert_array_equal(run(_Increase, x, relax_pipeline=relax_pipeline), [True, False])


def _split(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.arange(15, dtype="float32")
    got = run(_Split, x, relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, x[(np.arange(16) + 12) % 15])


register(
    SPLIT_INDICES,
    Probe(
        stock=lambda: _split("default"),
        fixed=lambda: _split(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)

register(
    FLOAT_ARITHMETIC,
    Probe(
        stock=lambda: _subtract("default"),
        fixed=lambda: _subtract(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)

register(
    INTEGER_OVERFLOW,
    Probe(
        stock=lambda: _increase("default"),
        fixed=lambda: _increase(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)

register(
    ARITHMETIC_LEGALIZE,
    Probe(
        stock=_softplus_of_negative,
        fixed=_softplus_of_negative,
        symptom=re.compile(r"AssertionError: .*Not equal to tolerance", re.DOTALL),
    ),
)

register(
    SORT_BY_KEYS,
    Probe(
        stock=lambda: _sort("default"),
        fixed=lambda: _sort(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)
