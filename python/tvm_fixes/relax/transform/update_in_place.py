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
"""UpdateInPlace: write new rows into an input that the caller lets the model overwrite.

Mechanism
    Operators return new tensors; TVM's DataflowUseInplaceCalls leaves parameters alone, because the
    caller may still need them, and scatters, too.
How to remove
    Delete this file, its test, its line in :mod:`tvm_fixes.pipeline`, ``copies_first`` and
    ``without_copy`` of ``legalize/scatter.py``, and the fix id ``update-in-place``.
"""

from collections import Counter
from collections.abc import Iterator

import tvm
from tvm import relax
from tvm_ffi import structural_walk

from ...fixes.memory import UPDATE_IN_PLACE as FIX_ID
from ...support import switches
from ..ir import is_kernel_call, relax_functions, variables, with_body
from ..legalize.scatter import copies_first, without_copy
from ..updates import updates_of


def UpdateInPlace() -> tvm.transform.Pass:
    """Write into the parameters that the attribute ``updates`` of a function names.

    A scatter, ``index_put`` or ``index_copy`` whose operand is such a parameter, and is not read
    anywhere else, becomes a kernel without the copy; the result has the parameter's memory.
    Before::

        R.func_attr({"updates": {"cache": 0}})
        new = R.call_tir(cls.scatter_nd, (cache, at, row), out_ty=R.Tensor((64, 8), "float32"))

    and after::

        new = R.call_tir_inplace(cls.scatter_nd_in_place, (cache, at, row), inplace_indices=[0], …)

    Returns
    -------
    tvm.transform.Pass
        A module pass.  Run it after ``LegalizeOps`` and the fusion of kernels.
    """

    def run(mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        updating = {
            variable: function
            for variable, function in relax_functions(mod).items()
            if updates_of(function)
        }
        if not updating or not switches.enabled(FIX_ID):
            return mod
        rewriting = _Rewriting(mod)
        for variable, function in updating.items():
            rewriting.rewrite(variable, function)
        return rewriting.result()

    return tvm.transform.module_pass(run, opt_level=0, name="UpdateInPlace")


class _Rewriting:
    """The rewriting of one module."""

    def __init__(self, mod: tvm.IRModule):
        self._mod = mod
        self._builder = relax.BlockBuilder(mod)
        self._kernels: dict[tvm.ir.GlobalVar, tvm.ir.GlobalVar] = {}

    def rewrite(self, variable: tvm.ir.GlobalVar, function: relax.Function) -> None:
        reads = _reads(function)
        readers = {
            read: binding
            for binding in _own_bindings(function)
            for read in _read_variables(binding.value)
        }
        changed: dict[relax.Var, relax.Expr] = {}
        updates = updates_of(function)
        for param in function.params:
            if str(param.name) in updates:
                changed |= self._chain(param, reads, readers)
        if changed:
            switches.note(FIX_ID)
            blocks = [_with_values(block, changed) for block in function.body.blocks]
            body = relax.SeqExpr(blocks, function.body.body)
            self._builder.update_func(variable, with_body(function, body))

    def _chain(
        self,
        var: relax.Var,
        reads: Counter[relax.Var],
        readers: dict[relax.Var, relax.Binding],
    ) -> dict[relax.Var, relax.Expr]:
        """The new values of the bindings that write to `var`, one after the other."""
        changed: dict[relax.Var, relax.Expr] = {}
        while reads[var] == 1 and var in readers:
            binding = readers[var]
            if isinstance(binding, relax.VarBinding) and binding.value.same_as(var):
                var = binding.var
                continue
            call = self._in_place(binding, var)
            if call is None:
                break
            var = binding.var
            changed[var] = call
        return changed

    def _in_place(self, binding: relax.Binding, var: relax.Var) -> relax.Expr | None:
        call = binding.value
        if not isinstance(binding, relax.VarBinding) or not is_kernel_call(call):
            return None
        kernel, operands = call.args[0], call.args[1]
        is_first = isinstance(operands, relax.Tuple) and operands.fields[0].same_as(var)
        if not is_first or len(call.args) > 2 or not copies_first(self._mod[kernel]):
            return None
        if kernel not in self._kernels:
            function = without_copy(self._mod[kernel], len(operands.fields))
            name = f"{kernel.name_hint}_in_place"
            self._kernels[kernel] = self._builder.add_func(function, name)
        new = relax.op.call_tir_inplace(self._kernels[kernel], operands, [0], [binding.var.ty])
        return self._builder.normalize(new)

    def result(self) -> tvm.IRModule:
        """The module, without the kernels that are no longer called."""
        if not self._kernels:
            return self._mod
        mod = self._builder.get()
        called: set[tvm.ir.GlobalVar] = set()
        for _, function in mod.functions_items():
            structural_walk(function.body, (tvm.ir.GlobalVar, called.add))
        for kernel in self._kernels:
            if kernel not in called:
                del mod[kernel]
        return relax.transform.Normalize()(mod)


def _own_bindings(function: relax.Function) -> Iterator[relax.Binding]:
    """The bindings of a function, without those of branches."""
    for block in function.body.blocks:
        yield from block.bindings


def _read_variables(value: relax.Expr) -> list[relax.Var]:
    """The variables that a value reads, once per read."""
    if isinstance(value, relax.If | relax.Function | relax.SeqExpr):
        # Counted twice, because a branch may read a variable several times.
        read_variables: list[relax.Var] = []
        structural_walk(value, (relax.Var, lambda var: read_variables.extend([var, var])))
        return read_variables
    return variables(value)


def _reads(function: relax.Function) -> Counter[relax.Var]:
    """The number of reads of each variable; the result of the function counts, too."""
    reads: Counter[relax.Var] = Counter()
    for binding in _own_bindings(function):
        reads.update(_read_variables(binding.value))
    reads.update(_read_variables(function.body.body))
    return reads


def _with_values(
    block: relax.BindingBlock, changed: dict[relax.Var, relax.Expr]
) -> relax.BindingBlock:
    """The block with some values of its bindings replaced."""
    if not any(binding.var in changed for binding in block.bindings):
        return block
    bindings = [
        relax.VarBinding(binding.var, changed[binding.var]) if binding.var in changed else binding
        for binding in block.bindings
    ]
    kind = relax.DataflowBlock if isinstance(block, relax.DataflowBlock) else relax.BindingBlock
    return kind(bindings)
