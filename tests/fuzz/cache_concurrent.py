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
"""Processes that use one cache at the same time, some with a full disk, some with a small limit."""

import os
import random
from unittest import mock

from tvm_fixes.compiler.cache import eviction, files
from tvm_fixes.compiler.cache.store import Store

from .cache_files import KEYS, LARGE, act, check_the_end, folders, limited
from .save import fork

_PROCESSES = 4
_ACTIONS = 25


def run_case(seed: int) -> str | None:
    """Run the processes; entry point of the runner."""
    rng = random.Random(seed)
    with folders() as (root, work):
        limit = rng.choice((LARGE, 12_000, 30_000))
        store = Store(root, limit)
        children = []
        for _ in range(_PROCESSES):
            own = random.Random(rng.getrandbits(32))
            full = rng.random() < 0.2

            def use(own: random.Random = own, full: bool = full) -> None:
                create = limited(own.randrange(20)) if full else files._create
                with mock.patch.object(files, "_create", create):
                    for _ in range(_ACTIONS):
                        act(store, work, own)

            children.append(fork(use))
        statuses = [os.waitpid(child, 0)[1] for child in children]
        assert statuses == [0] * _PROCESSES, f"processes ended with {statuses}"
        eviction.shrink(store)
        assert eviction.size_of(store) <= limit, "larger than its limit"
        assert {entry.key for entry in eviction.entries_of(store)} <= {*KEYS}
        check_the_end(Store(root, LARGE), work)
    return None
