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
"""The CPU of a target for schedules: its vectors, registers, caches and dot products."""

import functools
from dataclasses import dataclass
from typing import Self

import tvm
from tvm.target.codegen import target_has_features

from .resolution import architecture


def is_cpu(target: tvm.target.Target | None) -> bool:
    """Whether a target is known and is a CPU."""
    return target is not None and "cpu" in target.keys


@functools.lru_cache(maxsize=256)
def has_feature(feature: str, target: tvm.target.Target) -> bool:
    """Whether the CPU of `target` has the instructions that LLVM calls `feature`."""
    # Cached, because TVM creates an LLVM target machine for each query.
    return bool(target_has_features(feature, target))


@dataclass(frozen=True)
class Cpu:
    """The properties of a CPU that schedules use.

    Vectors, registers and dot products follow from the target.  A target does not describe caches:
    their sizes are the same for all CPUs.

    Attributes
    ----------
    vector_bytes : int
        The size of a vector register: 64 bytes with AVX-512, 32 with AVX, and 16 otherwise, which
        every 64-bit x86 (SSE2) and Arm (Neon) has.
    vector_registers : int
        The number of vector registers: 32 with AVX-512 and on aarch64, 16 otherwise.
    has_pmaddwd : bool
        Whether one instruction adds two products of 16-bit integers to each int32 of a vector: on
        x86 with AVX2.
    has_avx512bw : bool
        Whether such an instruction has vectors of 64 bytes.
    has_vnni : bool
        Whether one instruction adds four products of 8-bit integers to each int32 of a vector
        (AVX512-VNNI or AVX-VNNI).
    has_bfloat16 : bool
        Whether one instruction adds two products of bfloat16 to each float32 of a vector: with
        AVX512-BF16, and with BFDOT on aarch64.
    has_dotprod : bool
        The same as `has_vnni` on aarch64 (SDOT, UDOT).
    cache_line_bytes : int
        The unit of all transfers between caches and memory.
    l2_bytes : int
        The data that stays in the L2 cache of a core until it is read again.  Cores have from
        1 MiB (Zen 4, Neoverse V1) to 2 MiB (Sapphire Rapids).
    last_level_cache_bytes : int
        The first elements of a tensor of this size or more are evicted from all caches before the
        last ones are written.  32 MiB is the L3 cache that the cores of Zen 3 and later share.
    max_stack_buffer_bytes : int
        The largest buffer that TVM puts on the stack, where LLVM can promote it to registers; TVM
        allocates larger ones at run time.
    """

    vector_bytes: int
    vector_registers: int
    has_pmaddwd: bool = False
    has_avx512bw: bool = False
    has_vnni: bool = False
    has_bfloat16: bool = False
    has_dotprod: bool = False
    cache_line_bytes: int = 64
    l2_bytes: int = 2 << 20
    last_level_cache_bytes: int = 32 << 20
    max_stack_buffer_bytes: int = 1023

    @classmethod
    def of(cls, target: tvm.target.Target) -> Self:
        """The CPU that `target` names."""

        def has(*features: str) -> bool:
            return any(has_feature(feature, target) for feature in features)

        vector_bytes = 64 if has("avx512f") else 32 if has("avx") else 16
        is_aarch64 = architecture(str(target.attrs.get("mtriple", ""))) == "aarch64"
        return cls(
            vector_bytes,
            vector_registers=32 if vector_bytes == 64 or is_aarch64 else 16,
            has_pmaddwd=has("avx2"),
            has_avx512bw=has("avx512bw"),
            has_vnni=has("avx512vnni", "avxvnni"),
            has_bfloat16=has("avx512bf16") or (is_aarch64 and has("bf16")),
            has_dotprod=is_aarch64 and has("dotprod"),
        )
