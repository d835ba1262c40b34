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
"""Checks that compile work grows linearly with the number of blocks of a model."""

import time
from collections.abc import Callable, Mapping, Sequence

import tvm
from tvm import relax, tirx

BLOCKS = (1, 2, 4, 8)


def size_of(mod: tvm.IRModule) -> int:
    """The length of the text of a module's Relax functions, in which dims are written out."""
    functions = [f for f in mod.functions.values() if isinstance(f, relax.Function)]
    return sum(len(function.script(show_meta=False)) for function in functions)


def largest_kernel(mod: tvm.IRModule) -> int:
    """The length of the longest text of a kernel."""
    functions = [f for f in mod.functions.values() if isinstance(f, tirx.PrimFunc)]
    return max((len(function.script(show_meta=False)) for function in functions), default=0)


def assert_linear(sizes: Mapping[int, float], factor: float = 1.3, slack: float = 0) -> None:
    """Assert that each later block adds at most `factor` times as much as the first."""
    counts = sorted(sizes)
    # One-time work, such as imports, can make the smallest model the slowest.
    first = max((sizes[counts[1]] - sizes[counts[0]]) / (counts[1] - counts[0]), 0)
    last = (sizes[counts[-1]] - sizes[counts[-2]]) / (counts[-1] - counts[-2])
    assert last <= factor * first + slack, sizes


def assert_grows_linearly(
    make: Callable[[int], tvm.IRModule],
    passes: Sequence[tvm.transform.Pass] = (),
    blocks: Sequence[int] = BLOCKS,
) -> None:
    """Assert linear growth of the imported modules and of the results of `passes`.

    CPU time has a generous factor, because short times are mostly noise.
    """
    sizes: list[dict[int, float]] = [{} for _ in range(len(passes) + 1)]
    seconds: dict[int, float] = {}
    for count in blocks:
        start = time.process_time()
        mod = make(count)
        sizes[0][count] = size_of(mod)
        for index, step in enumerate(passes):
            mod = step(mod)
            sizes[index + 1][count] = size_of(mod)
        seconds[count] = time.process_time() - start
    for grown in sizes:
        assert_linear(grown)
    assert_linear(seconds, factor=5, slack=0.5)
