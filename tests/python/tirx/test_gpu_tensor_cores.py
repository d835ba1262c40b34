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
"""tvm_fixes.tirx.gpu_tensor_cores."""

from itertools import cycle

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax, te, tirx
from tvm.s_tir import Schedule

from helpers.gpu_kernels import GPU, functions
from helpers.grids import few, from_tier, is_full
from helpers.lowering import lowered_before
from helpers.relax_modules import build, tensor
from helpers.simt import assert_equals_reference
from tvm_fixes.lowering import stages
from tvm_fixes.tirx.gpu_tensor_cores import TensorCores
from tvm_fixes.tirx.transform import ApplyGpuSchedule

op = relax.op


def product_kernel(emit, *shapes, dtype="float16") -> tirx.PrimFunc:
    """The only kernel with a product, without a schedule."""
    mod = build({f"x{i}": tensor(*s, dtype=dtype) for i, s in enumerate(shapes)}, emit)
    lowering = stages("gpu")
    with GPU:
        kernels = functions(lowered_before(mod, lowering, "Lower"))
    [function] = [each for name, each in kernels.items() if "matmul" in name or "conv" in name]
    return function


def scheduled(emit, *shapes, dtype="float16", target=GPU) -> Schedule | None:
    return TensorCores().apply(product_kernel(emit, *shapes, dtype=dtype), target, False)


def product(builder, a, b):
    y = builder.emit(op.matmul(a, b, out_dtype="float32"))
    return op.astype(builder.emit(op.multiply(y, relax.const(0.5))), a.ty.dtype)


def build_for_gpu(schedule: Schedule) -> None:
    kernel = schedule.mod["main"].with_attr("global_symbol", "main")
    tvm.tirx.build(tvm.IRModule({"main": kernel}), GPU)


n = tirx.Var("n", "int64")

PRODUCTS = {
    "whole tiles": ((256, 128), (128, 256)),
    "padded rows": ((197, 768), (768, 3072)),
    "padded in all axes": ((50, 70), (70, 90)),
    "batch": ((2, 12, 197, 64), (2, 12, 64, 197)),
    "batch of rows": ((2, 64, 128), (128, 64)),
    "symbolic rows": ((n, 128), (128, 256)),
    "symbolic batch": ((n, 64, 64), (n, 64, 64)),
}


DTYPES = ["float16", "bfloat16"]


def cases(names):
    """Each name with both dtypes, or with one of them in turn."""
    if not is_full():
        return list(zip(names, cycle(DTYPES), strict=False))
    return [(name, dtype) for name in names for dtype in DTYPES]


@pytest.mark.parametrize(("name", "dtype"), cases(PRODUCTS))
def test_products(name, dtype):
    schedule = scheduled(product, *PRODUCTS[name], dtype=dtype)
    assert schedule is not None
    script = schedule.mod["main"].script()
    for use in ("load_matrix_sync", "mma_sync", "fill_fragment", "store_matrix_sync"):
        assert use in script, use
    assert f'"{dtype}", scope="wmma.matrix_a"' in script
    # Float32 is the default of TVMScript.
    assert '), scope="wmma.accumulator"' in script
    build_for_gpu(schedule)


def test_few_tiles_are_computed_by_many_blocks():
    """A result of 7 x 7 pixels and 512 channels has 8 tiles, whose sums have 4608 products."""
    function = scheduled(convolution, (1, 512, 7, 7), (512, 512, 3, 3)).mod["main"]
    first, second = (each.thread_binding for each in function.body.block.body.seq)
    assert (first.thread_tag, second.thread_tag) == ("blockIdx.z", "blockIdx.x")
    assert function.body.block.body.seq[0].extent == 18


def test_the_second_operand_is_read_as_it_is_stored():
    plain = scheduled(product, (256, 128), (128, 256)).mod["main"].script()
    flipped = scheduled(
        lambda bb, a, b: product(bb, a, bb.emit(op.permute_dims(b))), (256, 128), (256, 128)
    )
    assert plain.count('"row_major"') > 0 and plain.count('"col_major"') == 0
    assert flipped is not None


def convolution(builder, x, w):
    y = builder.emit(op.nn.conv2d(x, w, padding=1, out_dtype="float32"))
    return op.astype(y, x.ty.dtype)


def test_a_convolution():
    schedule = scheduled(convolution, (1, 64, 56, 56), (64, 64, 3, 3))
    assert schedule is not None and "mma_sync" in schedule.mod["main"].script()


def strided(builder, x, w):
    y = builder.emit(op.nn.conv2d(x, w, strides=2, out_dtype="float32"))
    return op.nn.relu(op.astype(y, x.ty.dtype))


def with_bias(builder, x, w, a, b):
    """The bias is computed in the same kernel."""
    y = builder.emit(op.nn.conv2d(x, w, padding=1, out_dtype="float32"))
    bias = builder.emit(op.expand_dims(builder.emit(op.add(a, b)), [0, 2, 3]))
    return op.nn.silu(builder.emit(op.add(y, op.astype(bias, "float32"))))


def flipped(builder, a, b):
    return product(builder, a, builder.emit(op.permute_dims(b, [0, 2, 1])))


def masked(builder, a, b):
    y = builder.emit(op.matmul(a, b, out_dtype="float32"))
    mask = builder.emit(op.less(a, b))
    return op.where(mask, y, relax.const(-1.0))


VALUES = {
    "padded": (product, (50, 70), (70, 90)),
    "batch": (product, (2, 33, 40), (2, 40, 36)),
    "second operand transposed": (flipped, (2, 40, 64), (2, 36, 64)),
    "mask": (masked, (64, 64), (64, 64)),
    "convolution": (convolution, (1, 32, 6, 7), (32, 32, 3, 3)),
    "symbolic rows": (product, (n, 64), (64, 96)),
    "few rows": (product, (5, 128), (128, 96)),
    "sums divided among blocks": (product, (48, 1024), (1024, 96)),
    "divided sums of few rows": (product, (17, 1000), (1000, 40)),
    "divided sums of a batch": (flipped, (2, 40, 1000), (2, 36, 1000)),
    "divided sums of a convolution": (convolution, (1, 96, 5, 6), (40, 96, 3, 3)),
    "divided sums and a bias": (with_bias, (1, 96, 5, 6), (40, 96, 3, 3), (40,), (40,)),
    "1x1 convolution with strides": (strided, (1, 64, 8, 7), (36, 64, 1, 1)),
}


@few(4)
@pytest.mark.parametrize(("name", "dtype"), cases(VALUES))
def test_values(name, dtype):
    """The interpreter also finds races, and accesses out of bounds."""
    kernel = product_kernel(*VALUES[name], dtype=dtype)
    schedule = TensorCores().apply(kernel, GPU, False)
    assert schedule is not None
    rng = np.random.default_rng(0)
    assert_equals_reference(kernel, schedule.mod["main"], rng, {"n": 37})


@pytest.mark.parametrize(
    "shapes, dtype",
    [
        (((256, 128), (128, 256)), "float32"),
        (((1, 128), (128, 256)), "float16"),
        (((256, 128), (128, 1)), "float16"),
        (((2, 3), (3, 4)), "float16"),
        (((0, 128), (128, 256)), "float16"),
        (((4, 64, 0), (4, 0, 64)), "float16"),
    ],
)
def test_products_that_other_rules_take(shapes, dtype):
    assert scheduled(product, *shapes, dtype=dtype) is None


@from_tier("ci")
@pytest.mark.parametrize("dtype", ["float16", "float32"] if is_full() else ["float16"])
def test_a_reshape_of_a_padded_product(dtype):
    """A read beyond the end of a row does not return the first element of the next one."""
    depth = 64 if is_full() else 32
    k = te.reduce_axis((0, depth), "k")
    a, b = te.placeholder((18, depth), dtype, "a"), te.placeholder((depth, 40), dtype, "b")
    y = te.compute(
        (18, 40),
        lambda i, j: te.sum(a[i, k].astype("float32") * b[k, j].astype("float32"), axis=k),
    )
    flat = te.compute((720,), lambda i: y[i // 40, i % 40] + 1.0)
    kernel = te.create_prim_func([a, b, flat])
    with GPU:
        after = ApplyGpuSchedule()(tvm.IRModule({"main": kernel}))["main"]
    assert_equals_reference(kernel, after, np.random.default_rng(0))


def test_a_gpu_without_such_tensor_cores():
    old = tvm.target.Target({"kind": "cuda", "arch": "sm_75"}, host={"kind": "llvm"})
    assert scheduled(product, (256, 128), (128, 256), target=old) is None


if __name__ == "__main__":
    tvm.testing.main()
