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
"""What lowerings ask of the target: whether a call is for a CPU, and in which dtype to sum."""

import tvm
from tvm import relax

from ...target.cpu import is_cpu
from ...tirx.util import is_zero


def schedules_for_cpu(call: relax.Call) -> bool:
    """Whether `call` is known to run on a CPU, and has anything to compute.

    A CPU's schedule would be in the way of a GPU's, so in doubt there is none.
    """
    if any(map(is_zero, call.ty.shape)):
        return False
    return is_cpu(target_of(call))


def target_of(call: relax.Call) -> tvm.target.Target | None:
    """The target that `call` is for, None if that is unknown."""
    vdevice = call.ty.vdevice
    return vdevice.target if vdevice is not None else tvm.target.Target.current(allow_none=True)


def accumulator_dtype(data: str, kernel: str, out: str) -> str:
    """The dtype to sum in: `out` for integers, at least float32 for floating point."""
    if not any("float" in dtype for dtype in (data, kernel, out)):
        return out
    return "float64" if "float64" in (data, kernel, out) else "float32"


def even_part(extent: int, most: int) -> int:
    """How many of `extent` a tile takes: no more than `most`, the last tile as full as can be."""
    return -(-extent // -(-extent // most))
