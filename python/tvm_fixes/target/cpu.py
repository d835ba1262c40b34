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
"""What the CPU of a target has: vectors and registers."""

import tvm
from tvm.target.codegen import target_has_features


def is_cpu(target: tvm.target.Target | None) -> bool:
    """Whether a target is known, and a CPU."""
    return target is not None and "cpu" in target.keys


def vector_registers(target: tvm.target.Target) -> tuple[int, int]:
    """The size of a vector in bytes, and how many registers of that size `target` has.

    Those of AVX-512, AVX, or what every 64-bit x86 and Arm has at least.
    """
    if target_has_features("avx512f", target):
        return 64, 32
    if target_has_features("avx", target):
        return 32, 16
    return 16, 16
