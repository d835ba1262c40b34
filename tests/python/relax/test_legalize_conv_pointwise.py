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
"""Pointwise convolutions as products of matrices."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.conv_cases import Case
from helpers.conv_checks import assert_computes, legalized, module
from helpers.relax_modules import build, run, tensor
from tvm_fixes.attributes import PANEL
from tvm_fixes.lowering import pipeline

CPU = tvm.target.Target("llvm")
AVX512 = tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"})
PLAIN = Case(
    transposed=False,
    kernel_layout="OIHW",
    stride=(1, 1),
    kernel=(1, 1),
    channels=33,
    group_out=65,
    extent=(9, 7),
)
LINE = {"data_layout": "NCW", "kernel_layout": "OIW", "out_layout": "NCW"}
VOLUME = {"data_layout": "NCDHW", "kernel_layout": "OIDHW", "out_layout": "NCDHW"}
OF_3D = {"stride": (1, 2, 1), "padding": (0,) * 6, "dilation": (1,) * 3, "kernel": (1,) * 3}
OF_1D = {"stride": (1,), "padding": (0, 0), "dilation": (1,), "kernel": (1,)}


def is_product(case: Case, target: tvm.target.Target = CPU) -> bool:
    return PANEL in legalized(module(case), target).script()


def test_values() -> None:
    cases = [
        PLAIN,
        replace(PLAIN, extent=(4, 8), channels=40, group_out=24, batch=1),
        replace(PLAIN, group_out=801, channels=5),  # blocks of rows
        replace(PLAIN, extent=(13, 12), channels=512, group_out=20, batch=1),  # chunks
        replace(PLAIN, stride=(2, 3)),
        replace(PLAIN, kernel_layout="HWIO"),
        replace(PLAIN, dynamic=True),
        replace(PLAIN, extent=(50,), **LINE, **OF_1D),
        replace(PLAIN, extent=(3, 5, 4), **VOLUME, **OF_3D),
    ]
    assert [is_product(case) for case in cases] == [not case.dynamic for case in cases]
    assert_computes(cases, target=CPU)


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel": (1, 3)},
        {"padding": (1, 0, 0, 0)},
        {"data_layout": "NHWC", "out_layout": "NHWC"},
        {"dtype": "float16"},
        {"groups": 3},
    ],
)
def test_others_are_no_products(changes: dict) -> None:
    assert is_product(PLAIN) and not is_product(replace(PLAIN, **changes))


def test_many_registers_hold_tiles_of_channels() -> None:
    assert not is_product(PLAIN, AVX512)


def test_what_follows_is_one_kernel() -> None:
    """It is not fused into the product, which stores tiles at the end of the pixels in scalars."""
    shapes = {"data": (2, 33, 9, 7), "kernel": (65, 33, 1, 1), "bias": (1, 65, 1, 1)}
    shapes |= {"residual": (2, 65, 9, 7)}

    def emit(builder, data, kernel, bias, residual):
        total = builder.emit(relax.op.add(builder.emit(relax.op.nn.conv2d(data, kernel)), bias))
        return relax.op.nn.relu(builder.emit(relax.op.add(total, residual)))

    mod = build({name: tensor(*shape) for name, shape in shapes.items()}, emit)
    with CPU:
        lowered = pipeline()(mod)
    names = {var.name_hint for var, _ in lowered.functions_items()} - {"main"}
    assert len(names) == 2 and "conv2d" in names
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes.values()]
    data, weight, bias, residual = (array.astype("float64") for array in arrays)
    sums = np.einsum("oi,nihw->nohw", weight[:, :, 0, 0], data)
    got = run(mod, *arrays, pipeline=pipeline(), target=CPU)
    np.testing.assert_allclose(got, np.maximum(sums + bias + residual, 0), rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    tvm.testing.main()
