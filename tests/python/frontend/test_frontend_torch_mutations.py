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
"""Programs that write to their inputs."""

import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

from helpers.grids import few
from helpers.relax_modules import calls, cpu
from tvm_fixes.fixes.torch_importer import MUTATIONS
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.relax.updates import updates_of
from tvm_fixes.support import switches


class Cache(torch.nn.Module):
    """Writes rows along an axis, as a cache of keys and values does, and to a counter."""

    def __init__(self, axis):
        super().__init__()
        self.axis = axis

    def forward(self, x, position, cache, count):
        places = torch.arange(x.shape[self.axis]) + position
        cache.index_copy_(self.axis, places, x)
        count.add_(1)
        return cache.sum(self.axis), x * 2


def exported(axis):
    x, cache = torch.randn(2, 3, 5).movedim(1, axis), torch.randn(2, 7, 5).movedim(1, axis)
    inputs = (x.contiguous(), torch.tensor(2), cache.contiguous(), torch.tensor([4]))
    return torch.export.export(Cache(axis), inputs), inputs


@few(1)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_new_values_of_inputs_are_the_last_outputs(axis):
    program, inputs = exported(axis)
    mod = from_exported_program(program, return_updates=True)
    assert updates_of(mod["main"]) == {"cache": 2, "count": 3}
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    given = [tvm.runtime.tensor(value.numpy()) for value in inputs]
    results = vm["main"](*given)
    expected = [*Cache(axis)(*inputs), inputs[2], inputs[3]]
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result.numpy(), value.numpy(), rtol=1e-5, atol=1e-6)
    assert results[2].data_ptr() == given[2].data_ptr()
    np.testing.assert_allclose(given[2].numpy(), inputs[2].numpy())


def test_no_permute_of_the_cache():
    program, _ = exported(2)
    mod = from_exported_program(program, return_updates=True)
    assert [call.args[0].name for call in calls(mod, "relax.scatter_elements")] == ["cache"]
    assert not calls(mod, "relax.permute_dims")


def test_without_the_option_or_the_fix_the_values_are_not_returned(monkeypatch):
    program, _ = exported(0)
    for fix, options in (("", {}), (MUTATIONS, {"return_updates": True})):
        monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, fix)
        main = from_exported_program(program, **options)["main"]
        assert len(main.ret_ty.fields) == 2
        assert not updates_of(main)


class Swap(torch.nn.Module):
    """The new value of each input is the old one of the other."""

    def forward(self, a, b):
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        return a - b


def test_a_value_that_is_another_input():
    inputs = (torch.ones(3), torch.zeros(3))
    program = torch.export.export(Swap(), inputs)
    mod = from_exported_program(program, return_updates=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    difference, a, b = vm["main"](*(tvm.runtime.tensor(value.numpy()) for value in inputs))
    assert updates_of(mod["main"]) == {"a": 1, "b": 2}
    for result, value in ((difference, -1), (a, 0), (b, 1)):
        np.testing.assert_array_equal(result.numpy(), np.full(3, value))


class Windows(torch.nn.Module):
    def __init__(self, size: int, step: int) -> None:
        super().__init__()
        self.size, self.step = size, step

    def forward(self, x):
        y = x + 0
        y.unfold(0, self.size, self.step)[-1, -1] += 2
        return y


@pytest.mark.parametrize("size, step", ((1, 2), (2, 1), (3, 3)))
def test_writes_to_windows_with_gaps_or_overlaps_are_rejected(size, step):
    program = torch.export.export(Windows(size, step), (torch.arange(5.0),))
    with pytest.raises(
        tvm.error.OpNotImplemented, match="'add_' writes to the windows of 'unfold'"
    ):
        from_exported_program(program)


def test_writes_to_windows_that_are_a_partition():
    x = torch.arange(6.0)
    program = torch.export.export(Windows(2, 2), (x,))
    mod = from_exported_program(program)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    (got,) = vm["main"](tvm.runtime.tensor(x.numpy()))
    np.testing.assert_array_equal(got.numpy(), Windows(2, 2)(x).numpy())


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return x + self.count


def test_a_buffer_that_is_read_and_written_is_rejected():
    program = torch.export.export(Counter(), (torch.ones(2),))
    with pytest.raises(tvm.error.OpNotImplemented, match=r"buffer 'count' .* make it an input"):
        from_exported_program(program)


def test_statistics_that_no_output_reads():
    module, x = torch.nn.BatchNorm1d(3).train(), torch.randn(5, 3)
    mod = from_exported_program(torch.export.export(module, (x,)), return_updates=True)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    [normalized] = vm["main"](tvm.runtime.tensor(x.numpy()))
    np.testing.assert_allclose(normalized.numpy(), module(x).detach().numpy(), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
