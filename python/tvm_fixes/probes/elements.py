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

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import math
import re

import numpy as np
import tvm
from tvm import relax, tirx
from tvm.s_tir import SBlock
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm_ffi import structural_walk

from ..fixes.elements import (
    AVERAGE_POOL,
    COMPARISON_LEGALIZE,
    CREATION_LEGALIZE,
    DECOMPOSE_REDUCTION,
    ELEMENTARY_FUNCTIONS,
    ELEMENTWISE_SCHEDULE,
    INLINE_ELEMENTWISE,
    POOL_CEIL_MODE,
    POOL_WINDOW,
    REDUCTION_LEGALIZE,
    REDUCTION_SCHEDULE,
    RESIZE_LEGALIZE,
    SLP_VECTORIZER,
    SOFTMAX_LEGALIZE,
    SPLIT_DATAFLOW,
    STRIDED_SLICE_LEGALIZE,
)
from ..lowering import pipeline
from ._run import run
from .probe import Probe, register


@I.ir_module
class _AverageFew:
    @R.function
    def main(x: R.Tensor((1, 4, 4, 3), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
        with R.dataflow():
            out = R.nn.avg_pool2d(
                x,
                pool_size=[2, 3],
                dilation=[2, 1],
                padding=[1, 1, 0, 1],
                count_include_pad=False,
            )
            R.output(out)
        return out


@I.ir_module
class _Product:
    @R.function
    def main(x: R.Tensor(("m", "n"), "int64")) -> R.Tensor(("m",), "int64"):
        with R.dataflow():
            out = R.prod(x, axis=[1])
            R.output(out)
        return out


@I.ir_module
class _Sum:
    @R.function
    def main(x: R.Tensor((65537,), "float32")) -> R.Tensor((), "float32"):
        with R.dataflow():
            out = R.sum(x)
            R.output(out)
        return out


@I.ir_module
class _Upsample:
    @R.function
    def main(x: R.Tensor((1, 1, 1, 1), "int32")) -> R.Tensor((1, 1, 2, 2), "int32"):
        with R.dataflow():
            out = R.image.resize2d(
                x,
                (2, 2),
                method="nearest_neighbor",
                coordinate_transformation_mode="asymmetric",
                rounding_method="floor",
            )
            R.output(out)
        return out


@I.ir_module
class _Argmax:
    @R.function
    def main(x: R.Tensor((2, 3), "uint8")) -> R.Tensor((2,), "int64"):
        with R.dataflow():
            out = R.argmax(x, axis=1)
            R.output(out)
        return out


@I.ir_module
class _Range:
    @R.function
    def main(x: R.Tensor((1,), "int64")) -> R.Tensor(dtype="int64", ndim=1):
        n = T.int64()
        with R.dataflow():
            y = R.add(x, R.const(1, "int64"))
            z = R.add(x, R.const(2, "int64"))
            shape = R.tensor_to_shape(z)
            _ = R.match_cast(shape, R.Shape([n]))
            numbers = R.arange(0, n, 1, dtype="int64")
            out = R.multiply(numbers, y)
            R.output(out)
        return out


@I.ir_module
class _Tanh:
    @R.function
    def main(x: R.Tensor((1,), "float32")) -> R.Tensor((1,), "float32"):
        with R.dataflow():
            out = R.tanh(x)
            R.output(out)
        return out


@I.ir_module
class _Gelu:
    @R.function
    def main(x: R.Tensor((8, 16), "float32")) -> R.Tensor((8, 16), "float32"):
        with R.dataflow():
            out = R.nn.gelu(x)
            R.output(out)
        return out


@I.ir_module
class _Transpose:
    @R.function
    def main(x: R.Tensor((512, 256), "float32")) -> R.Tensor((256, 512), "float32"):
        with R.dataflow():
            out = R.permute_dims(x)
            R.output(out)
        return out


@I.ir_module
class _Softmax:
    @R.function
    def main(x: R.Tensor((4096,), "float16")) -> R.Tensor((4096,), "float16"):
        with R.dataflow():
            out = R.nn.softmax(x)
            R.output(out)
        return out


@I.ir_module
class _Average:
    @R.function
    def main(x: R.Tensor((1, 1, 4, 4), "float32")) -> R.Tensor((1, 1, 1, 1), "float32"):
        with R.dataflow():
            out = R.nn.avg_pool2d(x, pool_size=[99, 99], strides=[99, 99], ceil_mode=True)
            R.output(out)
        return out


@I.ir_module
class _Equal:
    @R.function
    def main(x: R.Tensor((3,), "bool")) -> R.Tensor((3,), "bool"):
        with R.dataflow():
            out = R.equal(x, x)
            R.output(out)
        return out


@I.ir_module
class _Mask:
    @R.function
    def main() -> R.Tensor((2, 2), "float32"):
        with R.dataflow():
            out = R.full(R.shape([2, 2]), R.const(float("-inf"), "float32"), "float32")
            R.output(out)
        return out


@I.ir_module
class _Slice:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 2), "float32"):
        with R.dataflow():
            out = R.strided_slice(x, axes=[-1], begin=[1], end=[3])
            R.output(out)
        return out


def _argmax_of_equal() -> None:
    np.testing.assert_array_equal(run(_Argmax, np.zeros((2, 3), "uint8")), [0, 0])


def _product_of_nothing(relax_pipeline: str | tvm.transform.Pass) -> None:
    got = run(_Product, np.zeros((9, 0), "int64"), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, np.ones(9))


def _sum_large_and_small(relax_pipeline: str | tvm.transform.Pass) -> None:
    x = np.ones(65537, "float32")
    # Above 2**24, adjacent float32 values are 2 apart.
    x[0] = 1 << 24
    got = run(_Sum, x, relax_pipeline=relax_pipeline)
    np.testing.assert_allclose(got, (1 << 24) + 65536, rtol=1e-3)


def _tanh_of_small(relax_pipeline: str | tvm.transform.Pass) -> None:
    small = np.array([1e-6], "float32")
    np.testing.assert_allclose(run(_Tanh, small, relax_pipeline=relax_pipeline), small, rtol=1e-6)


def _allocate_for_gelu(relax_pipeline: tvm.transform.Pass) -> None:
    with tvm.target.Target("llvm"):
        kernel = relax_pipeline(_Gelu)["gelu"]
    found: list[int] = []
    structural_walk(kernel.body, (SBlock, lambda block: found.append(len(block.alloc_buffers))))
    assert sum(found) == 0, f"gelu allocates {sum(found)} intermediate results"


def _check_loop_kinds(relax_pipeline: tvm.transform.Pass) -> None:
    with tvm.target.Target("llvm"):
        kernel = relax_pipeline(_Transpose)["transpose"]
    kinds: set[int] = set()
    structural_walk(kernel.body, (tirx.For, lambda loop: kinds.add(loop.kind)))
    expected = {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED}
    assert expected <= kinds, "a large transpose is neither parallel nor vectorized"


def _softmax_of_equal() -> None:
    got = run(_Softmax, np.zeros(4096, "float16"))
    np.testing.assert_allclose(got, np.full(4096, 1 / 4096), rtol=1e-3)


def _upsample_large_integers() -> None:
    data = np.array([[[[2**24 + 1]]]], "int32")
    np.testing.assert_array_equal(run(_Upsample, data), np.full((1, 1, 2, 2), 2**24 + 1))


def _check_padded_size() -> None:
    with tvm.target.Target("llvm"):
        kernel = relax.transform.LegalizeOps()(_Average)["avg_pool2d"]
    padded: list[int] = []

    def look(block: SBlock) -> None:
        padded.extend(math.prod(map(int, buffer.shape)) for buffer in block.alloc_buffers)

    structural_walk(kernel.body, (SBlock, look))
    assert max(padded) <= 16, f"16 elements are padded to {max(padded)}"


def _average_few() -> None:
    x = np.ones((1, 4, 4, 3), "float32")
    np.testing.assert_array_equal(run(_AverageFew, x), np.ones((1, 4, 3, 3)))


def _arange(relax_pipeline: str | tvm.transform.Pass) -> None:
    got = run(_Range, np.array([2]), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, [0, 3, 6, 9])


def _compare_booleans() -> None:
    np.testing.assert_array_equal(run(_Equal, np.array([True, False, True])), [True] * 3)


def _fill_with_infinity() -> None:
    np.testing.assert_array_equal(run(_Mask), np.full((2, 2), -np.inf))


def _slice_last() -> None:
    x = np.arange(8, dtype="float32").reshape(2, 4)
    np.testing.assert_array_equal(run(_Slice, x), x[:, 1:3])


register(
    REDUCTION_LEGALIZE,
    Probe(
        stock=_argmax_of_equal,
        fixed=_argmax_of_equal,
        symptom=re.compile(r"AssertionError: .*Arrays are not equal.*-1", re.DOTALL),
    ),
)

register(
    SOFTMAX_LEGALIZE,
    Probe(
        stock=_softmax_of_equal,
        fixed=_softmax_of_equal,
        symptom=re.compile(r"AssertionError: .*Not equal to tolerance", re.DOTALL),
    ),
)

register(
    POOL_WINDOW,
    Probe(
        stock=_check_padded_size,
        fixed=_check_padded_size,
        symptom=re.compile(r"AssertionError: 16 elements are padded to \d{4}"),
    ),
)


def _average(relax_pipeline: str | tvm.transform.Pass) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 1, 70000), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(relax.op.nn.adaptive_avg_pool1d(x, [1]))
        builder.emit_func_output(out)
    got = run(builder.get(), np.full((1, 1, 70000), 3, "float16"), relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, [[[3]]])


register(
    AVERAGE_POOL,
    Probe(
        stock=lambda: _average("default"),
        fixed=lambda: _average(pipeline()),
        symptom=re.compile("70000 exceeds maximum of float16"),
    ),
)


def _pool_rounding_up(relax_pipeline: str | tvm.transform.Pass) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 1, tirx.Var("n", "int64")), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            pooled = builder.emit(
                relax.op.nn.max_pool1d(x, pool_size=[2], strides=[3], ceil_mode=True)
            )
            out = builder.emit_output(relax.op.nn.relu(pooled))
        builder.emit_func_output(out)
    values = np.array([[[1, 2, 3, 4, 5, 6, 7]]], "float32")
    got = run(builder.get(), values, relax_pipeline=relax_pipeline)
    np.testing.assert_array_equal(got, [[[2, 5, 7]]])


def _pool_rounding_up_stock() -> None:
    # TVM's pipelines that fuse operators.
    pipelines = [relax.get_pipeline(name) for name in ("zero", "default")]
    _pool_rounding_up(tvm.transform.Sequential(pipelines))


register(
    POOL_CEIL_MODE,
    Probe(
        stock=_pool_rounding_up_stock,
        fixed=lambda: _pool_rounding_up(pipeline()),
        symptom=re.compile("prim.if_then_else"),
    ),
)

register(
    RESIZE_LEGALIZE,
    Probe(
        stock=_upsample_large_integers,
        fixed=_upsample_large_integers,
        symptom=re.compile(r"AssertionError: .*16777216", re.DOTALL),
    ),
)

register(
    SLP_VECTORIZER,
    Probe(
        stock=_average_few,
        fixed=_average_few,
        symptom=re.compile(r"Instruction does not dominate all uses"),
    ),
)

register(
    INLINE_ELEMENTWISE,
    Probe(
        stock=lambda: _allocate_for_gelu(relax.transform.LegalizeOps()),
        fixed=lambda: _allocate_for_gelu(pipeline()),
        symptom=re.compile(r"AssertionError: gelu allocates 4 intermediate results"),
    ),
)

register(
    REDUCTION_SCHEDULE,
    Probe(
        stock=lambda: _sum_large_and_small("default"),
        fixed=lambda: _sum_large_and_small(pipeline()),
        symptom=re.compile(r"AssertionError: .*1\.677722e\+07", re.DOTALL),
    ),
)

register(
    ELEMENTWISE_SCHEDULE,
    Probe(
        stock=lambda: _check_loop_kinds(relax.transform.LegalizeOps()),
        fixed=lambda: _check_loop_kinds(pipeline()),
        symptom=re.compile(r"AssertionError: a large transpose is neither parallel"),
    ),
)

register(
    DECOMPOSE_REDUCTION,
    Probe(
        stock=lambda: _product_of_nothing("default"),
        fixed=lambda: _product_of_nothing(pipeline()),
        symptom=re.compile(r"AssertionError: .*Arrays are not equal", re.DOTALL),
    ),
)

register(
    ELEMENTARY_FUNCTIONS,
    Probe(
        stock=lambda: _tanh_of_small("default"),
        fixed=lambda: _tanh_of_small(pipeline()),
        symptom=re.compile(r"AssertionError: .*Not equal to tolerance", re.DOTALL),
    ),
)

register(
    SPLIT_DATAFLOW,
    Probe(
        stock=lambda: _arange(relax.get_default_pipeline(tvm.target.Target("llvm"))),
        fixed=lambda: _arange(pipeline()),
        symptom=re.compile(r"has not been computed|is not defined"),
    ),
)

register(
    COMPARISON_LEGALIZE,
    Probe(stock=_compare_booleans, fixed=_compare_booleans, symptom=re.compile(r"fcmp oeq i1")),
)

register(
    CREATION_LEGALIZE,
    Probe(
        stock=_fill_with_infinity,
        fixed=_fill_with_infinity,
        symptom=re.compile(r"TypeError: argument of type 'PrimType' is not iterable"),
    ),
)

register(
    STRIDED_SLICE_LEGALIZE,
    Probe(stock=_slice_last, fixed=_slice_last, symptom=re.compile(r"axis < src_tensor_dim \(-1")),
)
