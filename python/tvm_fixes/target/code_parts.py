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
"""Code generation in parts, one thread per CPU.

LLVM compiles a module in one thread, so the kernels are divided among several modules, which the
linker puts into one library.  The parts do not depend on the number of CPUs: the same model becomes
the same library on every machine.
"""

import contextvars
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..attributes import CODE_PARTS

Item = TypeVar("Item")
Result = TypeVar("Result")

# More than the usual number of CPUs of a small machine, so that one large part does not come last.
_PARTS = 4

# With fewer functions in a part, LLVM takes longer to start than to compile them.
_MIN_FUNCTIONS = 3

_PACK = "runtime.ModulePackImportsToLLVM"


def divisible(mod: tvm.IRModule) -> tvm.IRModule:
    """The module, whose kernels LLVM may compile in parts."""
    return mod.with_attr(str(CODE_PARTS), True)


def parts_of(mod: tvm.IRModule) -> list[tvm.IRModule]:
    """Divide a module of lowered kernels, if it is divisible and has enough of them.

    Functions that refer to each other stay together.
    """
    if CODE_PARTS not in (mod.attrs or {}):
        return [mod]
    groups = sorted(_groups(mod), key=lambda group: -len(group))
    count = min(_PARTS, len(groups), len(mod.functions) // _MIN_FUNCTIONS)
    if count < 2:
        return [mod]
    dealt: list[list[tvm.ir.GlobalVar]] = [[] for _ in range(count)]
    for group in groups:
        min(dealt, key=len).extend(group)
    return [tvm.IRModule({var: mod[var] for var in part}, attrs=mod.attrs) for part in dealt]


def _groups(mod: tvm.IRModule) -> list[list[tvm.ir.GlobalVar]]:
    """The functions of a module by name, those together that refer to each other."""
    variables = {str(var.name_hint): var for var in mod.get_global_vars()}
    symbols = {
        str((mod[var].attrs or {}).get("global_symbol", name)): name
        for name, var in variables.items()
    }
    group_of = {name: [name] for name in variables}

    def join(name: str, other: str | None) -> None:
        if other in group_of and group_of[name] is not group_of[other]:
            group_of[name].extend(group_of[other])
            group_of.update(dict.fromkeys(group_of[other], group_of[name]))

    for name, referred in ((name, _referred(mod[var])) for name, var in variables.items()):
        for symbol in referred:
            join(name, symbols.get(symbol, symbol))
    distinct = {id(group_of[name]): group_of[name] for name in sorted(variables)}
    return [[variables[name] for name in sorted(group)] for group in distinct.values()]


def _referred(function: tirx.PrimFunc) -> set[str]:
    """The names of variables and of symbols in a function."""
    found: set[str] = set()
    tvm_ffi.structural_walk(
        function.body,
        [
            (tvm.ir.GlobalVar, lambda var: found.add(str(var.name_hint))),
            (tvm.ir.StringImm, lambda text: found.add(str(text.value))),
        ],
    )
    return found


def at_once(call: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Call a function for each item in its context, in as many threads as there are CPUs.

    Raises
    ------
    Exception
        What the call for the first of the items that failed raised.
    """
    remaining = list(items)
    threads = min(len(remaining), len(os.sched_getaffinity(0)))
    if threads < 2:
        return [call(item) for item in remaining]
    with ThreadPoolExecutor(threads) as pool:
        contexts = [contextvars.copy_context() for _ in remaining]
        made = [
            pool.submit(context.run, call, item)
            for context, item in zip(contexts, remaining, strict=True)
        ]
        return [future.result() for future in made]


def joined(modules: list[tvm.runtime.Module]) -> tvm.runtime.Module:
    """The first module, which imports the others."""
    first, *others = modules
    for module in others:
        first.import_module(module)
    return first


def write_objects(executable: relax.VMExecutable, folder: str) -> list[str]:
    """Write the object files of a library: one for each part, and one for the rest.

    They are those of TVM's ``export_library``.

    Returns
    -------
    list of str
        Their paths; none if the executable has no machine code, whose target the last file needs.
    """
    compiled = executable.mod._collect_dso_modules()
    if not compiled or any(module.kind != "llvm" for module in compiled):
        return []

    def pack() -> tvm.runtime.Module:
        target = compiled[0].get_function("_get_target_string")()
        return tvm.get_global_func(_PACK)(executable.mod, False, target, "")

    def write(index: int) -> str:
        path = os.path.join(folder, f"part{index}.o")
        module = compiled[index] if index < len(compiled) else pack()
        module.write_to_file(path)
        return path

    # The last one first: it has the constants.
    paths = at_once(write, range(len(compiled), -1, -1))
    return paths[::-1]
