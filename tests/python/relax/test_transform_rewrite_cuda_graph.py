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
"""RewriteCUDAGraph."""

import pytest
import tvm
import tvm.testing
from tvm import relax, tirx

from helpers.gpu_kernels import GPU
from helpers.lowering import lowered_before
from helpers.relax_modules import build, integers, tensor
from tests.fuzz import onnx_models
from tvm_fixes.errors import UsageError
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline, stages
from tvm_fixes.relax.transform import RewriteCUDAGraph

OPTION = "relax.backend.use_cuda_graph"
CAPTURE = "vm.builtin.cuda_graph.run_or_capture"


def layers(rows) -> tvm.IRModule:
    """Kernels that neither read the input nor write the result."""
    weight = relax.const(integers(8, 8))

    def emit(builder, x):
        for _ in range(4):
            x = builder.emit(relax.op.matmul(x, weight))
        return x

    return build({"x": tensor(rows, 8)}, emit)


def lowered(mod: tvm.IRModule, **config: object) -> str:
    with GPU, tvm.transform.PassContext(config=config):
        return pipeline()(mod).script()


def test_graphs_are_captured_by_default():
    assert CAPTURE in lowered(layers(4))


@pytest.mark.parametrize("value", [False, True])
def test_the_option_decides(value):
    assert (CAPTURE in lowered(layers(4), **{OPTION: value})) == value


def test_a_target_without_cuda_captures_nothing():
    """The virtual machine of a CPU has no graphs."""
    names = ("LegalizeOps", "ToNonDataflow", "CallTIRRewrite", "StaticPlanBlockMemory")
    mod = tvm.transform.Sequential([getattr(relax.transform, name)() for name in names])(layers(4))
    assert CAPTURE in RewriteCUDAGraph()(mod).script()
    with tvm.target.Target("llvm"):
        assert RewriteCUDAGraph()(mod).same_as(mod)


def test_symbolic_shapes_are_not_captured():
    assert CAPTURE not in lowered(layers(tirx.Var("n", "int64")))


def test_a_module_that_tvms_pass_breaks_is_kept():
    """A random graph, in which TVM's pass leaves a variable undefined."""
    mod = from_onnx(onnx_models.make_graph(178).model())
    lowering = stages("gpu")
    with GPU:
        mod = lowered_before(mod, lowering, "Lower")
        for stage in lowering.instructions:
            mod = stage(mod)
    functions = [f for _, f in mod.functions_items() if isinstance(f, relax.Function)]
    assert not any(relax.analysis.free_vars(function) for function in functions)


def test_kernels_that_nothing_reads_are_not_captured():
    """A random graph: a slice of no elements reads nothing of a sum."""
    mod = from_onnx(onnx_models.make_graph(9500127).model())
    assert CAPTURE not in lowered(mod)


def test_functions_of_the_host_are_not_captured():
    weight = relax.const(integers(8, 8))

    def emit(builder, x):
        for _ in range(3):
            x = builder.emit(relax.op.matmul(x, weight))
        total = builder.emit(relax.op.sum(x))
        is_small = builder.emit(relax.op.less(total, relax.const(1e9, "float32")))
        builder.emit(relax.op.assert_op(is_small))
        return builder.emit(relax.op.matmul(x, weight))

    builder = relax.BlockBuilder()
    x = relax.Var("x", tensor(4, 8))
    with builder.function("main", [x]):
        builder.emit_func_output(emit(builder, x))
    mod = builder.get()
    mod["main"] = mod["main"].with_attr("relax.force_pure", False)
    assert CAPTURE not in lowered(mod)


def test_the_options_of_the_context_are_kept():
    seen = []

    @tvm.ir.instrument.pass_instrument
    class Look:
        def run_before_pass(self, _mod, info):
            if info.name == "RewriteCUDAGraph":
                seen.append(dict(tvm.transform.PassContext.current().config))

    config = {"tirx.disable_vectorize": True}
    with tvm.transform.PassContext(config=config, instruments=[Look()]):
        RewriteCUDAGraph()(layers(4))
        assert dict(tvm.transform.PassContext.current().config) == config
    assert seen[-1] == config | {OPTION: True}


def test_a_module_that_is_not_lowered_is_rejected():
    def emit(builder, x, weight):
        weight = builder.emit(relax.op.permute_dims(weight))
        return relax.op.add(builder.emit(relax.op.matmul(x, weight)), weight)

    mod = build({"x": tensor(4, 4), "weight": tensor(4, 4)}, emit)
    mod = tvm.IRModule({"main": mod["main"].with_attr("num_input", 1)})
    with pytest.raises(UsageError, match="'main' has a dataflow block: run it after Static"):
        RewriteCUDAGraph()(mod)


if __name__ == "__main__":
    tvm.testing.main()
