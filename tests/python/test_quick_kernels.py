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
import re

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.s_tir import Schedule

from helpers.grids import is_full
from helpers.relax_modules import UNOPTIMIZED_CPU, build, call, tensor
from tvm_fixes import pipeline

OPTIMIZED_CPU = tvm.target.Target("llvm")


def executable(target: tvm.target.Target, operator: str) -> relax.VMExecutable:
    """One kernel of two operands; that of a division asserts that the divisor is not 0."""
    types = dict.fromkeys("xy", tensor(2, dtype="int32"))
    mod = build(types, lambda _builder, x, y: getattr(relax.op, operator)(x, y))
    return relax.build(mod, target, relax_pipeline=pipeline())


def assertions(built: relax.VMExecutable) -> int:
    """The number of errors that the code of the kernels can report."""
    code = built.mod.imports[0].inspect_source("ll")
    return len(re.findall("call .*@__tvm_set_raised", code))


QUICK = pytest.mark.skipif(is_full(), reason="the full tier builds as users do")


@QUICK
def test_only_unoptimized_kernels_without_assertions_of_their_own_are_unchecked() -> None:
    assert assertions(executable(UNOPTIMIZED_CPU, "add")) == 0
    checks = assertions(executable(OPTIMIZED_CPU, "add"))
    assert checks > 0
    assert assertions(executable(UNOPTIMIZED_CPU, "floor_divide")) > checks
    assert assertions(executable(OPTIMIZED_CPU, "floor_divide")) > checks


@QUICK
def test_methods_of_schedules_are_called_without_checks() -> None:
    assert "_type_checker" not in Schedule.split.__code__.co_filename
    assert "_type_checker" not in Schedule.compute_at.__code__.co_filename


def test_values_are_the_same() -> None:
    x, y = np.array([[7, -7], [2, 2]], "int32")
    for target in (UNOPTIMIZED_CPU, OPTIMIZED_CPU):
        vm = relax.VirtualMachine(executable(target, "add"), tvm.cpu())
        np.testing.assert_array_equal(call(vm, "main", x, y), x + y)


def test_an_assertion_of_a_kernel_stays() -> None:
    vm = relax.VirtualMachine(executable(UNOPTIMIZED_CPU, "floor_divide"), tvm.cpu())
    x, zero = np.array([[7, -7], [2, 0]], "int32")
    np.testing.assert_array_equal(call(vm, "main", zero, x), zero // x)
    with pytest.raises(Exception, match="zero"):
        call(vm, "main", x, zero)


if __name__ == "__main__":
    tvm.testing.main()
