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
"""RewriteCUDAGraph: TVM's pass of this name, on unless its option turns it off."""

import tvm
from tvm import relax
from tvm_ffi import structural_walk

from ...errors import UsageError
from ..ir import is_primitive, relax_functions

_OPTION = "relax.backend.use_cuda_graph"
_CAPTURE = "vm.builtin.cuda_graph.run_or_capture"
_WITH_CONTEXT = tvm.ir.Op.get("relax.call_builtin_with_ctx")
# TVM's functions in Python.
_HOST = "relax.run."


def RewriteCUDAGraph() -> tvm.transform.Pass:
    """Capture the kernels between inputs and results in CUDA graphs.

    Launching a graph costs as much as launching one kernel. TVM's pass captures kernels of static
    shapes that neither read an input nor write a result, but only if the option
    ``relax.backend.use_cuda_graph`` of the pass context is on; this pass is on by default. It
    changes nothing for a target without CUDA, or if TVM's pass would leave a variable undefined,
    capture kernels without a result, such as kernels that nothing reads, or capture a function that
    runs on the host, such as an assertion.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for a module whose memory is planned.

    Raises
    ------
    UsageError
        When the pass runs: if TVM's pass fails at a function with a dataflow block, as before its
        memory is planned.
    """

    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        target = tvm.target.Target.current(allow_none=True)
        is_other = target is not None and target.kind.name != "cuda"
        if is_other or not context.config.get(_OPTION, True):
            return mod
        config = dict(context.config) | {_OPTION: True}
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=context.required_pass,
            disabled_pass=context.disabled_pass,
            instruments=context.instruments,
            config=config,
        ):
            try:
                # TVM's pass modifies its argument.
                captured = relax.transform.RewriteCUDAGraph()(mod.clone())
            except tvm.error.InternalError as error:
                _reject_dataflow(mod, error)
                raise
        return captured if _is_closed(captured) and _can_run(mod, captured) else mod

    return tvm.transform.module_pass(run, opt_level=0, name="RewriteCUDAGraph")


def _reject_dataflow(mod: tvm.IRModule, cause: tvm.error.InternalError) -> None:
    """Raise a UsageError if a function is not lowered yet: TVM's pass may fail there."""
    for variable, function in relax_functions(mod).items():
        if is_primitive(function):
            continue
        if any(isinstance(block, relax.DataflowBlock) for block in function.body.blocks):
            raise UsageError(
                f"RewriteCUDAGraph needs a module whose memory is planned, but function "
                f"{variable.name_hint!r} has a dataflow block: run it after StaticPlanBlockMemory"
            ) from cause


def _is_closed(mod: tvm.IRModule) -> bool:
    """Whether each function defines what it uses: TVM's pass may miss a value between graphs."""
    functions = (f for _, f in mod.functions_items() if isinstance(f, relax.Function))
    return not any(relax.analysis.free_vars(function) for function in functions)


def _can_run(mod: tvm.IRModule, captured: tvm.IRModule) -> bool:
    """Whether each capture has a result, and contains only kernels.

    The virtual machine fails to discard an empty result. A function on the host reads its operands
    from the GPU, which ends a capture with an error.
    """
    before = {variable.name_hint for variable in mod.get_global_vars()}
    for variable, function in relax_functions(captured).items():
        is_capture = variable.name_hint not in before
        calls: list[relax.Call] = []
        structural_walk(function.body, (relax.Call, calls.append))
        for call in calls:
            name = _name_of(call)
            is_void = isinstance(call.ty, relax.TupleType) and not call.ty.fields
            if (name == _CAPTURE and is_void) or (is_capture and name.startswith(_HOST)):
                return False
    return True


def _name_of(call: relax.Call) -> str:
    """The function outside the module that a call executes; empty for others."""
    callee = call.args[0] if call.args and call.op == _WITH_CONTEXT else call.op
    return str(getattr(callee, "global_symbol", ""))
