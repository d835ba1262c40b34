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
"""Kernels for another CPU that run on this one: loops replace the instructions for dot products."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import tvm
from tvm import tirx

from tvm_fixes.target.cpu import Cpu
from tvm_fixes.tirx import accumulation
from tvm_fixes.tirx.dot_product import DotProduct, description_of


class _Loops(DotProduct):
    @property
    def name(self) -> str:
        return f"{super().name}.loops"

    def implementation(self) -> tirx.PrimFunc:
        return description_of(self)


@contextmanager
def emulated_cpu(**features: Any) -> Iterator[None]:
    """Compile for CPUs with these `features`, attributes of :class:`Cpu`, and run on this one."""
    of = Cpu.of

    def with_features(target: tvm.target.Target) -> Cpu:
        return replace(of(target), **features)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "of", with_features)
        patch.setattr(accumulation, "DotProduct", _Loops)
        yield
