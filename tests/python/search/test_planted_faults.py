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
"""``compare``, ``bisect`` and ``reduce`` find planted faults."""

import pytest
import tvm.testing

from helpers import grids
from helpers.planted_faults import FAULTS
from tvm_fixes.debug import compare, profile
from tvm_fixes.search.bisection import bisect
from tvm_fixes.search.problem import Kind
from tvm_fixes.search.reduction import reduce
from tvm_fixes.search.trial import Settings
from tvm_fixes.source import open_source

# A failure and a wrong result; other tests have more faults.
_SOME = (
    "a crash in the build",
    pytest.param("a wrong axis in an importer", marks=grids.from_tier("ci")),
)


@pytest.fixture(params=FAULTS if grids.is_full() else _SOME)
def fault(request, monkeypatch):
    found = FAULTS[request.param]
    found.plant(monkeypatch)
    return found


def test_a_planted_fault_is_found(fault, tmp_path):
    settings = Settings(inputs=fault.inputs, seconds=fault.seconds)
    source = open_source(fault.model())
    inputs = dict(
        zip([spec.name for spec in source.inputs], settings.draw_inputs(source), strict=True)
    )
    compared = compare(fault.model(), inputs=inputs, timeout=fault.seconds)
    named = compared.failure or compared.first
    assert (named.node.operator if named else "") == fault.node
    assert compared.equal is (named is None)
    if fault.problem.kind is Kind.SLOWER:
        slowest = profile(fault.model(), seconds=0).slowest[0]
        assert slowest.source.startswith("m: MatMul")

    over, name = fault.culprit
    [culprit] = bisect(fault.model(), fault.problem, over=[over], settings=settings).culprits
    assert len(culprit.names) == 1 and name in culprit.names[0]

    reduced = reduce(fault.model(), fault.problem, output=tmp_path, settings=settings)
    assert set(reduced.operators) == fault.left and len(reduced.operators) <= 3


if __name__ == "__main__":
    tvm.testing.main()
