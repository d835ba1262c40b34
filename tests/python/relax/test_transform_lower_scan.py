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

import itertools

import ml_dtypes
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers import grids
from helpers.gpu_kernels import GPU
from helpers.gpu_modules import run_on_gpu
from helpers.relax_modules import build, call, cpu, merge, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.indices import FIX_ID
from tvm_fixes.relax.transform import LowerScan
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_forked

op = relax.op
n, m = (tirx.Var(name, "int64") for name in "nm")


CASES = {
    f"{name}{index}": (name, axis, exclusive)
    for name in ("cumsum", "cumprod")
    for index, (axis, exclusive) in enumerate(itertools.product((0, 1, -1, None), (False, True)))
}


def scans(rows=n, columns=m, dtype="float32"):
    x = tensor(rows, 3, columns, dtype=dtype)
    return {
        case: build({"x": x}, lambda _, x, f=f, a=a, e=e: getattr(op, f)(x, a, exclusive=e))
        for case, (f, a, e) in CASES.items()
    }


def expected(x, name, axis, exclusive):
    result = getattr(np, name)(x, axis, dtype=x.dtype)
    if exclusive and result.size:
        # An exclusive scan omits the last element and begins with the identity.
        axis = axis or 0
        first = np.full_like(np.take(result, [0], axis), name == "cumprod")
        result = np.concatenate([first, np.delete(result, -1, axis)], axis)
    return result


def machine(mods):
    executable = relax.build(merge(mods), cpu(), relax_pipeline=pipeline())
    return relax.VirtualMachine(executable, tvm.cpu())


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_scans_of_any_extents(dtype):
    with switches.collect() as used:
        vm = machine(scans(dtype=dtype))
    assert FIX_ID in used

    def run():
        for shape in ((2, 3, 4), (1, 3, 1), (0, 3, 4), (2, 3, 0), (0, 3, 0)):
            x = np.random.default_rng(0).integers(1, 4, shape).astype(dtype)
            for case, parameters in CASES.items():
                want = expected(x, *parameters)
                np.testing.assert_array_equal(call(vm, case, x), want, err_msg=case)

    outcome = run_forked(run, timeout=60)
    assert outcome.kind is OutcomeKind.VALUE, outcome


@grids.few(2)
@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.parametrize("name", ("cumsum", "cumprod"))
def test_sixteen_bits_are_scanned_in_float32_as_pytorch_does(name, dtype):
    x = torch.rand(4, 40, generator=torch.Generator().manual_seed(0)) * 8 - 4
    if name == "cumprod":
        # The intermediate products exceed the range of float16.
        x = torch.cat([x, 1 / x.flip(1)], dim=1)
    x = x.to(getattr(torch, dtype))
    mod = build({"x": tensor(*x.shape, dtype=dtype)}, lambda _, x: getattr(op, name)(x, 1))
    wide = x.float().numpy()
    narrow = tvm.runtime.tensor(wide.astype(getattr(ml_dtypes, dtype, dtype)))
    got = machine({"main": mod})["main"](narrow).numpy().astype("float32")
    np.testing.assert_array_equal(got, getattr(torch, name)(x, 1).float().numpy())


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_wider_data_are_rounded_as_pytorch_does(dtype):
    x = torch.rand(4, 40, generator=torch.Generator().manual_seed(0)) + 0.5
    mod = build({"x": tensor(*x.shape)}, lambda _, x: op.cumprod(x, 1, dtype=dtype))
    got = machine({"main": mod})["main"](tvm.runtime.tensor(x.numpy())).numpy().astype("float32")
    want = torch.cumprod(x, 1, dtype=getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(got, want)


def test_extents_that_are_sums():
    """The extent of the concatenation is ``1 + (n - 1)``, and that of its cast is ``n``."""

    def differences(builder, x):
        inside = {"assume_inbound": True}
        first = builder.emit(op.strided_slice(x, [0], [0], [1], **inside))
        before = builder.emit(op.strided_slice(x, [0], [0], [n - 1], **inside))
        after = builder.emit(op.strided_slice(x, [0], [1], [n], **inside))
        both = builder.emit(op.concat([first, builder.emit(op.subtract(after, before))], 0))
        return op.cumsum(builder.emit(op.astype(both, "int64")), 0)

    vm = machine({"main": build({"x": tensor(n)}, differences)})
    for extent in (5, 2):
        x = np.random.default_rng(0).integers(-9, 9, extent).astype("float32")
        np.testing.assert_array_equal(call(vm, "main", x), x)


def test_static_lines_of_no_elements():
    vm = machine(scans(4, 0))
    for name in CASES:
        assert call(vm, name, np.zeros((4, 3, 0), "float32")).size == 0


def test_sorts_of_no_elements():
    x = tensor(n, m)
    vm = machine(
        {
            "sort": build({"x": x}, lambda _, x: op.sort(x, axis=-1)),
            "argsort": build({"x": x}, lambda _, x: op.argsort(x, axis=0, dtype="int64")),
            "nonzero": build({"x": x}, lambda _, x: op.nonzero(x)),
            "unique": build({"x": x}, lambda _, x: op.unique(x, sorted=True)),
        }
    )
    for shape in ((0, 3), (3, 0), (0, 0)):
        empty = np.zeros(shape, "float32")
        for name in ("sort", "argsort", "nonzero"):
            outcome = run_forked(lambda n=name, x=empty: call(vm, n, x), timeout=60)
            assert outcome.kind is OutcomeKind.VALUE, (name, shape, outcome)
            assert outcome.value.size == 0


@pytest.mark.parametrize("case", grids.sample(list(CASES), 3))
def test_scans_of_a_gpu(case):
    mod = scans(dtype="int32")[case]
    for shape in ((2, 3, 4), (0, 3, 4), (2, 3, 0)):
        x = np.random.default_rng(0).integers(1, 4, shape).astype("int32")
        np.testing.assert_array_equal(run_on_gpu(mod, x), expected(x, *CASES[case]))


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_sixteen_bits_are_scanned_in_float32_on_a_gpu(dtype):
    x = torch.rand(2, 40, generator=torch.Generator().manual_seed(0))
    x = torch.cat([x * 8 - 4, 1 / (x * 8 - 4).flip(1)], dim=1).to(getattr(torch, dtype))
    mod = build({"x": tensor(*x.shape, dtype=dtype)}, lambda _, x: op.cumprod(x, 1))
    narrow = x.float().numpy().astype(getattr(ml_dtypes, dtype, dtype))
    got = run_on_gpu(mod, narrow).astype("float32")
    # The products are associated differently, so they may be rounded to the next 16-bit number.
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3}[dtype]
    want = torch.cumprod(x, 1).float().numpy()
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-7)


@pytest.mark.parametrize("target", ("llvm", GPU))
def test_static_shapes_of_no_elements(target):
    x = tensor(2, 0, 3, dtype="float16")
    before = build({"x": x}, lambda _, x: op.cumsum(x, 1, "int32"))
    after = build({"x": x}, lambda _, x: op.zeros((2, 0, 3), "int32"))
    with tvm.target.Target(target):
        tvm.ir.assert_structural_equal(LowerScan()(before), after)


def test_scans_switched_off(monkeypatch):
    mod = scans()["cumsum0"]
    monkeypatch.setenv("TVM_FIXES_DISABLE", FIX_ID)
    for target in ("llvm", GPU):
        with tvm.target.Target(target):
            assert LowerScan()(mod).same_as(mod)


if __name__ == "__main__":
    tvm.testing.main()
