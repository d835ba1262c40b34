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
"""tvm_fixes.relax.source_nodes and kernel_calls: what kernels compute, in terms of the model."""

import json

import numpy as np
import onnx
import pytest
import torch
import tvm
import tvm.testing
from onnx import TensorProto, parser
from torch import nn
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from helpers.architectures import ARCHITECTURES
from helpers.relax_modules import cpu
from tvm_fixes.errors import ArtifactError
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import stages
from tvm_fixes.relax.analysis import bindings
from tvm_fixes.relax.kernel_calls import kernel_calls
from tvm_fixes.relax.source_nodes import SourceNode, mark, nodes_of, span_of, spread
from tvm_fixes.relax.transform import DynamicToStatic
from tvm_fixes.runtime.manifest import Manifest


def two_layers() -> onnx.ModelProto:
    """Two equal layers that share kernels; the names of the nodes are not identifiers."""
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        layers (float[8, 32] x, float[32, 32] w, float[32] b) => (float[8, 32] y) {
            m0 = MatMul(x, w)
            a0 = Add(m0, b)
            r0 = Sigmoid(a0)
            m1 = MatMul(r0, w)
            a1 = Add(m1, b)
            y = Sigmoid(a1)
        }"""
    )
    for index, node in enumerate(model.graph.node):
        node.name = f"/layer.{index // 3}/{node.op_type}:0"
    return model


def calls_of(mod: tvm.IRModule) -> list[tuple[str, list[str]]]:
    """The kernels that a module calls when it is lowered, with the names of their nodes."""
    with cpu():
        for stage in stages():
            if stage.info.name == "InlineElementwise":
                break
            mod = stage(mod)
    kernels = kernel_calls(mod)
    return [(call.kernel, [kernels.nodes[p].name for p in call.nodes]) for call in kernels.calls]


def test_calls_of_a_shared_kernel_keep_their_own_nodes():
    calls = calls_of(from_onnx(two_layers()))
    assert len({kernel for kernel, _ in calls}) == len(calls) / 2
    for layer, part in enumerate((calls[: len(calls) // 2], calls[len(calls) // 2 :])):
        names = {name for _, nodes in part for name in nodes}
        assert names == {f"/layer.{layer}/{op}:0" for op in ("MatMul", "Add", "Sigmoid")}
        assert f"/layer.{layer}/MatMul:0" in part[0][1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.stem(x).softmax(1)


def test_pytorch_nodes_keep_original_operators_and_module_paths():
    program = torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),))
    mod = from_exported_program(program)
    nodes = {node for b in bindings(mod["main"]) for node in nodes_of(b.var)}
    assert SourceNode("conv2d", "aten.conv2d.default", "stem.0") in nodes
    assert SourceNode("batch_norm", "aten.batch_norm.default", "stem.1") in nodes
    fused = calls_of(mod)[0]
    assert fused[0].startswith("fused_conv2d")
    assert fused[1] == ["conv2d", "batch_norm", "relu"]


def test_spans_do_not_affect_structural_equality():
    marked = from_onnx(two_layers())
    loaded = tvm.ir.load_json(tvm.ir.save_json(marked))
    assert all(nodes_of(b.var) for b in bindings(marked["main"]))
    tvm.ir.assert_structural_equal(marked, tvm.script.from_source(marked.script(show_meta=True)))
    assert nodes_of(next(iter(bindings(loaded["main"]))).var), "spans survive a file"


def test_a_variable_without_nodes_belongs_to_its_reader():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                first = R.add(x, x)
                second = R.multiply(first, x)
                third = R.exp(second)
                last = R.negative(third)
                R.output(last)
            return last

    by_name = {b.var.name: b.var for b in bindings(Module["main"])}
    own = {name: SourceNode(name, "Op") for name in ("second", "third")}
    for name, node in own.items():
        mark(by_name[name], node)
    mark(by_name["second"], SourceNode("other", "Op"))  # an operator that returns its operand
    spread(Module)
    nodes = {name: nodes_of(var) for name, var in by_name.items()}
    assert nodes["first"] == nodes["second"] == (own["second"],)
    assert nodes["last"] == nodes["third"] == (own["third"],)


def test_dynamic_to_static_keeps_nodes():
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                extents = R.const([6], "int64")
                shape = R.tensor_to_shape(extents)
                flat: R.Tensor(ndim=1, dtype="float32") = R.reshape(x, shape)
                out: R.Tensor(ndim=1, dtype="float32") = R.exp(flat)
                R.output(out)
            return out

    for binding in bindings(Module["main"]):
        mark(binding.var, SourceNode(binding.var.name, "Op"))
    static = DynamicToStatic()(Module)
    names = {b.var.name: [node.name for node in nodes_of(b.var)] for b in bindings(static["main"])}
    assert names == {"flat": ["flat"], "out": ["out"]}


def test_nodes_of_nested_spans_are_ordered_and_unique():
    nodes = [SourceNode("b", "Op", 'a "quoted".path'), SourceNode("a", "Op")]
    nested = tvm.ir.SequentialSpan([span_of(nodes), span_of(nodes[:1])])
    var = relax.Var("x", relax.TensorType((1,), "float32"), nested)
    assert nodes_of(var) == tuple(nodes)


def test_tvmscript_spans_are_not_nodes():
    place = tvm.ir.Span(tvm.ir.SourceName("module.py"), 1, 1, 1, 9)
    assert nodes_of(relax.Var("x", relax.TensorType((1,), "float32"), place)) == ()


def test_nodes_in_branches_are_found():
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        branches (float[4] x, bool[] c) => (float[4] y) {
            y = If (c) <
                then_branch = yes () => (float[4] t) { t = Exp(x) },
                else_branch = no () => (float[4] f) { f = Neg(x) }
            >
        }"""
    )
    names = {name for _, nodes in calls_of(from_onnx(model)) for name in nodes}
    assert {"t", "f"} <= names


def test_quantized_convolution_keeps_nodes_of_all_steps():
    weight = np.ones((8, 4, 1, 1), "int8")
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        q (uint8[1, 4, 8, 8] x) => (uint8[1, 8, 8, 8] y)
        <float s = {0.1}, uint8 z = {128}, int8 wz = {0}> {
            xf = DequantizeLinear(x, s, z)
            wf = DequantizeLinear(w, s, wz)
            c = Conv(xf, wf)
            y = QuantizeLinear(c, s, z)
        }"""
    )
    model.graph.initializer.append(
        onnx.helper.make_tensor("w", TensorProto.INT8, weight.shape, weight.tobytes(), raw=True)
    )
    named = [nodes for _, nodes in calls_of(from_onnx(model))]
    assert any("c" in nodes and "y" in nodes for nodes in named)
    assert all(named)


@pytest.mark.parametrize("name", ["bert"])
@pytest.mark.filterwarnings("ignore")
def test_every_kernel_of_a_model_is_attributed(name):
    module, inputs = ARCHITECTURES[name].make()
    program = torch.export.export(module.eval(), inputs)
    calls = calls_of(from_exported_program(program))
    assert len(calls) > 5
    assert all(nodes for _, nodes in calls)


def test_the_manifest_keeps_the_calls():
    import tvm_fixes

    model = tvm_fixes.compile(two_layers(), compare=False)
    kernels = model.manifest.kernels
    assert {node.operator for node in kernels.nodes} == {"MatMul", "Add", "Sigmoid"}
    assert any(kernels.flops[call.kernel] >= 2 * 8 * 32 * 32 for call in kernels.calls)
    assert Manifest.from_json(model.manifest.to_json()).kernels == kernels


def test_calls_record_reads_types_and_layout():
    import tvm_fixes

    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 4, 8, 8] x, float[4, 4, 3, 3] w) => (float[1, 4, 8, 8] y) {
            c = Conv<pads = [1, 1, 1, 1]>(x, w)
            p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(c)
            y = MatMul(c, p)
        }"""
    )
    kernels = tvm_fixes.compile(model, compare=False, layout="NHWC").manifest.kernels
    call_index = {kernels.nodes[c.nodes[-1]].name: i for i, c in enumerate(kernels.calls)}
    conv, pool, product = (kernels.calls[call_index[name]] for name in "cpy")
    assert (conv.layout, pool.layout, product.layout) == ("NCHW → NHWC", "NHWC", "")
    assert pool.reads == (call_index["c"],)
    read = [kernels.calls[index].reads for index in product.reads]
    assert read == [(call_index["c"],), (call_index["p"],)], "through transposes"
    assert pool.operands == pool.results == ("float32 (1, 8, 8, 4)",)
    assert pool.nbytes == 2 * 4 * 8 * 8 * 4


def test_symbolic_extents_have_no_size():
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.exp(x)))
    mod = relax.transform.LegalizeOps()(builder.get())
    (call,) = kernel_calls(mod).calls
    assert call.operands == call.results == ("float32 (n, 4)",)
    assert call.nbytes is None


def test_manifest_without_data_flow_is_readable():
    import tvm_fixes

    manifest = tvm_fixes.compile(two_layers(), compare=False).manifest
    document = json.loads(manifest.to_json())
    for call in document["kernels"]["calls"]:
        for name in ("reads", "operands", "results", "nbytes", "layout"):
            del call[name]
    old = Manifest.from_json(json.dumps(document)).kernels
    assert [call.reads for call in old.calls] == [None] * len(old.calls)
    assert [call.nodes for call in old.calls] == [call.nodes for call in manifest.kernels.calls]
    document["kernels"]["calls"][0]["reads"] = [99]
    with pytest.raises(ArtifactError, match="places of calls"):
        Manifest.from_json(json.dumps(document))


def test_the_result_of_the_model_has_the_nodes_of_its_kernel():
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.conv(x).relu()

    program = torch.export.export(Last().eval(), (torch.randn(1, 3, 8, 8),))
    assert calls_of(from_exported_program(program))[-1][1] == ["conv2d", "relu"]


if __name__ == "__main__":
    tvm.testing.main()
