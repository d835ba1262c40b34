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
"""The target and CPU of a call, and how it multiplies and accumulates."""

import tvm
from tvm import relax

from ...target.cpu import Cpu, is_cpu
from ...tirx.accumulation import MultiplyAccumulate, choose_multiply_accumulate
from ...tirx.util import is_zero


def schedules_for_cpu(call: relax.Call) -> bool:
    """Whether to schedule `call` for a CPU: it is known to run on one, and its result is not empty.

    A call for an unknown target may be for a GPU, whose schedules need unscheduled kernels.
    """
    if any(map(is_zero, call.ty.shape)):
        return False
    return is_cpu(target_of(call))


def cpu_of(call: relax.Call) -> Cpu | None:
    """The CPU to schedule `call` for; None if :func:`schedules_for_cpu` is false."""
    return Cpu.of(target_of(call)) if schedules_for_cpu(call) else None


def multiply_accumulate_of(call: relax.Call) -> MultiplyAccumulate:
    """How the convolution or matrix product `call` multiplies and accumulates."""
    data, weight, out = (str(expr.ty.dtype) for expr in (*call.args, call))
    return choose_multiply_accumulate(data, weight, out, cpu_of(call))


def target_of(call: relax.Call) -> tvm.target.Target | None:
    """The target of `call`; None if it is unknown."""
    vdevice = vdevice_of(call.ty)
    return vdevice.target if vdevice is not None else tvm.target.Target.current(allow_none=True)


def vdevice_of(ty: tvm.ir.Type) -> relax.VDevice | None:
    """The device of a tensor, or of the first tensor of a tuple that has one; None if unknown."""
    if isinstance(ty, relax.TupleType):
        return next((found for field in ty.fields if (found := vdevice_of(field))), None)
    return ty.vdevice if isinstance(ty, relax.TensorType) else None
