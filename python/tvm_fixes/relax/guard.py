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
"""Passes that a switch turns off: our own, and corrected or guarded ones of TVM."""

from collections.abc import Callable

import tvm

from ..support import switches


def uninstrumented(
    context: tvm.transform.PassContext, opt_level: int | None = None
) -> tvm.transform.PassContext:
    """A context without instruments, for the passes that a pass runs internally.

    Instruments must not see the intermediate modules.  The optimization level is that of `context`
    unless `opt_level` is given.
    """
    level = context.opt_level if opt_level is None else opt_level
    return tvm.transform.PassContext(opt_level=level, config=context.config)


def fix_pass(
    name: str, fix_id: str, rewrite: Callable[[tvm.IRModule], tvm.IRModule | None]
) -> tvm.transform.Pass:
    """Make a module pass that reports the use of its fix.

    Parameters
    ----------
    fix_id : str
        The fix that the pass implements; while it is off, the pass changes nothing.
    rewrite : callable
        Takes a module, and returns a new one, or None to keep it.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        new = rewrite(mod) if switches.enabled(fix_id) else None
        if new is None:
            return mod
        switches.note(fix_id)
        return new

    return tvm.transform.module_pass(run, opt_level=0, name=name)


def corrected(
    stock: tvm.transform.Pass,
    fix_id: str,
    run: Callable[[tvm.IRModule], tvm.IRModule],
    name: str | None = None,
) -> tvm.transform.Pass:
    """Replace one of TVM's passes by a corrected one, which instruments see as a single pass.

    Parameters
    ----------
    stock : tvm.transform.Pass
        TVM's pass.
    fix_id : str
        The fix id of the corrected pass; while the fix is switched off, `stock` runs instead.
    run : callable
        The corrected pass, from module to module; it may call `stock` and other passes.
    name : str, optional
        The name of the corrected pass; by default that of `stock`.

    Returns
    -------
    tvm.transform.Pass
        A module pass with the optimization level of `stock`.
    """

    def correct(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        with uninstrumented(context):
            return run(mod) if switches.enabled(fix_id) else stock(mod)

    info = stock.info
    return tvm.transform.module_pass(correct, opt_level=info.opt_level, name=name or info.name)


def guarded(
    stock: tvm.transform.Pass, fix_id: str, fails: Callable[[tvm.IRModule], bool]
) -> tvm.transform.Pass:
    """Skip a pass on the modules that it cannot handle; they come back unchanged.

    Parameters
    ----------
    stock : tvm.transform.Pass
        TVM's pass.
    fix_id : str
        The fix id of the guard; while the fix is switched off, `stock` runs on every module.
    fails : callable
        Whether `stock` fails on a module.

    Returns
    -------
    tvm.transform.Pass
        A module pass with the name and the optimization level of `stock`.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        if switches.enabled(fix_id) and fails(mod):
            switches.note(fix_id)
            return mod
        return stock(mod)

    return tvm.transform.module_pass(run, opt_level=stock.info.opt_level, name=stock.info.name)
