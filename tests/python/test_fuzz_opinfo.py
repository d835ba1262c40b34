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
"""A fixed sample of what ``make fuzz`` draws from PyTorch's own sample inputs."""

from dataclasses import replace

import pytest
import torch
import tvm
import tvm.testing

from tests.fuzz import opinfo, opinfo_compile
from tests.fuzz.torch_ways import Way
from tvm_fixes.torch.partition import Partition

# Each failed once: the operator, the dtype, the sample, and the seed of special values.
CASES = [
    ("nn.functional.selu", torch.float32, 0, None),
    ("nn.functional.avg_pool2d", torch.float32, 1, None),
    ("nn.functional.grid_sample", torch.float32, 0, None),
    ("nn.functional.softshrink", torch.float32, 0, 1),
    ("max.reduction_with_dim", torch.float32, 0, 1),
    ("floor_divide", torch.float32, 3, 1),
    ("ne", torch.float32, 3, 1),
    ("cumsum", torch.bfloat16, 1, None),
    ("arange", torch.float32, 3, None),
    ("argsort", torch.bool, 0, None),
    ("nn.functional.softmin", torch.bfloat16, 0, None),
]


@pytest.mark.parametrize(("name", "dtype", "sample", "special"), CASES)
def test_operators_on_samples_of_pytorch(
    name: str, dtype: torch.dtype, sample: int, special: int | None
) -> None:
    case = opinfo.Case.of(name, dtype, sample, special)
    assert case is not None
    assert opinfo.check(case) is None


@pytest.mark.parametrize("way", [Way.NOT_DECOMPOSED, Way.TRACED])
@pytest.mark.parametrize(
    "name", ["std_mean", "max.reduction_with_dim", "fft.fft", "split", "softmax.with_dtype"]
)
def test_operators_by_each_way(name: str, way: Way) -> None:
    case = opinfo.Case.of(name, torch.float32, 1)
    assert case is not None
    assert opinfo.judge(replace(case, way=way)) == (opinfo.Verdict.RIGHT, "")


def test_operators_under_torch_compile() -> None:
    names = ("std_mean", "linalg.svd", "fft.fft", "randn_like", "nonzero", "kthvalue")
    cases = [opinfo.Case.of(name, torch.float32, 1, random=True) for name in names]
    judged = opinfo_compile.judge([case for case in cases if case is not None])
    assert (judged.right, judged.problems) == (6, [])
    assert "aten._linalg_svd.default: no converter" in judged.reasons


def test_a_case_that_differs_under_torch_compile_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    results = Partition._results
    monkeypatch.setattr(Partition, "_results", lambda self, *a: [r + 1 for r in results(self, *a)])
    cases = [opinfo.Case.of(name, torch.float32, 0) for name in ("sinh", "linalg.svdvals")]
    judged = opinfo_compile.judge([case for case in cases if case is not None])
    assert judged.right == 1
    assert [problem.split(" ")[0] for problem in judged.problems] == ["sinh"]


def test_a_function_that_cannot_be_traced_is_not_exported() -> None:
    case = opinfo.Case.of("nn.functional.softshrink", torch.float32, 0)
    assert case is not None
    case.module.function = lambda x: x if x.sum() > 0 else -x
    assert opinfo.judge(replace(case, way=Way.TRACED))[0] is opinfo.Verdict.NOT_EXPORTED


def test_a_wrong_value_is_a_fault() -> None:
    right = torch.tensor([1.0, 2.0])
    opinfo.check_values(right, right, right, "same")
    with pytest.raises(AssertionError, match="1 of 2 elements differ"):
        opinfo.check_values(torch.tensor([1.0, 2.1]), right, right, "other")
    with pytest.raises(AssertionError, match="int64 instead of"):
        opinfo.check_values(right.long(), right, right, "dtype")


if __name__ == "__main__":
    tvm.testing.main()
