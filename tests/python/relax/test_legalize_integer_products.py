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
"""Products of 16-bit by 8-bit and 16-bit integers, compared with NumPy and PyTorch."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.target.codegen import target_has_features

from helpers.emulated_cpu import emulated_cpu
from helpers.exact_products import exact_product
from helpers.grids import is_full
from helpers.relax_modules import build, call, cpu, merge, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve

TARGETS = {
    "generic": tvm.target.Target("llvm"),
    "avx2": tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}),
    "native": resolve("native"),
}


@dataclass(frozen=True)
class Product:
    """A matrix product, or a convolution with `attributes`."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    operator: str = "matmul"
    dtype: str = "int8"
    is_constant: bool = True
    extreme: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(sum(self.data + self.weight))
        limit = 128 if self.dtype == "int8" else 256
        if self.extreme:
            return np.full(self.data, -255, "int16"), np.full(self.weight, -limit, self.dtype)
        data = rng.integers(-255, 256, self.data, "int16")
        return data, rng.integers(-limit, limit, self.weight, self.dtype)

    def module(self) -> tvm.IRModule:
        """The product with a constant weight, or with a second parameter."""
        _, weight = self.arrays()
        params = {"x": tensor(*self.data, dtype="int16")}
        if not self.is_constant:
            params["w"] = tensor(*self.weight, dtype=self.dtype)
        namespace = relax.op if self.operator == "matmul" else relax.op.nn
        operator = getattr(namespace, self.operator)

        def emit(_: relax.BlockBuilder, x: relax.Var, w: relax.Expr = None) -> relax.Expr:
            w = relax.const(weight) if w is None else w
            return operator(x, w, out_dtype="int32", **self.attributes)

        return build(params, emit)

    def expected(self) -> np.ndarray:
        product = exact_product(self.operator, *self.arrays(), self.attributes)
        return product.astype("int32")

    def arguments(self) -> list[np.ndarray]:
        data, weight = self.arrays()
        return [data] if self.is_constant else [data, weight]


def conv(data, weight, operator="conv2d", dtype="int8", **attributes):
    return Product(data, weight, operator, dtype, attributes=attributes)


MATRICES = [
    ((1, 1), (1, 1)),
    ((1, 2), (2, 1)),
    ((2, 1), (1, 3)),
    ((1, 64), (64, 40)),
    ((3, 33), (33, 70)),
    ((17, 511), (511, 129)),
    ((64, 1024), (1024, 256)),
    ((300, 24), (24, 17)),
    ((1024, 1024), (1024, 128)),
    ((2, 3, 5, 7), (7, 9)),
    ((2, 3, 5, 8), (2, 3, 8, 9)),
    ((4, 1, 5, 7), (3, 7, 6)),
]

PRODUCTS = [
    *(
        Product(*shapes, dtype=dtype, is_constant=is_constant)
        for shapes in MATRICES
        for dtype in ("int8", "int16")
        for is_constant in (True, False)
        if is_constant is False or len(shapes[1]) == 2
    ),
    Product((2, 32768), (32768, 3), extreme=True),
    Product((2, 16384), (16384, 3), dtype="int16", extreme=True),
    conv((1, 16, 9, 9), (24, 16, 3, 3), padding=1),
    conv((1, 16, 9, 9), (24, 16, 3, 3), dtype="int16", padding=1),
    conv((2, 5, 9, 7), (6, 5, 3, 2), padding=1, strides=2, dilation=2),
    conv((1, 3, 17, 17), (16, 3, 7, 7), padding=3, strides=2),
    conv((2, 16, 7, 5), (8, 16, 1, 1)),
    conv((2, 12, 9, 7), (48, 4, 3, 2), padding=1, groups=3),
    conv((2, 9, 9, 7), (18, 3, 3, 2), padding=1, groups=3),
    conv((1, 8, 9, 9), (8, 1, 3, 3), padding=1, groups=8),
    conv((2, 9, 33), (17, 9, 5), "conv1d", padding=2),
    conv((1, 6, 5, 6, 7), (16, 6, 3, 3, 3), "conv3d", padding=1),
    conv((1, 6, 5, 6), (6, 8, 4, 4), "conv2d_transpose", padding=1, strides=2),
    conv((1, 6, 5, 6), (6, 8, 3, 3), "conv2d_transpose", padding=1, strides=2, output_padding=1),
    conv((2, 8, 9), (8, 4, 4), "conv1d_transpose", strides=4, groups=2),
    conv((1, 8, 9, 7), (8, 32, 2, 1), "conv2d_transpose", strides=2, dilation=2),
]


def skip_unless_it_runs(target: tvm.target.Target) -> None:
    for feature in ("avx2", "fma"):
        if target_has_features(feature, target) and not target_has_features(
            feature, resolve("native")
        ):
            pytest.skip(f"this CPU has no {feature}")


def check(products: list[Product], target: tvm.target.Target) -> None:
    """Build the products for `target`, and compare their results."""
    mod = merge({f"f{index}": product.module() for index, product in enumerate(products)})
    executable = relax.build(mod, target, relax_pipeline=pipeline())
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for index, product in enumerate(products):
        got = call(vm, f"f{index}", *product.arguments())
        np.testing.assert_array_equal(got, product.expected(), err_msg=str(product))


@pytest.mark.parametrize(
    ("target", "cases"),
    [
        ("generic", PRODUCTS[::4] if is_full() else PRODUCTS[3::8]),
        ("avx2", PRODUCTS if is_full() else PRODUCTS[2::6]),
        ("native", PRODUCTS[::3] if is_full() else PRODUCTS[1::9]),
    ],
    ids=("generic", "avx2", "native"),
)
def test_products(target: str, cases: list[Product]) -> None:
    skip_unless_it_runs(TARGETS[target])
    check(cases, TARGETS[target])


@pytest.mark.parametrize("has_vnni", [False, True])
def test_vectors_of_512_bits(has_vnni: bool) -> None:
    avx512 = {"has_avx512bw": True, "vector_bytes": 64, "vector_registers": 32}
    with emulated_cpu(has_pmaddwd=True, has_vnni=has_vnni, **avx512):
        check(PRODUCTS[::5] if is_full() else PRODUCTS[4 - has_vnni :: 14], cpu())


@pytest.mark.parametrize(
    "product",
    [
        Product((32, 64), (64, 48)),
        Product((32, 63), (63, 48), is_constant=False),
        conv((1, 16, 9, 9), (24, 16, 3, 3), padding=1),
        conv((1, 3, 9, 9), (24, 3, 3, 3), padding=1),
    ],
    ids=["constant", "parameter", "conv", "odd channels"],
)
def test_the_kernel_uses_the_instruction(product: Product) -> None:
    with TARGETS["avx2"]:
        lowered = pipeline()(product.module())
    assert "llvm.x86.avx2.pmadd.wd" in lowered.script()


def test_products_of_constants() -> None:
    """Constants are folded for any CPU, on which LLVM does not know the instruction."""
    data, weight = Product((4, 64), (64, 48)).arrays()

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        product = relax.op.matmul(relax.const(data), relax.const(weight), out_dtype="int32")
        return relax.op.add(x, bb.emit(product))

    mod = build({"x": tensor(4, 48, dtype="int32")}, emit)
    got = run(mod, np.ones((4, 48), "int32"), target=TARGETS["native"], pipeline=pipeline())
    np.testing.assert_array_equal(got, data.astype("int32") @ weight.astype("int32") + 1)


if __name__ == "__main__":
    tvm.testing.main()
