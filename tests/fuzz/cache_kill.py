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
"""A process that uses the cache, killed at a random line or after a random time.

What was stored before must still be found, unless the process may remove it.
"""

import os
import random
import signal
import time

from tvm_fixes.compiler.cache import eviction
from tvm_fixes.compiler.cache.store import Store

from .cache_files import KEYS, LARGE, act, check_the_end, folders, is_found, put
from .save import fork, killed_at_line

_TRACED = ("store.py", "files.py", "eviction.py")
_MAX_LINES = 900
_ACTIONS = 12


def run_case(seed: int) -> str | None:
    """Run one process to its death; entry point of the runner."""
    rng = random.Random(seed)
    with folders() as (root, work):
        store = Store(root, LARGE)
        removes = rng.random() < 0.5
        before = [key for key in KEYS[:3] if put(store, work, key)]
        child = random.Random(rng.getrandbits(32))

        def use() -> None:
            for _ in range(_ACTIONS):
                if removes:
                    act(store, work, child)
                else:
                    key = child.choice(KEYS)
                    child.choice((is_found, lambda *_: eviction.shrink(store)))(store, key)
                    put(store, work, key)

        by_line, line = rng.random() < 0.8, rng.randrange(_MAX_LINES)
        pid = fork((lambda: killed_at_line(line, use, _TRACED)) if by_line else use)
        if not by_line:
            time.sleep(rng.random() * 0.03)
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or status == 0, f"the process ended with {status}"
        for key in before:
            assert is_found(store, key) or removes, "an entry is lost"
        check_the_end(store, work)
    return None
