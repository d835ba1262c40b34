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
"""Both kinds of error of the verdict on outputs: small faults that pass, and false alarms.

A fault is planted in an ONNX model, which ONNX Runtime runs as if it were the compiled model.
"""

from functools import cache

import numpy as np
import pytest
import tvm.testing

from helpers import sensitive_models, small_faults
from helpers.grids import few, is_full
from tvm_fixes.observe.comparison import compare
from tvm_fixes.observe.sensitivity import MAX_NORM, MAX_PEAK, examine
from tvm_fixes.observe.verdicts import FIRST_RUNS, Evidence, compare_all
from tvm_fixes.source.onnx import OnnxSource

# Runs of the reference that the verdict does not see.
OTHER_RUNS = (3, 5, 7)

# An effect is beyond rounding if it exceeds twice what the verdict accepts: rounding comes on top.
BEYOND = 2.0


class Right:
    """A model without a fault, with the evidence of a verdict."""

    def __init__(self, name):
        self.model = sensitive_models.make(name)
        self.source = OnnxSource(self.model, name)
        self.inputs = self.source.example_inputs(np.random.default_rng(0))
        self.theirs = self.source.reference()[1](self.inputs)
        self.exact = self.source._run_in_float64(self.inputs)
        self.run = cache(self._run)
        self.evidence = Evidence(lambda seeds: [*map(self.run, seeds)], lambda: self.exact)

    def _run(self, seed):
        return self.source.rounded_reference(seed)(self.inputs)

    def judge(self, ours):
        found = compare_all(self.source.output_names, ours, self.theirs, self.evidence)
        return all(output.equal for output in found)

    def effect(self, exact):
        """The effect of a fault in float64, as a multiple of the largest that is accepted."""
        largest = 0.0
        for place, (faulty, right) in enumerate(zip(exact, self.exact, strict=True)):
            theirs = self.theirs[place]
            runs = [theirs, *(self.run(seed)[place] for seed in FIRST_RUNS)]
            found = examine((theirs + (faulty - right)).astype(theirs.dtype), runs, theirs)
            largest = max(largest, found.norm / MAX_NORM, found.peak / MAX_PEAK)
        return largest


right = cache(Right)


@few(3)
@pytest.mark.parametrize("name", sensitive_models.NAMES)
def test_no_false_alarms(name, coverage_table):
    model = right(name)
    for seed in OTHER_RUNS:
        with coverage_table("verdict_no_false_alarms").case(model=name):
            assert model.judge(model.run(seed))


@pytest.mark.parametrize("name", sensitive_models.NAMES if is_full() else ["transformer", "U-Net"])
def test_small_faults_are_found(name, coverage_table):
    model = right(name)
    counts = {"beyond rounding": 0, "within rounding": 0}
    missed = []
    for fault in small_faults.faults(model.model, per_kind=5 if is_full() else 1):
        faulty = OnnxSource(fault.model, name)
        ours = faulty.rounded_reference(OTHER_RUNS[0])(model.inputs)
        effect = model.effect(faulty._run_in_float64(model.inputs))
        pairs = zip(ours, model.theirs, strict=True)
        within = all(compare("y", *pair).equal for pair in pairs)
        kind = "beyond rounding" if effect > BEYOND else "within rounding"
        counts[kind] += 1
        passes = model.judge(ours)
        if kind == "beyond rounding" and passes:
            missed.append(f"{fault.kind} at {fault.node}: {effect:.2g}")
        table = coverage_table("small_faults")
        with table.case(fault=fault.kind, effect=kind, tolerances="within" if within else "beyond"):
            assert kind == "within rounding" or not passes
    assert not missed
    assert counts["beyond rounding"] >= 8


if __name__ == "__main__":
    tvm.testing.main()
