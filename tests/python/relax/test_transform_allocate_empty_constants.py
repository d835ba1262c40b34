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
import numpy as np
import pytest
import torch
import tvm
import tvm.testing
from tvm import relax

import tvm_fixes
from helpers.relax_modules import build, integers, run, tensor
from tvm_fixes import pipeline, transform
from tvm_fixes.relax.ir import tensor_of
from tvm_fixes.support import switches

op = relax.op
EMPTY = np.zeros((1, 0, 4), "float32")


def joined(b, x):
    """Read twice, in an operator and in the result."""
    empty = relax.const(EMPTY)
    out = b.emit(op.concat([empty, x, empty], axis=1))
    return b.emit(relax.Tuple([out, empty, relax.const(np.zeros(0, "int64"), "int64")]))


def constants(mod):
    expressions = []
    relax.analysis.post_order_visit(
        mod["main"],
        lambda expr: expressions.append(expr) if tensor_of(expr) is not None else None,
    )
    return expressions


def test_empty_constants_are_allocated(monkeypatch):
    mod = build({"x": tensor(1, 2, 4)}, joined)
    after = transform.AllocateEmptyConstants()(mod)
    assert not constants(after)
    assert not tvm_fixes.verify(after).errors
    other = build({"x": tensor(1, 2, 4)}, lambda b, x: op.add(x, relax.const(integers(4))))
    assert transform.AllocateEmptyConstants()(other).same_as(other)
    x = integers(1, 2, 4)
    out, empty, numbers = run(mod, x, pipeline=pipeline())
    np.testing.assert_array_equal(out, x)
    assert (empty.shape, numbers.shape, numbers.dtype) == ((1, 0, 4), (0,), np.int64)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "empty-constants")
    assert transform.AllocateEmptyConstants()(mod).same_as(mod)


@pytest.mark.parametrize("rows", [1, 3])
def test_empty_results_are_not_computed(rows):
    """TVM turns the permute into a reshape, which replaces an extent of 0 by the data's."""

    def emit(b, data, indices):
        places = b.emit(op.permute_dims(indices, [3, 0, 1, 2]))
        return op.scatter_elements(data, places, data, 0)

    inputs = {"data": tensor(1, rows, 0, 1), "indices": tensor(rows, 0, 1, 1, dtype="int64")}
    data, indices = np.zeros((1, rows, 0, 1), "float32"), np.zeros((rows, 0, 1, 1), "int64")
    assert run(build(inputs, emit), data, indices, pipeline=pipeline()).shape == data.shape


class Tokens(torch.nn.Module):
    """The extra tokens of a vision transformer, possibly none."""

    def __init__(self):
        super().__init__()
        self.registers = torch.nn.Parameter(torch.zeros(1, 0, 8))
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x):
        tokens = torch.cat([self.registers.expand(x.shape[0], -1, -1), x], 1)
        return self.linear(tokens), self.registers * 2, x[:0]


@pytest.mark.parametrize("weights", ["inside", "outside"])
def test_a_model_with_empty_parameters_is_saved_and_loaded(weights, tmp_path):
    x = torch.randn(2, 3, 8)
    model = tvm_fixes.compile(torch.export.export(Tokens(), (x,)), weights=weights)
    assert model.report.equal
    assert [output.shape for output in model.report.outputs] == [[2, 3, 8], [1, 0, 8], [0, 3, 8]]
    model.save(tmp_path / "out")
    loaded = tvm_fixes.CompiledModel.load(tmp_path / "out")
    for ours, expected in zip(loaded.run(x.numpy()), model.run(x.numpy()), strict=True):
        np.testing.assert_array_equal(ours, expected)


def test_inputs_of_no_elements():
    x = torch.zeros(0, 8)

    class Rows(torch.nn.Module):
        def forward(self, x):
            return torch.softmax(x, -1), x.sum(0)

    report = tvm_fixes.compile(torch.export.export(Rows(), (x,))).report
    assert report.equal
    assert [output.shape for output in report.outputs] == [[0, 8], [8]]


if __name__ == "__main__":
    tvm.testing.main()
