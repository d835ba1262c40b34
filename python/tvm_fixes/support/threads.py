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
"""The number of threads of a run, which a reference must have, too."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import tvm_ffi

_VARIABLES = "TVM_NUM_THREADS", "OMP_NUM_THREADS"


def thread_count() -> int:
    """The threads of a run in TVM: ``TVM_NUM_THREADS``, or by the cores that are allowed."""
    variables = tuple(os.environ.get(name) for name in _VARIABLES)
    return _counted(variables, frozenset(os.sched_getaffinity(0)))


@cache
def _counted(_variables: tuple[str | None, ...], _cores: frozenset[int]) -> int:
    # TVM starts a pool to count its threads, and pins the calling thread to a core: another thread
    # calls it. The pool stays, so it is not asked again.
    with ThreadPoolExecutor(1) as executor:
        return int(executor.submit(tvm_ffi.get_global_func("runtime.NumThreads")).result())
