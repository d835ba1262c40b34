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
"""CopyHostResults."""

import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.relax_modules import build, cpu, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.transform.copy_host_results import CopyHostResults

op = relax.op
N = tirx.Var("n", "int64")
COPY = "vm.builtin.to_device"


def device():
    return [tirx.const(number, "int64") for number in (2, 0)]


def test_positions_are_copied():
    types = {"x": tensor(N)}
    before = build(types, lambda builder, x: builder.emit(op.nonzero(x)))

    def copied(builder, x):
        ty = relax.TensorType(dtype="int64", ndim=2)
        host = builder.emit(op.call_pure_packed("relax.run.nonzero", x, ty_args=ty))
        return builder.emit(op.call_pure_packed(COPY, host, *device(), ty_args=ty))

    tvm.ir.assert_structural_equal(CopyHostResults()(before), build(types, copied))


def test_each_result_of_unique_is_copied():
    mod = build({"x": tensor(N)}, lambda builder, x: builder.emit(op.unique(x, return_counts=True)))
    assert CopyHostResults()(mod).script().count(COPY) == 2


def test_only_results_of_the_host_are_copied():
    mod = build({"x": tensor(N)}, lambda builder, x: builder.emit(op.exp(x)))
    assert CopyHostResults()(mod).same_as(mod)


def test_the_pipeline_copies_for_cuda_only():
    mod = build({"x": tensor(N)}, lambda builder, x: builder.emit(op.nonzero(x)))
    for target, is_copied in ((GPU, True), (cpu(), False)):
        with target:
            assert (COPY in pipeline()(mod).script()) == is_copied


if __name__ == "__main__":
    tvm.testing.main()
