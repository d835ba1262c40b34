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
"""Comparison of a compiled model with inputs of further sizes and magnitudes.

The library and the session of the reference are those of the first comparison, so further inputs
cost a run of each, unless a difference needs the verdict of more runs of the reference.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..errors import CompileError, InputError, summarize
from ..observe.comparison import compare
from ..observe.verdicts import compare_all
from ..runtime.compiled_model import CompiledModel
from ..runtime.report import FurtherComparison, OutputComparison, Report
from ..source.examples import Drawn, used_sizes
from ..support.signals import interruptible
from .reference import Reference, run_model

Groups = Sequence[Sequence[Drawn]]
"""Further inputs: :meth:`tvm_fixes.source.Source.further_inputs`."""

# No comparison begins that is expected to end after this time.
_MAX_SECONDS = 5.0

# Errors relative to an output's largest magnitude vary by this factor between inputs.
_MAX_FACTOR = 4.0


@dataclass(frozen=True)
class FurtherInputs:
    """Comparisons of one model with further inputs, after the first comparison.

    Attributes
    ----------
    model : CompiledModel
    reference : Reference
        Its inputs are then the last ones.
    rtol, atol : float or None
        As for :func:`tvm_fixes.compile`.
    """

    model: CompiledModel
    reference: Reference
    rtol: float | None = None
    atol: float | None = None

    def added(self, report: Report, groups: Groups, *, all_groups: bool = True) -> Report:
        """The report with the comparisons, and with a warning for each input that only the model
        rejects.

        Of each group, the first inputs that both accept are compared; unless `all_groups`, up to
        the first that differs.
        """
        if not groups or not report.outputs:
            return report
        start = time.monotonic()
        elements = _elements(self.reference.inputs)
        seconds = self._seconds_of_run(report)
        further, warnings = list(report.further), list(report.warnings)
        for group in groups:
            for drawn in group:
                expected = seconds * _elements(drawn.arrays) / elements
                if time.monotonic() - start + expected > _MAX_SECONDS:
                    compared = self._at(drawn, f"it would take about {expected:.0f} s")
                else:
                    compared = self._compare(drawn, report.outputs, warnings)
                further.append(compared)
                if not compared.skipped:
                    break
            if not all_groups and not further[-1].accepted:
                break
        return replace(report, further=further, warnings=warnings)

    def _seconds_of_run(self, report: Report) -> float:
        """The time of a run of the model and of the reference with the first inputs."""
        if report.latency_ms is not None and report.reference_latency_ms is not None:
            return (report.latency_ms + report.reference_latency_ms) / 1e3
        start = time.monotonic()
        try:
            interruptible(partial(run_model, self.model, self.reference.inputs))
        except Exception:  # it rejects these inputs, and the first comparison was with others
            return 0.0
        return 2 * (time.monotonic() - start)

    def _compare(
        self, drawn: Drawn, first: Sequence[OutputComparison], warnings: list[str]
    ) -> FurtherComparison:
        try:
            self.reference.use(drawn.arrays)
            theirs = self.reference.outputs()
        except CompileError as error:
            reason = summarize(error.__cause__ or error)
            return self._at(drawn, f"{self.reference.name} rejects it: {reason}")
        try:
            ours = interruptible(partial(run_model, self.model, drawn.arrays))
        except InputError as error:
            return self._at(drawn, f"the program does not allow it: {summarize(error)}")
        except Exception as error:
            rejected = self._at(drawn, f"the compiled model rejects it: {summarize(error)}")
            warnings.append(
                f"rejects inputs that {self.reference.name} accepts, "
                f"{rejected.where}: {summarize(error)}"
            )
            return rejected
        return replace(self._at(drawn), outputs=self._judge(ours, theirs, first))

    def _judge(
        self,
        ours: Sequence[np.ndarray],
        theirs: Sequence[np.ndarray],
        first: Sequence[OutputComparison],
    ) -> list[OutputComparison]:
        """The verdict; errors like those of the first inputs need no more runs of the reference."""
        names = [output.name for output in first]
        outputs = [
            compare(name, *pair, rtol=self.rtol, atol=self.atol)
            for name, *pair in zip(names, ours, theirs, strict=True)
        ]
        if all(map(_is_like, outputs, first)):
            return outputs
        evidence = self.reference.evidence()
        return compare_all(names, ours, theirs, evidence, rtol=self.rtol, atol=self.atol)

    def _at(self, drawn: Drawn, skipped: str = "") -> FurtherComparison:
        """A comparison with inputs, without outputs; `skipped` is the reason."""
        sizes = used_sizes(self.reference.source.chosen_inputs(), drawn.arrays)
        return FurtherComparison(sizes, skipped=skipped, magnitude=drawn.magnitude)


def _is_like(output: OutputComparison, first: OutputComparison) -> bool:
    """Whether an output is equal with an error like that of an equal output of other inputs."""
    if not (output.equal and first.equal):
        return False
    limit = _MAX_FACTOR * (first.max_rel_error or 0.0)
    return output.max_rel_error is not None and output.max_rel_error <= limit


def _elements(inputs: Sequence[np.ndarray]) -> int:
    return sum(value.size for value in inputs) or 1
