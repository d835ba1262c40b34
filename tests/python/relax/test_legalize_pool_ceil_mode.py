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
"""Tests of the poolings with symbolic extents that round up."""

import itertools

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx
from tvm_ffi import structural_walk

import tvm_fixes
from helpers.grids import few, is_full
from helpers.relax_modules import build, cpu, tensor
from tvm_fixes import pipeline
from tvm_fixes.relax.legalize.pool_ceil_mode import FIX_ID
from tvm_fixes.support import switches

H, W = tirx.Var("h", "int64"), tirx.Var("w", "int64")


def pooling(kind, shape, size, stride, padding, include=True, dtype="float32", **options):
    rank = len(size)
    return build(
        {"x": tensor(*shape, dtype=dtype)},
        lambda _, x: getattr(relax.op.nn, f"{kind}_pool{rank}d")(
            x,
            pool_size=size,
            strides=stride,
            padding=[*padding, *padding],
            ceil_mode=True,
            count_include_pad=include,
            **options,
        ),
    )


def machine(mod):
    with switches.collect() as used:
        executable = relax.build(mod, cpu(), relax_pipeline=pipeline())
    assert FIX_ID in used
    return relax.VirtualMachine(executable, tvm.cpu())


def compare(kind, size, stride, padding, include, extents):
    rank = len(size)
    shape = [2, 3, H, W][: rank + 2]
    vm = machine(pooling(kind, shape, size, stride, padding, include))
    function = getattr(torch.nn.functional, f"{kind}_pool{rank}d")
    options = {} if kind == "max" else {"count_include_pad": include}
    for sizes in itertools.product(extents, repeat=rank):
        x = np.random.default_rng(0).standard_normal((2, 3, *sizes), "float32")
        try:
            expected = function(
                torch.from_numpy(x), size, stride, padding, ceil_mode=True, **options
            )
        except RuntimeError:  # PyTorch rejects a result without elements.
            continue
        got = vm["main"](tvm.runtime.tensor(x)).numpy()
        assert got.shape == tuple(expected.shape)
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


ONE_AXIS = list(
    itertools.product(
        (("max", True), ("avg", True), ("avg", False)),
        ((3, 2, 0), (3, 2, 1), (2, 3, 1), (2, 2, 0), (4, 3, 2), (1, 3, 0)),
    )
)


# Each window is among every fifth case or these two.
@few(3)
@pytest.mark.parametrize(
    "kind, window", ONE_AXIS if is_full() else [*ONE_AXIS[1:3], *ONE_AXIS[::5]]
)
def test_one_axis(kind, window):
    size, stride, padding = window
    kind, include = kind
    compare(kind, [size], [stride], [padding], include, range(1, 11))


@pytest.mark.parametrize("kind, include", (("max", True), ("avg", True), ("avg", False)))
def test_two_axes(kind, include):
    compare(kind, [3, 2], [2, 3], [1, 0], include, (2, 3, 6, 7))


@pytest.mark.parametrize("kind", ("max", "avg"))
def test_in_another_layout(kind):
    vm = machine(pooling(kind, [1, H, W, 2], [3, 2], [2, 2], [1, 0], layout="NHWC"))
    x = np.random.default_rng(0).standard_normal((1, 6, 5, 2), "float32")
    data = torch.from_numpy(x).permute(0, 3, 1, 2)
    function = getattr(torch.nn.functional, f"{kind}_pool2d")
    expected = function(data, [3, 2], 2, [1, 0], ceil_mode=True).permute(0, 2, 3, 1)
    got = vm["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-5, atol=1e-6)


def test_integers():
    vm = machine(pooling("max", [1, 1, H], [3], [2], [1], dtype="int32"))
    x = np.array([[[-5, -4, -3, -7, -9, -8]]], "int32")
    np.testing.assert_array_equal(vm["main"](tvm.runtime.tensor(x)).numpy(), [[[-4, -3, -7, -8]]])


@pytest.mark.parametrize("size, stride, padding", ((3, 2, 0), (2, 3, 1), (4, 2, 2)))
def test_the_type_has_no_call(size, stride, padding):
    mod = pooling("max", [1, 1, H], [size], [stride], [padding])
    (_, _, found) = mod["main"].ret_ty.shape.values
    calls = []
    structural_walk(found, (tvm.ir.Call, calls.append))
    assert not calls
    for n in range(1, 20):
        windows = -(-(n + 2 * padding - size) // stride) + 1
        windows -= (windows - 1) * stride >= n + padding
        analyzer = tvm.sym.Analyzer()
        analyzer.bind(H, tirx.const(n, "int64"))
        assert int(analyzer.simplify(found)) == windows


def test_static_extents_use_stock():
    mod = pooling("max", [1, 1, 8], [3], [2], [0])
    with switches.collect() as used:
        relax.build(mod, cpu(), relax_pipeline=pipeline())
    assert FIX_ID not in used


def test_a_model(tmp_path):
    class Pooled(torch.nn.Module):
        def forward(self, x):
            x = torch.nn.functional.max_pool2d(torch.relu(x), 2, 3, 1, ceil_mode=True)
            x = torch.nn.functional.avg_pool2d(x, 3, 2, 1, ceil_mode=True)
            return torch.cat([x, x * 2], dim=1)

    x = torch.randn(2, 3, 17, 22)
    dims = {2: torch.export.Dim.AUTO, 3: torch.export.Dim.AUTO}
    exported = torch.export.export(Pooled(), (x,), dynamic_shapes=(dims,))
    compiled = tvm_fixes.compile(exported, output=tmp_path / "out")
    for h, w in ((17, 22), (8, 10)):
        x = torch.randn(2, 3, h, w)
        got = compiled.run(x.numpy())
        np.testing.assert_allclose(got, Pooled()(x).numpy(), rtol=1e-5, atol=1e-6)


def test_switched_off(monkeypatch):
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    mod = pooling("max", [1, 1, H], [2], [3], [0])
    assert "if_then_else" in str(mod["main"].ret_ty)


if __name__ == "__main__":
    tvm.testing.main()
