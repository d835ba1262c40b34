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

"""Delta debugging, with faults that are sets of items."""

import numpy as np
import pytest
import tvm.testing

from tvm_fixes.search.minimize import first_change, improve, minimize


@pytest.mark.parametrize("wanted", [[], [0], [63], [17, 18], [0, 63], [3, 31, 32, 60]])
def test_needed_items_are_kept(wanted):
    tested = []

    def shows(kept):
        assert list(kept) == sorted(kept)
        tested.append(tuple(kept))
        return set(wanted) <= set(kept)

    assert minimize(range(64), shows) == wanted
    assert len(set(tested)) == len(tested)


def test_one_item_takes_few_tests():
    tested = []
    minimize(range(1000), lambda kept: tested.append(kept) or 600 in kept)
    assert len(tested) <= 2 * 10 + 1


def test_no_item_can_be_left_out():
    """Random predicates that are not monotone."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        verdicts = {}

        def shows(kept, rng=rng, verdicts=verdicts):
            return verdicts.setdefault(tuple(kept), bool(rng.random() < 0.3))

        verdicts[tuple(range(12))] = True
        kept = minimize(range(12), shows)
        assert shows(kept)
        assert not any(shows([one for one in kept if one != left]) for left in kept)


def test_improve_accepts_the_first_simpler_value_that_fails():
    def simpler(number):
        return [number // 2, number - 1]

    assert improve(100, simpler, lambda number: number >= 9) == 9


@pytest.mark.parametrize("culprit", [1, 2, 7, 20])
def test_the_first_bad_step_is_found(culprit):
    tested = []

    def outcome(steps):
        tested.append(steps)
        return steps >= culprit

    assert first_change(outcome, 20) == (culprit - 1, culprit)
    assert len(tested) <= 5


def test_undecided_steps_widen_the_range():
    def outcome(steps):
        return None if steps in (8, 9, 10, 11) else steps >= 10

    assert first_change(outcome, 20) == (7, 12)


if __name__ == "__main__":
    tvm.testing.main()
