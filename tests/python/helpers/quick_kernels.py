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
"""Builds the small kernels of tests in less time.

TVM makes each kernel check the type, shape and memory of every argument.  For small kernels, the
machine code of these checks takes two thirds of the time of writing the object file: unoptimized
kernels do without them.  Schedules do not check the types of their arguments.  The full tier builds
as users do.
"""

import functools

import tvm
from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import _type_checker

from tvm_fixes.support.instruments import unwatched

_with_checks = tirx.transform.MakePackedAPI


def _is_unoptimized(function: tvm.ir.BaseFunc) -> bool:
    target = function.attrs.get("target") if function.attrs else None
    return target is not None and target.attrs.get("opt-level") == 0


def _without_checks() -> tvm.transform.Pass:
    """TVM's ``MakePackedAPI``; kernels without assertions of their own get none."""
    add, remove = _with_checks(), tirx.transform.SkipAssert()

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        with unwatched():
            unasserted, checked = remove(mod), add(mod)
            kernels = remove(checked)
        unchecked = {
            var.name_hint
            for var, function in mod.functions_items()
            if _is_unoptimized(function) and function.body.same_as(unasserted[var].body)
        }
        for var, function in checked.functions_items():
            if var.name_hint not in unchecked:
                kernels.update_func(kernels.get_global_var(var.name_hint), function)
        return kernels

    return tvm.transform.module_pass(run, opt_level=0, name=add.info.name)


@functools.cache
def use() -> None:
    """Make TVM build in less time; a second call is a no-op."""
    tirx.transform.MakePackedAPI = _without_checks
    for name, method in list(vars(Schedule).items()):
        if getattr(method, "__globals__", None) is vars(_type_checker):
            setattr(Schedule, name, method.__wrapped__)
