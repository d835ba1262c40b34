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
"""tvm_fixes.report.placement: the positions of kernel calls in a drawing."""

import random
import time
from collections import defaultdict
from itertools import pairwise

import pytest
import tvm.testing

from helpers.growth import assert_linear
from tvm_fixes.report.placement import place


def chain(number):
    return [[at - 1] if at else [] for at in range(number)]


def branching(number, seed=0):
    rng = random.Random(seed)
    found = []
    for at in range(number):
        reads = {at - 1} if at and rng.random() < 0.9 else set()
        reads |= {rng.randrange(max(0, at - 30), at) for _ in range(rng.choice([0, 0, 1, 2])) if at}
        found.append(sorted(reads))
    return found


def wide(number):
    return [[]] + [[0] for _ in range(number - 2)] + [list(range(1, number - 1))]


GRAPHS = {"chain": chain, "branching": branching, "wide": wide}


@pytest.mark.parametrize("number", [1, 2, 20, 500])
@pytest.mark.parametrize("graph", GRAPHS)
def test_calls_do_not_overlap_and_are_below_what_they_read(graph, number):
    reads = GRAPHS[graph](number) if number > 2 else chain(number)
    places = place(reads)
    rows = defaultdict(list)
    for one in places:
        rows[one.column, one.y].append(one.x)
    for xs in rows.values():
        xs.sort()
        assert all(b - a >= 0.999 for a, b in pairwise(xs))
    for call, operands in enumerate(reads):
        for operand in operands:
            above, below = places[operand], places[call]
            assert (above.column, above.y) < (below.column, below.y)
    columns = defaultdict(list)
    for one in places:
        columns[one.column].append(one.x)
    for index in range(1, len(columns)):
        assert min(columns[index]) - max(columns[index - 1]) >= 1


def test_edges_pass_rows_beside_the_calls():
    # 0 → 1 → 2 → 3, and 0 → 3.
    places = place([[], [0], [1], [2, 0]])
    assert [one.x for one in places] == pytest.approx([places[0].x] * 4, abs=0.01)
    assert [one.y for one in places] == [0, 1, 2, 3]
    trail = places[0].trail
    assert len(trail) == 2 and all(abs(x - places[0].x) >= 0.6 for x in trail)


def test_a_call_without_operands_is_above_its_reader():
    places = place([[], [], [0], [2], [1, 3]])
    assert [one.y for one in places] == [0, 2, 1, 2, 3]


def test_a_long_model_is_about_as_high_as_it_is_wide():
    places = place(chain(5000))
    width = max(one.x for one in places) * 192
    height = max(one.y for one in places) * 62
    assert 1 < width / height < 2.5


def test_a_loop_reads_what_comes_later():
    places = place([[2], [0], [1]])
    assert [one.y for one in places] == [0, 1, 2]
    assert place([]) == []


def test_the_time_grows_linearly():
    seconds = {}
    for number in (500, 1000, 2000, 4000):
        reads = branching(number)
        start = time.process_time()
        place(reads)
        seconds[number] = time.process_time() - start
    assert_linear(seconds, factor=5, slack=0.001)


if __name__ == "__main__":
    tvm.testing.main()
