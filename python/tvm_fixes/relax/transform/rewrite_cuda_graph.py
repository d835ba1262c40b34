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

_OPTION = "relax.backend.use_cuda_graph"
_CAPTURE = "vm.builtin.cuda_graph.run_or_capture"


def RewriteCUDAGraph() -> tvm.transform.Pass:
    """Capture the kernels between inputs and results in CUDA graphs.

    Launching a graph costs as much as launching one kernel. TVM's pass captures kernels of static
    shapes that neither read an input nor write a result, but only if the option
    ``relax.backend.use_cuda_graph`` of the pass context is on; this pass is on by default. It
    changes nothing if TVM's pass would leave a variable undefined, or capture kernels without a
    result, such as kernels that nothing reads.

    Returns
    -------
    tvm.transform.Pass
        A module pass, for a module whose memory is planned.
    """

    def run(mod: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        if not context.config.get(_OPTION, True):
            return mod
        config = dict(context.config) | {_OPTION: True}
        with tvm.transform.PassContext(
            opt_level=context.opt_level,
            required_pass=context.required_pass,
            disabled_pass=context.disabled_pass,
            instruments=context.instruments,
            config=config,
        ):
            # TVM's pass modifies its argument.
            captured = relax.transform.RewriteCUDAGraph()(mod.clone())
        return captured if _is_closed(captured) and _has_results(captured) else mod

    return tvm.transform.module_pass(run, opt_level=0, name="RewriteCUDAGraph")


def _is_closed(mod: tvm.IRModule) -> bool:
    """Whether each function defines what it uses: TVM's pass may miss a value between graphs."""
    functions = (f for _, f in mod.functions_items() if isinstance(f, relax.Function))
    return not any(relax.analysis.free_vars(function) for function in functions)


def _has_results(mod: tvm.IRModule) -> bool:
    """Whether each capture has a result: the virtual machine fails to discard an empty one."""
    empty: list[relax.Call] = []

    def look(call: relax.Call) -> None:
        name = getattr(call.args[0], "global_symbol", "") if call.args else ""
        if name == _CAPTURE and isinstance(call.ty, relax.TupleType) and not call.ty.fields:
            empty.append(call)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            structural_walk(function.body, (relax.Call, look))
    return not empty
