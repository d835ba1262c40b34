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
"""The limits of a GPU: what one kernel may use.

They are attributes of the target, so that schedules and the check of scheduled kernels agree.
"""

from dataclasses import dataclass

import tvm

from .cuda import capability

# The largest grid and block of CUDA along x, y and z; other APIs allow no larger ones.
_MAX_GRID = (2**31 - 1, 65535, 65535)
_MAX_BLOCK = (1024, 1024, 64)

# Statically allocated shared memory in bytes, for a target that does not say.
_MAX_SHARED = {"cuda": 48 << 10, "rocm": 64 << 10, "metal": 32 << 10}
_MAX_SHARED_ELSEWHERE = 16 << 10

# Dynamically allocated shared memory in KiB, by compute capability.
_MAX_DYNAMIC_SHARED = {
    (7, 5): 64,
    (8, 0): 163,
    (8, 7): 163,
    (9, 0): 227,
    (10, 0): 227,
    (10, 3): 227,
    (11, 0): 227,
}
_MAX_DYNAMIC_SHARED_ELSEWHERE = 99

# The driver reserves this for every thread that can be resident: gigabytes in total.
_MAX_LOCAL = 4 << 10


@dataclass(frozen=True)
class Limits:
    """The resources that one kernel may use.

    Attributes
    ----------
    threads : int
        The threads of a block.
    block, grid : tuple of int
        The extents along x, y and z of a block and of the grid.
    shared, dynamic_shared : int
        The bytes of shared memory, statically allocated and in total.
    local : int
        The bytes of a thread's arrays.
    """

    threads: int
    block: tuple[int, int, int]
    grid: tuple[int, int, int]
    shared: int
    dynamic_shared: int
    local: int


def is_gpu(target: tvm.target.Target | None) -> bool:
    """Whether a target is known and is a GPU."""
    return target is not None and "gpu" in target.keys


def with_limits(target: tvm.target.Target) -> tvm.target.Target:
    """The target of a GPU, with TVM's attributes for its limits."""
    if "max_shared_memory_per_block" in target.attrs:
        return target
    default = _MAX_SHARED.get(target.kind.name, _MAX_SHARED_ELSEWHERE)
    config = dict(target.export()) | {"max_shared_memory_per_block": default}
    return tvm.target.Target(config)


def limits_of(target: tvm.target.Target) -> Limits:
    """The limits of the GPU `target`."""
    attributes = with_limits(target).attrs
    threads = attributes.get("max_threads_per_block") or attributes["max_num_threads"]
    shared = int(attributes["max_shared_memory_per_block"])
    dynamic = 0
    if target.kind.name == "cuda":
        architecture = capability(str(attributes["arch"]))
        dynamic = _MAX_DYNAMIC_SHARED.get(architecture, _MAX_DYNAMIC_SHARED_ELSEWHERE) << 10
    return Limits(int(threads), _MAX_BLOCK, _MAX_GRID, shared, max(shared, dynamic), _MAX_LOCAL)
