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
"""Limits on constants relative to parameters: warnings, errors and the names in them."""

import math
import re

import numpy as np
import pytest
import torch
import tvm.testing
from torch import nn

from helpers.compiling import fails
from helpers.models import onnx_conv
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.errors import UsageError
from tvm_fixes.relax.constants.size_check import ALLOWANCE
from tvm_fixes.runtime.inspection import inspect

ROWS, WIDTH = 384, 256


class Repeated(nn.Module):
    """A broadcast row, materialized if everything is folded, and a layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.row = nn.Parameter(torch.randn(WIDTH))
        self.layer = nn.Linear(WIDTH, 8)

    def forward(self, x):
        return self.layer(x + self.row.expand(ROWS, WIDTH) * 2)


class Tied(nn.Module):
    """An embedding that is the last layer's weight, and another layer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(1000, 128)
        self.layer = nn.Linear(128, 128)
        self.head = nn.Linear(128, 1000, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.layer(self.embedding(tokens)))


def repeated() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Repeated().eval(), (torch.randn(ROWS, WIDTH),)


def tied() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Tied().eval(), (torch.zeros(2, 3, dtype=torch.int64),)


def test_a_constant_that_grows_is_named():
    written_out = ROWS * WIDTH * 4
    model = compile_model(repeated(), max_growth=math.inf)
    report = model.report
    assert report.equal
    assert report.constant_bytes > written_out > 1.2 * report.parameter_bytes + ALLOWANCE
    [warning] = report.warnings
    assert warning.startswith(f"the constants of the artifact take {report.constant_bytes} bytes")
    assert f"parameters' {report.parameter_bytes}" in warning
    # Its original size is that of the row that it replaces.
    assert f"{written_out} bytes ({written_out - WIDTH * 4} new): " in warning
    assert "in main of row" in warning


def test_within_the_budget_there_is_no_warning():
    report = compile_model(repeated(), compare=False).report
    assert report.warnings == []
    assert report.constant_bytes <= 1.2 * report.parameter_bytes + ALLOWANCE
    assert report.unfolded


def test_a_duplicate_weight_counts_once():
    report = compile_model(tied(), compare=False, max_growth=math.inf).report
    table = 1000 * 128 * 4
    [warning] = report.warnings
    written, new = map(int, re.search(r"(\d+) bytes \((\d+) new\): ", warning).groups())
    assert table <= written == new < 1.05 * table  # the last tile is padded with zero columns
    assert "in main of embedding.weight, head.weight" in warning


def test_rejected_beyond_the_ratio():
    message = fails(repeated(), compare=False, max_growth=math.inf, max_size_ratio=2)
    assert "in main of row" in message
    assert message.endswith("; the limit is 2 times")
    # The requested limit takes precedence over the warning.
    report = compile_model(repeated(), compare=False, max_size_ratio=2).report
    assert report.warnings == []


def test_a_lower_ratio_than_the_warning():
    module = nn.Linear(512, 512).eval(), (torch.randn(1, 512),)
    message = fails(module, compare=False, max_size_ratio=0.5)
    assert message.endswith("; the limit is 0.5 times")


@pytest.mark.parametrize("ratio", [0, -1, math.nan])
def test_a_row_without_a_ratio(ratio):
    message = fails(onnx_conv(), error=UsageError, max_size_ratio=ratio)
    assert message == f"max_size_ratio must be positive, got {ratio}"


def test_tiny_models_are_not_warned_of():
    for sizes in ((1, 1), (3, 5), (64, 10)):
        module = nn.Sequential(nn.Linear(*sizes), nn.ReLU()).eval()
        report = compile_model((module, (torch.randn(2, sizes[0]),)), compare=False).report
        assert report.warnings == []
        assert report.size_ratio > 2


class TestNames:
    def test_of_pytorch(self, tmp_path):
        model = compile_model(tied(), compare=False, output=tmp_path / "out")
        module, _ = tied()
        inspection = inspect(tmp_path / "out")
        named = {c.parameters: c for c in inspection.constants if c.parameters}
        assert set(named) == {
            ("embedding.weight", "head.weight"),
            ("layer.weight",),
            ("layer.bias",),
        }
        assert inspection.parameter_bytes == model.report.parameter_bytes
        assert inspection.constant_bytes == model.report.constant_bytes
        # The weight is in its kernel's layout, by an explicit operator.
        weight = named["layer.weight",]
        assert "in main" in weight.made_by
        held = np.fromfile(tmp_path / "out" / "model.so", "uint8")
        data = held[weight.offset : weight.offset + weight.nbytes].view("float32")
        expected = module.layer.weight.detach().numpy()
        np.testing.assert_array_equal(np.sort(data), np.sort(expected.ravel()))
        assert named["layer.bias",].made_by == ""

    def test_of_onnx(self, tmp_path):
        compile_model(onnx_conv(), compare=False, output=tmp_path / "out")
        [constant] = [c for c in inspect(tmp_path / "out").constants if c.kind == "tensor"]
        assert constant.parameters == ("w",)


if __name__ == "__main__":
    tvm.testing.main()
