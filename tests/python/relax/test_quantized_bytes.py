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
"""Products of 8-bit data by instructions for bytes, whose kernels run here as loops."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.emulated_cpu import emulated_cpu
from helpers.exact_products import exact_product
from helpers.grids import few, is_full
from helpers.relax_modules import build, call, merge, tensor
from helpers.relax_modules import cpu as cpu_target
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform import FuseQuantized

CPUS = {
    "VPDPBUSD": {"has_vnni": True, "vector_bytes": 64, "vector_registers": 32},
    "VPDPBUSD of AVX": {"has_vnni": True, "vector_bytes": 32, "vector_registers": 16},
    "SDOT": {"has_dotprod": True, "has_vnni": False, "vector_bytes": 16, "vector_registers": 32},
}


@dataclass(frozen=True)
class Quantized:
    """The product of data and weights that are 8-bit integers minus a zero point."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    operator: str = "matmul"
    dtype: str = "uint8"
    zero: int | None = 0
    is_constant: bool = True
    extreme: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(sum(self.data + self.weight))
        limits = np.iinfo(self.dtype)
        if self.extreme:
            return np.full(self.data, limits.max, self.dtype), np.full(self.weight, -128, "int8")
        data = rng.integers(limits.min, limits.max + 1, self.data, self.dtype)
        return data, rng.integers(-128, 128, self.weight, "int8")

    def module(self) -> tvm.IRModule:
        """The product, with a parameter for each operand that is not constant."""
        params = {"x": tensor(*self.data, dtype=self.dtype)}
        if not self.is_constant:
            params["w"] = tensor(*self.weight, dtype="int8")
        if self.zero is None:
            params["z"] = tensor(dtype=self.dtype)

        def emit(bb: relax.BlockBuilder, x: relax.Var, *more: relax.Var) -> relax.Expr:
            others = list(more)
            w = relax.const(self.arrays()[1]) if self.is_constant else others.pop(0)
            zero = others.pop() if others else relax.const(np.array(self.zero, self.dtype))
            one = relax.const(np.float32(1))
            x = bb.emit(relax.op.dequantize(x, one, zero, 0))
            w = bb.emit(relax.op.dequantize(w, one, relax.const(np.int8(0)), 0))
            namespace = relax.op if self.operator == "matmul" else relax.op.nn
            return getattr(namespace, self.operator)(x, w, **self.attributes)

        return build(params, emit)

    def arguments(self, zero: int) -> list[np.ndarray]:
        data, weight = self.arrays()
        more = [] if self.is_constant else [weight]
        return [data, *more, *([np.array(zero, self.dtype)] if self.zero is None else [])]

    def expected(self, zero: int) -> np.ndarray:
        data, weight = self.arrays()
        return exact_product(self.operator, data.astype("float64") - zero, weight, self.attributes)


def conv(data, weight, operator="conv2d", *, dtype="uint8", zero=7, **attributes):
    return Quantized(data, weight, operator, dtype, zero, attributes=attributes)


PRODUCTS = [
    Quantized((1, 1), (1, 1)),
    Quantized((1, 64), (64, 40), zero=128),
    Quantized((3, 33), (33, 70), dtype="int8", zero=-3),
    Quantized((17, 511), (511, 129), dtype="int8"),
    Quantized((64, 512), (512, 256), zero=255),
    Quantized((64, 70), (70, 129), zero=None),
    Quantized((64, 70), (70, 129), zero=None, dtype="int8"),
    Quantized((300, 24), (24, 17), is_constant=False, zero=3),
    Quantized((2, 3, 5, 8), (2, 3, 8, 9), is_constant=False, dtype="int8"),
    Quantized((4, 1, 5, 7), (3, 7, 6), zero=9),
    Quantized((9,), (9, 5), zero=9),
    Quantized((4, 9), (9,), zero=9),
    Quantized((2, 30000), (30000, 3), extreme=True),
    Quantized((2, 30000), (30000, 3), extreme=True, dtype="int8", zero=-128),
    conv((1, 16, 9, 9), (24, 16, 3, 3), padding=1),
    conv((1, 16, 9, 9), (24, 16, 3, 3), padding=1, dtype="int8", zero=0),
    conv((1, 16, 9, 9), (24, 16, 3, 3), padding=1, zero=0),
    conv((1, 16, 9, 9), (24, 16, 3, 3), padding=[0, 1, 2, 3]),
    conv((1, 16, 9, 9), (24, 16, 3, 3), zero=None),
    conv((1, 16, 9, 9), (24, 16, 3, 3), zero=None, padding=1),
    conv((2, 5, 9, 7), (6, 5, 3, 2), padding=1, strides=2, dilation=2),
    conv((1, 3, 17, 17), (16, 3, 7, 7), padding=3, strides=2),
    conv((2, 16, 7, 5), (8, 16, 1, 1)),
    # The columns are whole tiles, so that the copied rows of four channels are interleaved.
    conv((2, 16, 3, 56), (8, 16, 1, 1)),
    conv((1, 10, 5, 28), (40, 10, 3, 1), padding=[1, 0, 1, 0]),
    conv((1, 24, 2, 28), (96, 8, 1, 1), groups=3),
    conv((2, 12, 56), (24, 12, 1), "conv1d", dtype="int8"),
    conv((2, 12, 9, 7), (48, 4, 3, 2), padding=1, groups=3),
    conv((2, 9, 9, 7), (18, 3, 3, 2), padding=1, groups=3),
    conv((1, 8, 9, 9), (8, 1, 3, 3), padding=1, groups=8),
    conv((2, 9, 33), (17, 9, 5), "conv1d", padding=2, dtype="int8"),
    conv((1, 6, 5, 6, 7), (16, 6, 3, 3, 3), "conv3d", padding=1),
    conv((1, 6, 5, 6), (6, 8, 4, 4), "conv2d_transpose", padding=1, strides=2),
    conv((1, 6, 5, 6), (6, 8, 3, 3), "conv2d_transpose", zero=0),
]


@few(1)
@pytest.mark.parametrize(
    ("cpu", "products"),
    [
        ("VPDPBUSD", PRODUCTS if is_full() else PRODUCTS[::4]),
        ("VPDPBUSD of AVX", PRODUCTS[::4] if is_full() else PRODUCTS[3::12]),
        ("SDOT", PRODUCTS[::2] if is_full() else PRODUCTS[1::8]),
    ],
    ids=CPUS,
)
def test_products(cpu: str, products: list[Quantized]) -> None:
    mod = merge({f"f{index}": product.module() for index, product in enumerate(products)})
    with emulated_cpu(**CPUS[cpu]):
        executable = relax.build(mod, cpu_target(), relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for index, product in enumerate(products):
        zero = 5 if product.zero is None else product.zero
        got = call(vm, f"f{index}", *product.arguments(zero))
        np.testing.assert_array_equal(got, product.expected(zero), err_msg=str(product))


@I.ir_module
class Before:
    @R.function
    def main(x: R.Tensor((1, 2, 5, 5), "uint8"), w: R.Tensor((3, 2, 3, 3), "int8")) -> R.Tensor(
        (1, 3, 5, 5), "float32"
    ):
        with R.dataflow():
            lhs = R.dequantize(x, R.const(0.5, "float32"), R.const(7, "uint8"), axis=0)
            rhs = R.dequantize(w, R.const(0.25, "float32"), R.const(0, "int8"), axis=0)
            y = R.nn.conv2d(lhs, rhs, padding=1)
            R.output(y)
        return y


@I.ir_module
class Expected:
    @R.function
    def main(x: R.Tensor((1, 2, 5, 5), "uint8"), w: R.Tensor((3, 2, 3, 3), "int8")) -> R.Tensor(
        (1, 3, 5, 5), "float32"
    ):
        with R.dataflow():
            padded = R.nn.pad(x, [0, 0, 0, 0, 1, 1, 1, 1], pad_value=7.0)
            total = R.nn.conv2d(padded, w, padding=0, out_dtype="int32")
            of_weight = R.sum(R.astype(w, "int32"), axis=[1, 2, 3])
            of_zero = R.multiply(of_weight, R.astype(R.const(7, "uint8"), "int32"))
            sums = R.subtract(total, R.reshape(of_zero, (1, 3, 1, 1)))
            y = R.multiply(R.astype(sums, "float32"), R.const(0.125, "float32"))
            R.output(y)
        return y


def test_zero_point_is_applied_to_the_sums() -> None:
    with tvm.target.Target({"kind": "llvm", "mcpu": "cascadelake"}):
        tvm.ir.assert_structural_equal(FuseQuantized()(Before), Expected)


def test_transposed_weight_is_packed_at_compile_time() -> None:
    weight = np.random.default_rng(0).integers(-128, 128, (40, 64), "int8")

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        one, zero = relax.const(np.float32(1)), relax.const(np.uint8(128))
        x = bb.emit(relax.op.dequantize(x, one, zero, 0))
        w = bb.emit(relax.op.permute_dims(relax.const(weight)))
        w = bb.emit(relax.op.dequantize(w, one, relax.const(np.int8(0)), 0))
        return relax.op.matmul(x, w)

    with emulated_cpu(**CPUS["VPDPBUSD"]), cpu_target():
        lowered = pipeline()(build({"x": tensor(3, 64, dtype="uint8")}, emit))
    assert "in_tiles" not in str(lowered)


def chain(*kernels: tuple[int, ...]) -> tvm.IRModule:
    """Convolutions of bytes, requantized in between."""
    rng = np.random.default_rng(0)
    zero, scale, small = np.uint8(3), np.float32(1 / 64), np.float32(1 / 256)

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for kernel in kernels:
            weight = relax.const(rng.integers(-128, 128, kernel, "int8"))
            x = bb.emit(relax.op.dequantize(x, relax.const(scale), relax.const(zero), 0))
            w = bb.emit(relax.op.dequantize(weight, relax.const(small), relax.const(np.int8(0)), 0))
            y = bb.emit(relax.op.nn.conv2d(x, w, padding=kernel[-1] // 2))
            x = bb.emit(relax.op.quantize(y, relax.const(scale), relax.const(zero), 0, "uint8"))
        return x

    return build({"x": tensor(2, kernels[0][1], 9, 10, dtype="uint8")}, emit)


def blocked(width: int, layout: str) -> tvm.IRModule:
    """A convolution by one element, of data whose channels are adjacent."""
    shape = (1, 2, 5, width, 16) if layout == "NCHW16c" else (1, 5, width, 32)
    weight = np.random.default_rng(0).integers(-128, 128, (48, 32, 1, 1), "int8")
    layouts = {"data_layout": layout, "out_layout": layout, "out_dtype": "int32"}

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.nn.conv2d(x, relax.const(weight), kernel_layout="OIHW", **layouts)

    return build({"x": tensor(*shape, dtype="uint8")}, emit)


@few(4)
@pytest.mark.parametrize("layout", ["NCHW16c", "NHWC"])
@pytest.mark.parametrize(("width", "copies"), [(1, 0), (14, 0), (29, 1), (37, 1), (40, 0)])
def test_data_is_read_where_it_is(layout: str, width: int, copies: int) -> None:
    """If the tiles cover exactly the columns of the output."""
    mod = blocked(width, layout)
    shape = [int(extent) for extent in mod["main"].params[0].ty.shape.values]
    x = np.random.default_rng(1).integers(0, 256, shape, "uint8")
    with emulated_cpu(**CPUS["VPDPBUSD"]):
        with cpu_target():
            assert str(pipeline()(mod)).count("padded = ") == copies
        executable = relax.build(mod, cpu_target(), relax_pipeline=pipeline())
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", x)
    if layout == "NCHW16c":
        x, got = (np.moveaxis(a, 4, 2).reshape(1, -1, 5, width) for a in (x, got))
    else:
        x, got = (np.moveaxis(a, 3, 1) for a in (x, got))
    weight = np.random.default_rng(0).integers(-128, 128, (48, 32, 1, 1), "int8")
    np.testing.assert_array_equal(got, exact_product("conv2d", x, weight, {}))


def test_channels_stay_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only convolutions of a larger kernel copy their data, and the results are the same."""
    mod = chain((32, 3, 3, 3), (48, 32, 1, 1), (16, 48, 3, 3), (16, 16, 1, 1), (3, 16, 3, 3))
    x = np.random.default_rng(1).integers(0, 256, (2, 3, 9, 10), "uint8")
    results = []
    for disabled in ("", "choose-layout"):
        monkeypatch.setenv("TVM_FIXES_DISABLE", disabled)
        with emulated_cpu(**CPUS["VPDPBUSD"]):
            with cpu_target():
                lowered = pipeline()(mod)
            executable = relax.build(mod, cpu_target(), relax_pipeline=pipeline())
        copies = str(lowered).count("padded = ")
        assert copies == (5 if disabled else 3)
        results.append(call(relax.VirtualMachine(executable, tvm.cpu()), "main", x))
    assert len(np.unique(results[0])) > 50
    np.testing.assert_array_equal(*results)


if __name__ == "__main__":
    tvm.testing.main()
