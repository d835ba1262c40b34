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

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm.s_tir import SBlock
from tvm_ffi import structural_walk

from helpers.grids import few, is_full
from helpers.relax_modules import build, call, calls, count, cpu, merge, run, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.reductions import FIX_ID

INF, NAN = np.inf, np.nan
POOLS = {1: torch.nn.functional.max_pool1d, 2: torch.nn.functional.max_pool2d}
POOLS[3] = torch.nn.functional.max_pool3d
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
DTYPES["float64"] = np.float64
# pool_size, strides, padding before and after, dilation, ceil_mode; of each axis
WINDOWS = {
    "plain": (2, 2, 0, 0, 1, False),
    "padded": (3, 2, 1, 1, 1, False),
    "lopsided": (3, 1, 0, 2, 1, False),
    "dilated": (2, 1, 1, 1, 2, False),
    "ceil": (3, 2, 0, 0, 1, True),
    "ceil-padded": (2, 3, 1, 1, 1, True),
    "gaps": (1, 3, 0, 0, 1, False),
    "large": (5, 1, 2, 2, 1, False),
}


def pool(shape, window, dtype="float32", layout=None):
    size, stride, before, after, dilation, ceil = WINDOWS[window]
    rank = 2 if layout else len(shape) - 2
    operator = getattr(relax.op.nn, f"max_pool{rank}d")
    options = {"layout": layout} if layout else {}
    return build(
        {"x": tensor(*shape, dtype=dtype)},
        lambda _, x: operator(
            x,
            pool_size=[size] * rank,
            strides=[stride] * rank,
            padding=[before] * rank + [after] * rank,
            dilation=[dilation] * rank,
            ceil_mode=ceil,
            **options,
        ),
    )


def expected(x, window):
    """PyTorch's result, which requires symmetric padding."""
    size, stride, before, after, dilation, ceil = WINDOWS[window]
    rank = x.ndim - 2
    more = [(0, 0)] * 2 + [(0, after - before)] * rank
    data = torch.tensor(np.pad(x.astype("float64"), more, constant_values=-INF))
    arguments = ([value] * rank for value in (size, stride, before, dilation))
    return POOLS[rank](data, *arguments, ceil).numpy()


def hostile(*shape, seed=0):
    """Numbers, infinities and NaN, and blocks of only negative infinity."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, shape).astype("float64")
    x[rng.random(shape) < 0.05] = NAN
    x[rng.random(shape) < 0.3] = -INF
    x[0, 0] = -INF
    x[-1, -1, 0] = INF
    return x


@pytest.fixture(scope="module")
def built():
    mods = {
        f"{rank}_{window}": pool((2, 3, *(7, 8, 5)[:rank]), window)
        for rank in POOLS
        for window in WINDOWS
    }
    mods |= {dtype: pool((2, 3, 7, 8), "padded", dtype) for dtype in DTYPES}
    return relax.VirtualMachine(relax.build(merge(mods), cpu()), tvm.cpu())


@few(8)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("rank", POOLS)
def test_windows_are_as_in_pytorch(built, rank, window):
    x = hostile(2, 3, *(7, 8, 5)[:rank])
    got = call(built, f"{rank}_{window}", x.astype("float32"))
    np.testing.assert_array_equal(got, expected(x, window))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(built, dtype):
    x = hostile(2, 3, 7, 8, seed=1)
    got = call(built, dtype, x.astype(DTYPES[dtype]))
    assert got.dtype == DTYPES[dtype]
    np.testing.assert_array_equal(got.astype("float64"), expected(x, "padded"))


IN_LAYOUT = {
    "NHWC": lambda a: a.transpose(0, 2, 3, 1),
    "NCHW2c": lambda a: a.reshape(2, 2, 2, *a.shape[2:]).transpose(0, 1, 3, 4, 2),
}


@pytest.mark.parametrize("layout", IN_LAYOUT)
def test_layouts(layout):
    x, convert = hostile(2, 4, 7, 8, seed=2), IN_LAYOUT[layout]
    data = convert(x).astype("float32")
    built = merge({window: pool(data.shape, window, layout=layout) for window in WINDOWS})
    vm = relax.VirtualMachine(relax.build(built, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for window in WINDOWS:
        np.testing.assert_array_equal(call(vm, window, data), convert(expected(x, window)), window)


def test_windows_at_an_edge_need_no_padded_copy():
    """The element at the edge is in the window, too; along the innermost axis, a copy is faster."""
    for layout, shape, copies in (("NHWC", (1, 9, 9, 4), 0), ("NCHW", (1, 4, 9, 9), 1)):
        lowered = relax.transform.LegalizeOps()(pool(shape, "padded", layout=layout))
        function = lowered["max_pool2d"]
        assert len(function.body.block.alloc_buffers) == copies, layout


def test_a_window_without_data():
    x = np.zeros((1, 0, 3, 4), "float32")
    mod = build(
        {"x": tensor(*x.shape)},
        lambda _, x: relax.op.nn.max_pool2d(x, [2, 2], padding=[1, 0, 1, 0], layout="NHWC"),
    )
    np.testing.assert_array_equal(run(mod, x), np.full((1, 1, 2, 4), -INF, "float32"))


@pytest.mark.parametrize("window", ["padded", "ceil"])
def test_symbolic_extents(window):
    n, h, w = (tvm.tirx.Var(name, "int64") for name in "nhw")
    mod = pool((n, 3, h, w), window)
    executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for seed, shape in enumerate([(1, 3, 7, 8), (2, 3, 4, 3)]):
        x = hostile(*shape, seed=seed)
        got = call(vm, "main", x.astype("float32"))
        np.testing.assert_array_equal(got, expected(x, window))


@pytest.mark.parametrize(("window", "pads"), [("padded", False), ("ceil-padded", True)])
def test_symbolic_data_is_padded_if_a_window_may_be_empty(window, pads):
    n, h, w = (tvm.tirx.Var(name, "int64") for name in "nhw")
    mod = pool((n, h, w, 4), window, layout="NHWC")
    with cpu():
        function = relax.transform.LegalizeOps()(mod)["max_pool2d"]
    blocks: list[SBlock] = []
    structural_walk(function.body, (SBlock, blocks.append))
    assert any("PadInput" in block.name_hint for block in blocks) == pads
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for seed, shape in enumerate([(1, 4, 7, 8), (2, 4, 2, 3), (1, 4, 3, 2)]):
        x = hostile(*shape, seed=seed)
        got = call(vm, "main", IN_LAYOUT["NHWC"](x).astype("float32"))
        np.testing.assert_array_equal(got, IN_LAYOUT["NHWC"](expected(x, window)))


INTEGERS = ["int8", "uint8", "int32", "int64"]


@pytest.mark.parametrize("dtype", INTEGERS if is_full() else INTEGERS[1:3])
def test_integers(dtype):
    rng = np.random.default_rng(3)
    limits = np.iinfo(dtype)
    x = rng.choice([limits.min, limits.min + 1, -limits.max // 2, 5, limits.max], (2, 4, 7, 8))
    x = x.astype(dtype)
    x[0, 0] = limits.min
    for layout in ["NCHW", *IN_LAYOUT][:: 1 if is_full() else 2]:
        convert = IN_LAYOUT.get(layout, lambda array: array)
        data = convert(x)
        mods = {window: pool(data.shape, window, dtype, layout) for window in WINDOWS}
        vm = relax.VirtualMachine(
            relax.build(merge(mods), cpu(), relax_pipeline=pipeline()), tvm.cpu()
        )
        for window in WINDOWS:
            got = call(vm, window, data)
            assert got.dtype == dtype
            np.testing.assert_array_equal(got, convert(expected_integers(x, window)), window)


def expected_integers(x, window):
    size, stride, before, after, dilation, ceil = WINDOWS[window]
    edges = [(0, 0)] * 2 + [(before, after + ceil * (stride - 1))] * 2
    data = np.pad(x, edges, constant_values=np.iinfo(x.dtype).min)
    span = (size - 1) * dilation + 1
    windows = np.lib.stride_tricks.sliding_window_view(data, (span, span), (2, 3))
    # No window begins behind the data.
    h, w = (
        min(-(-(extent + before) // stride), -(-count // stride))
        for extent, count in zip(x.shape[2:], windows.shape[2:4], strict=True)
    )
    maxima = windows[:, :, ::stride, ::stride, ::dilation, ::dilation].max((-2, -1))
    return maxima[:, :, :h, :w]


@few(2)
@pytest.mark.parametrize(
    ("size", "stride", "extent", "stages"),
    [(3, 2, 56, 2), (5, 1, 20, 2), (2, 2, 56, 1), (3, 3, 57, 1), (7, 1, 7, 1)],
)
def test_maxima_along_one_axis_after_the_other(size, stride, extent, stages):
    """In two steps, windows that overlap share the maxima along the first axis."""
    padding = [size // 2 if stages == 2 else 0] * 2
    mod = build(
        {"x": tensor(1, 3, extent, extent)},
        lambda _, x: relax.op.nn.max_pool2d(x, [size] * 2, [stride] * 2, padding),
    )
    for target, expected_stages in ((cpu(), stages), (tvm.target.Target("cuda"), 1)):
        with target:
            function = relax.transform.LegalizeOps()(mod)["max_pool2d"]
        blocks: list[SBlock] = []
        structural_walk(function.body, (SBlock, blocks.append))
        assert sum(block.init is not None for block in blocks) == expected_stages


def test_a_kernel_has_the_symbols_of_its_operand():
    """TVM's FuseTIR takes a symbol that is also a parameter of the kernel for another extent."""
    n = tirx.Var("n", "int64")
    mod = build(
        {"x": tensor(n, 2, n, 3, 3)},
        lambda _, x: relax.op.nn.max_pool3d(x, [2, 2, 2], dilation=[2, 1, 1], ceil_mode=True),
    )
    [pooled] = calls(relax.transform.LegalizeOps()(mod), "relax.call_tir")
    assert len(pooled.args[1].fields) == 1


def test_another_output_layout_is_kept():
    mod = build(
        {"x": tensor(1, 2, 4, 4)},
        lambda _, x: relax.op.nn.max_pool2d(x, layout="NCHW", out_layout="NHWC"),
    )
    assert count(relax.transform.LegalizeOps()(mod), "relax.nn.max_pool2d") == 1


def test_switched_off(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    x = np.full((1, 1, 2), -INF, "float32")
    assert run(pool((1, 1, 2), "plain"), x) == np.finfo("float32").min


if __name__ == "__main__":
    tvm.testing.main()
