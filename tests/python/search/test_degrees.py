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
"""Degrees of a problem are compared beyond their noise."""

import math

import numpy as np
import pytest
import tvm.testing

from tvm_fixes.observe.comparison import compare
from tvm_fixes.search.degrees import Limit, Variant, between, most_improved
from tvm_fixes.search.finding import degrees_of
from tvm_fixes.search.problem import Degree, Kind, Measure, Observed, Problem

SEEDS = range(200)


def latency(value, low, high):
    return Degree(Measure.LATENCY, value, low, high)


def variant(*trials, shows=True, accepted=True):
    """A variant with given degrees in its trials, the last one in all later ones."""
    left = [trial if isinstance(trial, tuple) else (trial,) for trial in trials]

    def observe():
        degrees = left.pop(0) if len(left) > 1 else left[0]
        return Observed(shows, "as told", degrees=degrees, accepted=accepted)

    return Variant(observe)


def noisy(rng, median, sigma):
    """A variant whose trials differ by about `sigma`, more than the turns in a trial do."""

    def observe():
        value = median * math.exp(rng.normal(0, sigma))
        noise = value * sigma / 4
        return Observed(True, "as told", degrees=(latency(value, value - noise, value + noise),))

    return Variant(observe)


def wrong(**outputs):
    """The degrees of outputs, each given as the output and the reference's."""
    return {
        degree.measure: degree.value
        for degree in degrees_of([compare(name, *pair) for name, pair in outputs.items()])
    }


def test_the_degrees_of_wrong_outputs():
    right = np.array([1, 2, 4, 8], "float32")
    off = right + np.array([0, 0, 0.4, 0.8], "float32")
    spoiled = np.array([np.nan, 2, 4, np.inf], "float32")
    # The tolerance at 8 is 1e-5 * 8 + 1e-4 * 8.
    found = wrong(y=(off, right))
    assert found[Measure.ERROR] == pytest.approx(0.8 / 8.8e-4, rel=1e-3)
    assert (found[Measure.UNDEFINED], found[Measure.ELEMENTS]) == (0, 2)
    found = wrong(y=(off, right), z=(spoiled, right))
    assert (found[Measure.UNDEFINED], found[Measure.ELEMENTS]) == (2, 4)
    assert wrong(y=(right[:2], right))[Measure.UNDEFINED] == 4
    assert set(wrong(y=(right, right)).values()) == {0}
    unwritten = degrees_of([compare("y", right, right), compare("z", off, right)], ["y"])
    assert [degree.value for degree in unwritten] == [4, pytest.approx(909, rel=1e-2), 6]
    numbers = np.arange(4)
    found = wrong(y=(numbers + 7, numbers))
    assert (found[Measure.ERROR], found[Measure.ELEMENTS]) == (7, 4)


def test_an_error_within_the_tolerance_of_another_is_no_difference():
    error, less, least = (Degree.counted(Measure.ERROR, value) for value in (101.5, 100.0, 9.0))
    assert not error.is_worse(less) and error.is_worse(least)


def test_an_earlier_measure_decides():
    def outputs(undefined, error, elements):
        values = (undefined, error, elements)
        measures = (Measure.UNDEFINED, Measure.ERROR, Measure.ELEMENTS)
        return variant(tuple(map(Degree.counted, measures, values)))

    many, few = outputs(64, 10, 64), outputs(0, 1e6, 64)
    assert between(many, few).measure is Measure.UNDEFINED
    assert between(few, many) is None
    assert between(outputs(0, 30, 8), outputs(0, 10, 64)).measure is Measure.ERROR
    assert between(outputs(0, 1, 64), outputs(0, 1, 8)).measure is Measure.ELEMENTS
    assert between(outputs(0, 1, 64), outputs(0, 1, 63)) is None


def test_the_limit_divides_the_two():
    worse, better = variant(latency(60, 58, 61)), variant(latency(49, 48, 50))
    limit = between(worse, better)
    assert limit.value == pytest.approx(math.sqrt(58 * 50))
    assert limit.is_exceeded(worse) is True and limit.is_exceeded(better) is False
    assert limit.is_exceeded(variant(latency(54, 50, 58))) is None
    counts = [variant(Degree.counted(Measure.ELEMENTS, count)) for count in (9, 0)]
    limit = between(*counts)
    assert [limit.is_exceeded(one) for one in counts] == [True, False]


def test_trials_that_differ_are_noise():
    """Each looks like another in its first trial."""
    worse = variant(latency(60, 59, 61), latency(50, 49, 60))
    better = variant(latency(52, 51, 53), latency(55, 54, 56))
    assert between(worse, better) is None
    assert worse.degrees[Measure.LATENCY] == latency(55, 50, 60.5)


def test_a_distant_latency_needs_no_further_trial():
    worse, better = variant(latency(60, 58, 61), latency(1, 1, 1)), variant(latency(9, 8, 10))
    assert between(worse, better).value == pytest.approx(math.sqrt(58 * 10))


def test_a_trial_at_the_limit_is_repeated():
    limit = Limit.of(Problem(Kind.SLOWER, 8.0))
    assert limit.is_exceeded(variant(latency(7.95, 7.9, 9), latency(9.5, 9, 10))) is None
    assert limit.is_exceeded(variant(latency(8.5, 7.9, 9), latency(9.5, 9, 10))) is True
    assert limit.is_exceeded(variant(latency(7, 6, 7.5))) is False
    assert limit.is_exceeded(variant((), shows=None)) is None


def test_a_fast_variant_with_wrong_outputs_is_not_better():
    slow, fast = variant(latency(60, 59, 61)), variant(latency(1, 1, 1), accepted=False)
    fine = variant(latency(30, 29, 31))
    assert between(slow, fast) is None
    assert most_improved(slow, {"fast": fast, "fine": fine}) == "fine"
    assert most_improved(slow, {"fails": variant((), shows=None)}) is None
    wrong_too = variant(latency(60, 59, 61), accepted=False)
    assert most_improved(wrong_too, {"fast": fast, "fine": fine}) == "fast"


@pytest.mark.parametrize("sigma", (0.02, 0.1))
def test_noise_alone_is_no_difference(sigma):
    alarms = improvements = 0
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        alarms += between(noisy(rng, 60, sigma), noisy(rng, 60, sigma)) is not None
        others = {number: noisy(rng, 60, sigma) for number in range(20)}
        improvements += most_improved(noisy(rng, 60, sigma), others) is not None
    assert alarms <= len(SEEDS) / 100
    assert improvements <= len(SEEDS) / 25


def test_a_difference_is_seen_through_noise():
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        assert between(noisy(rng, 60, 0.02), noisy(rng, 49, 0.02)) is not None
        assert between(noisy(rng, 49, 0.02), noisy(rng, 60, 0.02)) is None


def test_a_limit_in_the_noise_is_doubtful():
    problem = Problem(Kind.SLOWER, 8.0)
    doubt = problem.doubt(Observed(True, "", degrees=(latency(8.1, 7.5, 9),)))
    assert doubt == "the limit of 8 is within the noise of 8.1 x the reference (noise: 7.5 to 9)"
    assert problem.doubt(Observed(True, "", degrees=(latency(9.5, 9, 10),))) == ""


if __name__ == "__main__":
    tvm.testing.main()
