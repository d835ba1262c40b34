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
"""Leaves out the checks with which an unoptimized kernel begins.

TVM makes each kernel check the type, shape and memory of every argument.  For the small kernels of
tests, the machine code of these checks takes two thirds of the time of writing the object file.
Optimized kernels keep them, and so do all kernels of the full tier.
"""

import functools

import tvm
from tvm import tirx

_with_checks = tirx.transform.MakePackedAPI


def _is_unoptimized(function: tvm.ir.BaseFunc) -> bool:
    target = function.attrs.get("target") if function.attrs else None
    return target is not None and target.attrs.get("opt-level") == 0


def _without_checks() -> tvm.transform.Pass:
    """TVM's ``MakePackedAPI``; kernels without assertions of their own get none."""
    add, remove = _with_checks(), tirx.transform.SkipAssert()

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        unasserted = remove(mod)
        unchecked = {
            var.name_hint
            for var, function in mod.functions_items()
            if _is_unoptimized(function) and function.body.same_as(unasserted[var].body)
        }
        checked = add(mod)
        kernels = remove(checked)
        for var, function in checked.functions_items():
            if var.name_hint not in unchecked:
                kernels.update_func(kernels.get_global_var(var.name_hint), function)
        return kernels

    return tvm.transform.module_pass(run, opt_level=0, name="MakePackedAPI")


@functools.cache
def use() -> None:
    """Make TVM build unoptimized kernels without the checks; a second call is a no-op."""
    tirx.transform.MakePackedAPI = _without_checks
