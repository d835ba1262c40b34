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
"""Transposed convolutions that are lowered as convolutions to all phases of the output."""

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax

from helpers.conv_cases import Case
from helpers.conv_checks import CPU, assert_close, legalized, module, operators
from helpers.grids import few, is_full
from helpers.relax_modules import build, call, cpu, merge, run, tensor
from tvm_fixes.fixes.conv import CONV_LEGALIZE
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches

CASE = Case(
    "NCW",
    "IOW",
    "NCW",
    stride=(4,),
    padding=(2, 2),
    output_padding=(0,),
    dilation=(1,),
    channels=64,
    group_out=6,
    extent=(9,),
    kernel=(8,),
)
BLOCKS = replace(CASE, data_layout="NCW8c", out_layout="NCW4c", group_out=8)

CASES = [
    CASE,
    BLOCKS,
    replace(CASE, data_layout="NWC", out_layout="NWC", kernel_layout="WOI"),
    replace(CASE, data_layout="NWC", kernel_layout="OIW4i"),
    replace(CASE, padding=(0, 0), output_padding=(3,)),
    replace(CASE, padding=(5, 9)),  # outputs of a part of the data
    replace(CASE, kernel=(4,), channels=128, group_out=8, padding=(0, 0)),  # one tap
    replace(CASE, kernel=(12,), stride=(2,), channels=22, extent=(1,)),
    replace(CASE, batch=1, stride=(8,), kernel=(16,), padding=(4, 4)),
    *(replace(CASE, dtype=dtype) for dtype in ("float16", "bfloat16", "float64")),
    replace(CASE, dtype="bfloat16", out_dtype="float32"),
]

OTHERS = {
    "products": replace(CASE, channels=63),
    "dilation": replace(CASE, dilation=(2,)),
    "parts of a phase": replace(CASE, kernel=(9,)),
    "stride": replace(CASE, stride=(1,)),
    "parts of a block": replace(CASE, out_layout="NCW4c"),
    "groups": replace(CASE, groups=2, channels=128),
    "integers": replace(CASE, dtype="int8", out_dtype="int32"),
    "2-D": Case(stride=(4, 4), kernel=(8, 8), channels=64, group_out=16),
}


def lowered(case: Case, target: tvm.target.Target | None = CPU) -> list[str]:
    """The kernels of a case with a constant kernel."""
    kernel = np.zeros(case.shapes()[1], case.arrays()[1].dtype)
    return operators(legalized(module(case, constant_kernel=kernel), target))


@few(1)
@pytest.mark.parametrize("case", CASES[:6] if is_full() else CASES[1:6:2], ids=str)
def test_symbolic_extents(case: Case) -> None:
    """Without copies for a reshape, which TVM could not prove to be a view."""
    case = replace(case, dynamic=True)
    assert lowered(case).count("interleaved") == 1
    _, kernel = case.arrays()
    mod = module(case, constant_kernel=kernel)
    for extent in (4, 5, 8, 9, 23):
        longer = replace(case, extent=(extent,))
        data, _ = longer.arrays()
        assert_close(longer, run(mod, data, pipeline=pipeline()), data, kernel)


def test_results() -> None:
    arrays = [case.arrays() for case in CASES]
    mod = merge(
        {
            f"f{index}": module(case, constant_kernel=kernel)
            for index, (case, (_, kernel)) in enumerate(zip(CASES, arrays, strict=True))
        }
    )
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline=pipeline()), tvm.cpu())
    for index, (case, (data, kernel)) in enumerate(zip(CASES, arrays, strict=True)):
        assert "conv1d" in lowered(case)
        assert_close(case, call(vm, f"f{index}", data), data, kernel)


@pytest.mark.parametrize("name", OTHERS)
def test_other_convolutions_are_kept(name: str) -> None:
    [operator] = [each for each in lowered(OTHERS[name]) if each.startswith("conv")]
    assert operator.endswith("d_transpose")


def test_a_variable_kernel_is_kept() -> None:
    assert "conv1d_transpose" in operators(legalized(module(CASE), CPU))


def test_other_targets_and_the_switch_leave_the_convolution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "conv1d_transpose" in lowered(CASE, None)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, CONV_LEGALIZE)
    assert "conv1d_transpose" in lowered(CASE)


def test_a_symbolic_batch_and_a_bias() -> None:
    data, kernel = CASE.arrays()
    bias = np.arange(CASE.group_out, dtype="float32").reshape(-1, 1)
    batch = tvm.tirx.Var("n", "int64")

    def layer(bb: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        product = bb.emit(CASE.call(x, relax.const(kernel)))
        return relax.op.nn.relu(bb.emit(relax.op.add(product, relax.const(bias))))

    mod = build({"x": tensor(batch, *data.shape[1:])}, layer)
    assert "conv1d" in operators(legalized(mod, CPU))
    got = run(mod, data, pipeline=pipeline())
    want = np.maximum(CASE.reference(data, kernel) + bias, 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


if __name__ == "__main__":
    tvm.testing.main()
