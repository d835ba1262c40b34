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
"""The loops of a schedule run in parallel if they compute enough."""

import pytest
import tvm.testing
from tvm import s_tir, te, tirx

from helpers.conv_checks import loops
from tvm_fixes.tirx.parallel import MIN_PARALLEL_WORK, parallelize


def parallel_loops(rows, columns, common):
    """The extents of the parallel loops of the product of two matrices, after `parallelize`."""
    lhs, rhs = (
        te.placeholder((rows, common), name="lhs"),
        te.placeholder((common, columns), name="rhs"),
    )
    k = te.reduce_axis((0, common), name="k")
    out = te.compute(
        (rows, columns), lambda i, j: te.sum(lhs[i, k] * rhs[k, j], axis=k), name="out"
    )
    sch = s_tir.Schedule(te.create_prim_func([lhs, rhs, out]))
    i, j, _ = sch.get_loops(sch.get_sblock("out"))
    parallelize(sch, [i, j])
    parallel = [loop for loop in loops(sch.mod["main"]) if loop.kind == tirx.ForKind.PARALLEL]
    return [loop.extent for loop in parallel]


@pytest.mark.parametrize("common, extents", ((MIN_PARALLEL_WORK // 64, [64]), (100, [])))
def test_sums_count_their_products(common, extents):
    assert parallel_loops(8, 8, common) == extents


def test_unknown_work_is_parallel():
    n = tirx.Var("n", "int64")
    assert len(parallel_loops(n, 8, 8)) == 1


if __name__ == "__main__":
    tvm.testing.main()
