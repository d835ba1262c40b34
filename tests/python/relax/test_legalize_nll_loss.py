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

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.relax_modules import build, call, cpu, merge, tensor
from tvm_fixes.lowering import pipeline

op = relax.op
n, c = (tirx.Var(name, "int64") for name in "nc")
REDUCTIONS = ("none", "sum", "mean")


def machine(mods, **options):
    executable = relax.build(merge(mods), cpu(), relax_pipeline=pipeline(**options))
    return relax.VirtualMachine(executable, tvm.cpu())


def modules(ignored):
    """Losses and gradients of rows, and of one row, by name."""
    mods = {}
    for reduction, is_row, is_weighted in itertools.product(REDUCTIONS, (False, True), (0, 1)):
        outer = () if is_row else (n,)
        grad = outer if reduction == "none" else ()
        types = {"x": tensor(*outer, c), "t": tensor(*outer, dtype="int64")}
        if is_weighted:
            types["w"] = tensor(c)
        options = {"reduction": reduction, "ignore_index": ignored}
        name = f"{reduction}{'_row' * is_row}{'_weighted' * is_weighted}"
        mods[name] = build(types, lambda _, *args, o=options: op.nn.nll_loss(*args, **o))
        mods[f"grad_{name}"] = build(
            {"g": tensor(*grad), **types},
            lambda _, *args, o=options: op.grad.nll_loss_backward(*args, **o),
        )
    return mods


@torch.enable_grad()
def expected(name, ignored, x, t, w):
    x = torch.tensor(x, requires_grad=True)
    weights = torch.tensor(w) if "weighted" in name else None
    loss = torch.nn.functional.nll_loss(
        x, torch.tensor(t), weights, ignore_index=ignored, reduction=name.split("_")[0]
    )
    gradient = torch.full(loss.shape, 1.5)
    loss.backward(gradient)
    return loss.detach().numpy(), gradient.numpy(), x.grad.numpy()


@pytest.mark.parametrize("ignored", [-100, 1])
def test_ignored_targets_have_no_loss_and_no_gradient(ignored):
    mods = modules(ignored)
    vm = machine(mods)
    generator = np.random.default_rng(0)
    x, w = generator.standard_normal((6, 4)).astype("float32"), np.float32([0.5, 1, 2, 3])
    t = np.array([0, ignored, 3, 2, ignored, 1])
    for name in mods:
        if name.startswith("grad"):
            continue
        args = (x[2], np.array(t[2])) if "row" in name else (x, t)
        loss, gradient, wanted = expected(name, ignored, *args, w)
        more = [w] if "weighted" in name else []
        np.testing.assert_allclose(call(vm, name, *args, *more), loss, rtol=1e-5, err_msg=name)
        got = call(vm, f"grad_{name}", gradient, *args, *more)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-7, err_msg=name)


def test_targets_that_are_not_classes():
    """Such targets are an error; without index checks, no other memory is read."""
    mods = {name: mod for name, mod in modules(-100).items() if "row" not in name}
    checked = machine(mods)
    x, w = np.ones((2, 4), "float32"), np.ones(4, "float32")
    for name, target in itertools.product(mods, (-1, 4, 10**12)):
        t = np.array([0, target])
        more = [w] if "weighted" in name else []
        gradient = np.ones(2 if "none" in name else (), "float32")
        args = [gradient] if name.startswith("grad") else []
        with pytest.raises(AssertionError, match=f"index {target} is out of range for axis 1 of 4"):
            call(checked, name, *args, x, t, *more)
    # Only the kernels, with TVM's own pipeline.
    executable = relax.build(merge(mods), cpu(), relax_pipeline="default")
    bounded = relax.VirtualMachine(executable, tvm.cpu())
    assert call(bounded, "sum_weighted", x, np.array([10**12, -(10**12)]), w) == -2


if __name__ == "__main__":
    tvm.testing.main()
