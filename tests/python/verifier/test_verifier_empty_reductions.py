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
"""Notes about reductions over no elements."""

import pytest
import tvm
import tvm.testing
from tvm.script import ir as I
from tvm.script import relax as R

from tvm_fixes import verify
from tvm_fixes.support import switches


@I.ir_module
class Empty:
    @R.function
    def main(
        c: R.Tensor((), "bool"), x: R.Tensor((4, 0), "float32"), w: R.Tensor((0, 4), "float32")
    ) -> R.Tensor((4, 4), "float32"):
        if c:
            y = R.matmul(x, w)
        else:
            sums = R.sum(x, axis=[-1])
            largest = R.max(w)
            y = R.add(R.broadcast_to(sums, (4, 4)), largest)
        return y


@I.ir_module
class Others:
    """Results without elements, reductions of elements, and symbolic extents."""

    @R.function
    def main(
        x: R.Tensor((4, 0), "float32"),
        w: R.Tensor((3, 4), "float32"),
        y: R.Tensor(("n",), "float32"),
    ) -> R.Tuple(
        R.Tensor((0,), "float32"),
        R.Tensor((3,), "float32"),
        R.Tensor((), "float32"),
        R.Tensor((3, 0), "float32"),
    ):
        return (R.sum(x, axis=[0]), R.mean(w, axis=[1]), R.prod(y), R.matmul(w, x))


def test_reductions_over_no_elements() -> None:
    diagnostics = verify(Empty)
    assert [(diagnostic.severity, diagnostic.rule) for diagnostic in diagnostics] == [
        ("note", "op.empty")
    ] * 3
    assert [diagnostic.message for diagnostic in diagnostics] == [
        "relax.matmul over no elements",
        "relax.sum over no elements",
        "relax.max over no elements",
    ]
    assert all("tvm_fixes.pipeline()" in diagnostic.hint for diagnostic in diagnostics)
    assert "R.matmul(x, w" in diagnostics.text()
    assert diagnostics.errors == [] and diagnostics.warnings == []


def test_other_reductions() -> None:
    assert verify(Others) == []


def test_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "verify-operators")
    assert verify(Empty) == []


if __name__ == "__main__":
    tvm.testing.main()
