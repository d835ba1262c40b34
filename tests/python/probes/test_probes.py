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
"""Each fix is needed on the locked TVM and corrects its symptom."""

import os

import pytest
import tvm
import tvm.testing

from helpers import grids
from helpers.preparation import prepare_forks
from tvm_fixes.doctor import State, examine
from tvm_fixes.fixes import FIXES, Kind
from tvm_fixes.probes import PROBES
from tvm_fixes.probes.probe import register
from tvm_fixes.support import switches
from tvm_fixes.support.isolate import OutcomeKind, run_all_forked

PROBED = [fix for fix in FIXES if fix.kind is not Kind.ENVIRONMENT]
TIMEOUT = 120.0


@pytest.fixture(scope="module")
def rows():
    prepare_forks(exports=True)
    return {row.fix.id: row for row in examine(FIXES, PROBES, timeout=TIMEOUT)}


def require_modules(fix):
    for module in PROBES[fix.id].modules:
        pytest.importorskip(module)


@pytest.mark.parametrize("fix", PROBED, ids=lambda fix: fix.id)
def test_stock_fails_as_recorded_and_the_fix_corrects_it(rows, fix):
    require_modules(fix)
    row = rows[fix.id]
    if row.state is State.EXPIRED:
        pytest.fail(f"stock TVM {tvm.__version__} passes the probe: delete fix {fix.id}")
    assert row.state is State.NEEDED, row.note
    assert not row.stock.passes
    assert row.fixed.passes


def test_the_environment_meets_its_requirements(rows):
    states = {row.fix.id: row.state for row in rows.values() if row.fix.kind is Kind.ENVIRONMENT}
    assert states == {"ffi-0.1.15": State.MET}


def test_the_switch_of_each_fix_restores_the_fault(rows):
    """Disabling only this fix brings the fault back through this project's entry point."""
    fixes = [fix for fix in PROBED if rows[fix.id].state is not State.UNAVAILABLE]
    fixes = grids.sample(fixes, 12)

    def run_with_one_off(fix):
        os.environ[switches.ENVIRONMENT_VARIABLE] = fix.id
        PROBES[fix.id].fixed()

    outcomes = run_all_forked(
        [lambda fix=fix: run_with_one_off(fix) for fix in fixes], timeout=TIMEOUT, jobs=2
    )
    for fix, outcome in zip(fixes, outcomes, strict=True):
        assert outcome.kind is not OutcomeKind.VALUE, f"the switch of {fix.id} has no effect"
        assert PROBES[fix.id].symptom.search(str(outcome)), f"{fix.id}: {outcome}\n{outcome.output}"


def test_each_fix_of_code_has_a_probe():
    assert PROBES.keys() == {fix.id for fix in PROBED}


def test_a_second_probe_of_a_fix_is_rejected():
    with pytest.raises(ValueError, match="fix 'torch-dtype' has two probes"):
        register("torch-dtype", PROBES["torch-dtype"])


if __name__ == "__main__":
    tvm.testing.main()
