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
"""PyTorch's operators (OpInfo) and its core ATen operators: which are imported, and which are not.

``docs/tables/opinfo.md`` has one row per operator.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import tvm.testing

from helpers.coverage_tables import CoverageTables
from helpers.kept_results import KeptResults
from tests.fuzz import opinfo
from tests.fuzz.opinfo import Verdict
from tests.fuzz.torch_ways import Way
from tvm_fixes.frontend.torch import ExportedProgramImporter
from tvm_fixes.frontend.torch.graph.decompositions import has_rule
from tvm_fixes.support.isolate import OutcomeKind, run_all_forked

CORE_REJECTED = {
    *("_adaptive_avg_pool2d_backward.default", "avg_pool2d_backward.default"),
    *("convolution_backward.default", "empty_strided.default", "sym_storage_offset.default"),
    *("atan2.out", "resize_.default"),
}
"""Gradients, and operators on the memory of a tensor."""

NOT_FOR_INFERENCE = {
    r"linalg\.(cond|eig|lstsq|matrix_rank|pinv|svd|ldl).*|matrix_rank|pinverse": (
        "needs singular values, or a factorization without a unique result"
    ),
    r"special\.(airy|bessel|cheb|hermite|laguerre|legendre|modified|scaled|spherical|shifted).*": (
        "a special function of physics"
    ),
    r"(special\.)?(zeta|ndtri|erfcx|log_ndtr|polygamma.*|igammac?|mvlgamma.*)": (
        "a special function of statistics"
    ),
    r"norm\.nuc": "needs singular values",
    r"jiterator.*|to_sparse|.*backward.*|hash_tensor": "no operator of an inference program",
}
"""Operators that an inference program does not need, and the reasons."""

SAMPLES = {torch.float32: 3}
"""The number of sample inputs of each dtype in the full tier; 1 for the others."""

GROUP = 24
"""The number of operators after which an interrupted run continues."""


def core_overloads() -> dict[str, torch._ops.OpOverload]:
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if namespace == "aten" and hasattr(torch.ops.aten, packet):
            each = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if each is not None and torch.Tag.core in each.tags:
                found[each.__name__] = each
    return found


def test_core_operators() -> None:
    """Every core ATen overload has a converter or a decomposition, except those listed."""
    core, known = core_overloads(), ExportedProgramImporter().operators
    by_default = torch.export.default_decompositions()
    missing = {
        name
        for name, overload in core.items()
        if name not in known and overload not in by_default and not has_rule(overload)
    }
    assert missing == CORE_REJECTED
    assert len(core) - len(missing) >= 186


def reason_against(name: str) -> str:
    """The reason why an inference program does not need an operator, or nothing."""
    found = (why for pattern, why in NOT_FOR_INFERENCE.items() if re.fullmatch(pattern, name))
    return next(found, "")


def judged(name: str, way: Way = Way.EXPORTED) -> list[tuple[str, str]]:
    """The verdicts and messages of the samples of an operator."""
    verdicts = []
    for dtype in opinfo.DTYPES:
        for index in range(SAMPLES.get(dtype, 1)):
            case = opinfo.Case.of(name, dtype, index)
            if case is None:
                break
            verdict, message = opinfo.judge(replace(case, way=way))
            verdicts.append((str(verdict), message))
    return verdicts


def judge_each(names: list[str], results: KeptResults, way: Way = Way.EXPORTED) -> list[str]:
    """Record the verdicts of operators; return messages about wrong results and crashes."""
    todo = [name for name in names if name not in results]
    cases = [lambda name=name: judged(name, way) for name in todo]
    failures = []
    for name, outcome in zip(todo, run_all_forked(cases, timeout=1200, jobs=2), strict=True):
        if outcome.kind is OutcomeKind.VALUE:
            results.record(name, outcome.value)
        else:
            failures.append(f"{name}: {outcome}")
    return failures


@pytest.mark.skipif("config.getoption('tier') != 'full'", reason="several thousand are built")
def test_every_operator(
    coverage_table: CoverageTables, kept_results: Callable[[str], KeptResults]
) -> None:
    """No result is wrong, nothing crashes, and most operators for inference are right."""
    table = coverage_table.measurement_table("opinfo")
    names, verdicts = list(opinfo.operators()), kept_results("opinfo")
    # The first case takes seconds, which the children then need not spend.
    judged("add")
    failures: list[str] = []
    for first in range(0, len(names), GROUP):
        failures += judge_each(names[first : first + GROUP], verdicts)
    ended: Counter[bool] = Counter()
    for name in names:
        if name not in verdicts:
            continue
        counts = Counter(verdict for verdict, _ in verdicts[name])
        messages = [text for verdict, text in verdicts[name] if verdict == Verdict.REJECTED]
        why = reason_against(name)
        table.add(
            operator=name,
            for_inference="no" if why else "yes",
            **{str(verdict): counts[verdict] for verdict in Verdict},
            reason=(why or "".join(messages[:1])).replace("|", "/"),
        )
        if counts[Verdict.RIGHT] + counts[Verdict.REJECTED] and not why:
            ended[bool(messages)] += 1
    assert not failures, "\n".join(failures)
    assert ended[False] >= 0.95 * ended.total(), ended


@pytest.mark.skipif("config.getoption('tier') != 'full'", reason="several thousand are built")
@pytest.mark.parametrize("way", [Way.NOT_DECOMPOSED, Way.TRACED])
def test_every_operator_by_each_way(way: Way, kept_results: Callable[[str], KeptResults]) -> None:
    """As many samples are right as through the first way, except those that have no trace."""
    names, verdicts = list(opinfo.operators()), kept_results(f"opinfo {way}")
    judged("add")
    failures: list[str] = []
    for first in range(0, len(names), GROUP):
        failures += judge_each(names[first : first + GROUP], verdicts, way)
    rejected = {
        name: [text for verdict, text in verdicts[name] if verdict == Verdict.REJECTED]
        for name in names
        if name in verdicts
    }
    by_first_way = kept_results("opinfo")
    suspects = [name for name, messages in rejected.items() if messages]
    failures += judge_each(suspects, by_first_way)
    for name in suspects:
        usual = by_first_way[name] if name in by_first_way else []
        if len(rejected[name]) > sum(verdict == Verdict.REJECTED for verdict, _ in usual):
            failures.append(f"{name}: {rejected[name][-1]}")
    assert not failures, "\n".join(failures)


if __name__ == "__main__":
    tvm.testing.main()
