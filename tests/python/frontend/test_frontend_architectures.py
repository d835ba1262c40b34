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
"""Architectures of four libraries, exported in each form, equal PyTorch or are rejected by name.

``docs/tables/architectures.md`` has one row per architecture.
"""

import itertools
import re
from collections.abc import Callable

import pytest
import tvm.testing

from helpers import zoo
from helpers.coverage_tables import CoverageTables
from helpers.grids import is_full
from helpers.kept_results import KeptResults
from helpers.shape_models import Form
from helpers.zoo.judging import Verdict, judge
from tvm_fixes.support.isolate import OutcomeKind, run_forked

pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore")]

QUICK = ("diffusers: tiny", "transformers: patchtst")

REJECTED = {
    ("transformers: fnet", "dynamic"): "_fft_c2c.*an extent known at import",
}
"""The reasons for which cases are rejected; no other case may be."""

ONNX = (Form.TORCHSCRIPT, Form.DYNAMO)

WAYS = [
    (form, shapes)
    for form, shapes in itertools.product(
        (Form.EXPORTED, Form.NOT_DECOMPOSED, Form.TRACED, *ONNX), ("static", "dynamic")
    )
]


def results(name: str) -> dict[tuple[Form, str], tuple[Verdict, str]]:
    """The verdicts on an architecture in each form; below the full tier only the first."""
    entry = zoo.ARCHITECTURES[name]
    ways = [way for way in WAYS if way[0] not in ONNX or entry.onnx]
    return {way: judge(entry, *way) for way in (ways if is_full() else ways[:1])}


def results_of_child(name: str) -> dict[tuple[Form, str], tuple[Verdict, str]]:
    """As :func:`results`; the imported library does not stay in this process."""

    def call() -> dict[tuple[Form, str], tuple[Verdict, str]]:
        zoo.use_folder_of(zoo.ARCHITECTURES[name].library)
        return results(name)

    outcome = run_forked(call, timeout=1800)
    assert outcome.kind is OutcomeKind.VALUE, f"{outcome}\n{outcome.output}"
    assert isinstance(outcome.value, dict)
    return outcome.value


@pytest.mark.parametrize("name", zoo.ARCHITECTURES if is_full() else QUICK)
def test_architecture(
    name: str, coverage_table: CoverageTables, kept_results: Callable[[str], KeptResults]
) -> None:
    library, _, model = name.partition(": ")
    if not zoo.is_installed(library):
        pytest.skip(f"{library} is not installed; CONTRIBUTING.md says how to install it")
    kept = kept_results("architectures")
    if name in kept:
        found = {
            (Form(form), shapes): (Verdict(verdict), text)
            for form, shapes, verdict, text in kept[name]
        }
    else:
        found = results_of_child(name) if is_full() else results(name)
    cells = {f"{form}, {shapes}": str(found.get((form, shapes), ("",))[0]) for form, shapes in WAYS}
    reasons = dict.fromkeys(text for _, text in found.values() if text)
    reason = "; ".join(reasons).replace("|", "/")
    coverage_table.measurement_table("architectures").add(
        library=library, model=model, **cells, reason=reason[:200]
    )
    verdict, reason = found[Form.EXPORTED, "static"]
    assert verdict is not Verdict.NOT_EXPORTED, reason
    for (form, shapes), (verdict, reason) in found.items():
        expected = REJECTED.get((name, shapes))
        if verdict is Verdict.REJECTED:
            assert expected is not None and re.search(expected, reason), f"{form}: {reason}"
        elif verdict is Verdict.RIGHT and form is Form.EXPORTED:
            assert expected is None, f"{name} is right: delete its reason"
    if name not in kept:
        kept.record(name, [(*way, *result) for way, result in found.items()])


def test_number_of_architectures() -> None:
    assert len(zoo.ARCHITECTURES) >= 100
    assert set(QUICK) <= set(zoo.ARCHITECTURES)
    assert {name for name, _ in REJECTED} <= set(zoo.ARCHITECTURES)


if __name__ == "__main__":
    tvm.testing.main()
