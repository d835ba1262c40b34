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
"""Products of bfloat16 by instructions for pairs, whose kernels also run as loops."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers.emulated_cpu import emulated_cpu
from helpers.grids import few, is_full
from helpers.relax_modules import build, call, cpu, merge, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.target import resolve
from tvm_fixes.target.cpu import Cpu

CPUS = {
    "VDPBF16PS": {"has_bfloat16": True, "vector_bytes": 64, "vector_registers": 32},
    "BFDOT": {"has_bfloat16": True, "vector_bytes": 16, "vector_registers": 32},
}
Operator = Callable[[relax.Expr, relax.Expr], relax.Expr]


def conv(**attributes: int) -> tuple[Operator, Callable[..., torch.Tensor]]:
    names = {"strides": "stride"}
    others = {names.get(name, name): value for name, value in attributes.items()}
    return (
        lambda x, w: relax.op.nn.conv2d(x, w, out_dtype="float32", **attributes),
        lambda x, w: torch.nn.functional.conv2d(x, w, **others),
    )


MATMUL = lambda x, w: relax.op.matmul(x, w, out_dtype="float32"), torch.matmul

# Shapes, whether the weight is constant, and whether the instruction is used.
PRODUCTS = [
    (MATMUL, (1, 48), (48, 200), True, True),
    (MATMUL, (1, 33), (33, 40), True, True),
    (MATMUL, (17, 33), (33, 70), True, True),
    (MATMUL, (40, 1024), (1024, 1024), True, True),
    (MATMUL, (3, 32), (32, 70), False, False),
    (MATMUL, (32, 70), (70, 33), False, True),
    (MATMUL, (2, 3, 20, 16), (2, 3, 16, 20), False, True),
    (conv(padding=1), (1, 16, 9, 9), (24, 16, 3, 3), True, True),
    (conv(padding=3, strides=2), (1, 3, 17, 17), (16, 3, 7, 7), True, True),
    (conv(), (2, 16, 7, 5), (40, 16, 1, 1), True, True),
    (conv(), (1, 15, 2, 56), (24, 15, 1, 1), True, True),
    (conv(padding=1, groups=3), (2, 12, 9, 7), (48, 4, 3, 2), True, True),
    (conv(padding=1, groups=8), (1, 8, 9, 9), (8, 1, 3, 3), True, False),
]


def integers(shape: tuple[int, ...]) -> np.ndarray:
    """Numbers whose products and sums are exact in float32."""
    return np.random.default_rng(len(shape)).integers(-64, 65, shape).astype(ml_dtypes.bfloat16)


def module(product: tuple) -> tvm.IRModule:
    (operator, _), data, weight, is_constant, _ = product
    params = {"x": tensor(*data, dtype="bfloat16")}
    if is_constant:
        return build(params, lambda _, x: operator(x, relax.const(integers(weight), "bfloat16")))
    params["w"] = tensor(*weight, dtype="bfloat16")
    return build(params, lambda _, x, w: operator(x, w))


def assembly(mod: tvm.IRModule) -> str:
    machine = {"mtriple": "x86_64-linux-gnu", "mcpu": "cooperlake", "opt-level": 0}
    target = tvm.target.Target({"kind": "llvm", **machine})
    executable = relax.build(mod, target, relax_pipeline=pipeline())
    return "".join(kernels.inspect_source("s") for kernels in executable.mod.imports)


@pytest.mark.parametrize(("name", "step"), [("VDPBF16PS", 1), ("BFDOT", 3)])
def test_products(name: str, step: int) -> None:
    products = PRODUCTS[::step]
    mod = merge({f"f{index}": module(product) for index, product in enumerate(products)})
    with emulated_cpu(**CPUS[name]):
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    check(executable, products)


@pytest.mark.skipif(
    not Cpu.of(resolve("native")).has_bfloat16, reason="this CPU has no products of bfloat16"
)
def test_products_on_this_cpu() -> None:
    mod = merge({f"f{index}": module(product) for index, product in enumerate(PRODUCTS)})
    check(relax.build(mod, resolve("native"), relax_pipeline=pipeline()), PRODUCTS)


def check(executable: tvm.runtime.Executable, products: list[tuple]) -> None:
    """Compare the results of the built products."""
    vm = relax.VirtualMachine(executable, tvm.cpu())
    for index, ((_, reference), *shapes, is_constant, _) in enumerate(products):
        arrays = [integers(shape) for shape in shapes]
        got = call(vm, f"f{index}", *(arrays[:1] if is_constant else arrays))
        operands = (torch.from_numpy(array.astype("float64")) for array in arrays)
        np.testing.assert_array_equal(got, reference(*operands).numpy(), err_msg=str(shapes))


@few(6)
@pytest.mark.parametrize(
    "product", PRODUCTS, ids=lambda product: "x".join(map(str, product[1] + product[2]))
)
def test_where_the_instruction_is_used(product: tuple) -> None:
    assert ("vdpbf16ps" in assembly(module(product))) == product[-1]


def test_a_bias_and_a_cast_are_vectorized_where_a_tile_is_written() -> None:
    def linear(bb: relax.BlockBuilder, x: relax.Var, bias: relax.Var) -> relax.Expr:
        product = MATMUL[0](x, relax.const(integers((1024, 1024)), "bfloat16"))
        float_bias = bb.emit(relax.op.astype(bias, "float32"))
        return relax.op.astype(bb.emit(relax.op.add(bb.emit(product), float_bias)), "bfloat16")

    inputs = {"x": tensor(40, 1024, dtype="bfloat16"), "bias": tensor(1024, dtype="bfloat16")}
    code = assembly(build(inputs, linear))
    assert "vdpbf16ps" in code
    assert "vaddps" in code and "addss" not in code


def with_gelu(product: tuple) -> tvm.IRModule:
    """The product in bfloat16, and a function that the kernel applies to its result."""
    (operator, _), data, weight, _, _ = product

    def emit(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = bb.emit(operator(x, relax.const(integers(weight), "bfloat16")))
        scaled = bb.emit(relax.op.multiply(y, relax.const(np.float32(2**-12))))
        return relax.op.nn.gelu(bb.emit(relax.op.astype(scaled, "bfloat16")))

    return build({"x": tensor(*data, dtype="bfloat16")}, emit)


@pytest.mark.parametrize("index", [0, 2, 7, 9] if is_full() else [0, 7])
def test_functions_of_the_result(index: int) -> None:
    product = PRODUCTS[index]
    mod = with_gelu(product)
    with emulated_cpu(**CPUS["VDPBF16PS"]):
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    (_, reference), *shapes = product[:3]
    got = call(relax.VirtualMachine(executable, tvm.cpu()), "main", integers(shapes[0]))
    operands = (torch.from_numpy(integers(shape).astype("float64")) for shape in shapes)
    scaled = (reference(*operands) * 2**-12).bfloat16()
    expected = torch.nn.functional.gelu(scaled.double()).numpy()
    np.testing.assert_allclose(got.astype("float64"), expected, rtol=2**-8, atol=2**-12)
    assert "vdpbf16ps" in assembly(mod)


if __name__ == "__main__":
    tvm.testing.main()
