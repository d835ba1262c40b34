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
"""tvm_fixes.report.reference_times: the times of nodes in ONNX Runtime and PyTorch."""

import os
import signal

import numpy as np
import onnx
import pytest
import torch
import tvm.testing
from onnx import parser

import tvm_fixes
from helpers.onnx_graphs import branches
from tvm_fixes.debug import profile
from tvm_fixes.errors import UsageError
from tvm_fixes.relax.source_nodes import SourceNode
from tvm_fixes.report import onnx_times, reference_times
from tvm_fixes.report.node_times import NodeTime, ReferenceTimes
from tvm_fixes.report.onnx_times import _Coverage, _without_overhead
from tvm_fixes.report.reference_times import match_nodes

A, B, C, D = (SourceNode(name, name.upper()) for name in "abcd")


def times(*groups: tuple[SourceNode, ...]) -> ReferenceTimes:
    nodes = tuple(NodeTime(group, f"op{at}", 2.0**at) for at, group in enumerate(groups))
    return ReferenceTimes("ONNX Runtime 1", 100.0, nodes)


def matches(kernels, reads, found: ReferenceTimes):
    matched = match_nodes(kernels, reads, found)
    return [(match.kernels, match.seconds) for match in matched.matches], matched


def test_a_kernel_has_the_sum_of_its_nodes():
    found, whole = matches([(A, B), (C,)], [(), (0,)], times((A,), (B,), (C,), (D,)))
    assert found == [((0,), 3.0), ((1,), 4.0)]
    assert [node.nodes for node in whole.unmatched] == [(D,)]
    assert whole.node_seconds == 15.0 and whole.matched == 7 / 15


def test_kernels_share_the_time_of_nodes_that_the_reference_fuses():
    found, whole = matches([(A,), (B,), (C,)], [(), (0,), (1,)], times((A, B), (C,)))
    assert found == [((0, 1), 1.0), ((2,), 2.0)]
    assert whole.by_kernel(3) == [whole.matches[0], whole.matches[0], whole.matches[1]]


def test_two_kernels_for_one_node_share_its_time():
    found, _ = matches([(A,), (A, B)], [(), (0,)], times((A,), (B,)))
    assert found == [((0, 1), 3.0)]


def test_a_kernel_that_repeats_a_node_does_not_share_its_time():
    found, _ = matches([(A,), (B,), (A, C)], [(), (0,), (1,)], times((A,), (B,), (C,)))
    assert found == [((0,), 1.0), ((1,), 2.0), ((2,), 4.0)]


def test_the_time_of_the_profiler_is_subtracted():
    assert _without_overhead({"a": 9e-6, "b": 5e-6}, 8e-6) == pytest.approx(
        {"a": 6e-6, "b": 2e-6}, abs=1e-9
    )
    assert _without_overhead({"a": 9e-6, "b": 2e-6}, 5e-6) == pytest.approx(
        {"a": 5e-6, "b": 0}, abs=1e-9
    )
    assert _without_overhead({"a": 9e-6}, 1e-3) == pytest.approx({"a": 9e-6}), "not less than it is"


def graph(body: str) -> onnx.GraphProto:
    return parser.parse_graph(f"g (float[1] x, float[1] z) => (float[1] y) {{ {body} }}")


ORIGINAL = "a = Conv(x, w) b = Relu(a) c = Conv(b, w) d = Add(c, b) e = Relu(d) y = Neg(e)"


def covered(body: str, names: list[str], original: str = ORIGINAL):
    optimized = graph(body)
    for node, name in zip(optimized.node, names, strict=True):
        node.name = name
    found = _Coverage(graph(original), optimized).covered()
    return [([node.op_type for node in nodes], places) for nodes, places in found]


def test_fused_nodes_by_the_results_that_remain():
    body = "b = FusedConv(x, w) d = Conv(b, w, b, b) e = Relu(d) y = Neg(e)"
    assert covered(body, ["f", "g", "tvm_fixes_node_4", "tvm_fixes_node_5"]) == [
        (["FusedConv"], [0, 1]),
        (["Conv"], [2, 3]),
        (["Relu"], [4]),
        (["Neg"], [5]),
    ]


def test_convolutions_with_blocked_channels():
    body = """r0 = ReorderInput(x) r1 = Conv(r0, w) r2 = Conv<activation = "Relu">(r1, w, r1, r1)
        e = ReorderOutput(r2) y = Neg(e)"""
    names = ["ReorderInput", "b_nchwc", "c_nchwc_token_3", "ReorderOutput", "tvm_fixes_node_5"]
    assert covered(body, names) == [
        (["ReorderInput", "Conv"], [0, 1]),
        (["Conv", "ReorderOutput"], [2, 3, 4]),
        (["Neg"], [5]),
    ]
    # The addition and the activation follow from the inputs and attributes.
    pooled = body.replace("e = ReorderOutput(r2) y = Neg(e)", "y = Neg(r2)")
    assert covered(pooled, [*names[:3], names[4]])[1:] == [(["Conv"], [2, 3, 4]), (["Neg"], [5])]


def test_nodes_between_unknown_values_are_one_group():
    body = "s0 = Reshape(x, n) s1 = Gemm(s0, w) b = Reshape(s1, n) y = Neg(b)"
    original = "a = MatMul(x, w) b = Add(a, z) y = Neg(b)"
    assert covered(body, ["r", "gemm", "s", "tvm_fixes_node_2"], original) == [
        (["Reshape", "Gemm", "Reshape"], [0, 1]),
        (["Neg"], [2]),
    ]


def mlp() -> onnx.ModelProto:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 18]>
        network (float[64, 128] x) => (float[64, 128] y) {
            m = MatMul(x, w)
            b = Add(m, v)
            t = Tanh(b)
            y = Softmax(t)
        }"""
    )
    rng = np.random.default_rng(0)
    for name, shape in (("w", (128, 128)), ("v", (128,))):
        array = rng.standard_normal(shape).astype("float32")
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


@pytest.fixture(scope="module")
def compiled():
    return tvm_fixes.compile(mlp(), compare=False)


def test_onnx_runtime(compiled):
    found = profile(compiled, original=mlp(), seconds=0.1)
    reference = found.reference
    assert found.no_reference == "" and reference.name.startswith("ONNX Runtime")
    assert reference.matched == pytest.approx(1) and reference.unmatched == ()
    assert reference.node_seconds <= 1.05 * reference.run_seconds
    names = [{node.name for node in match.nodes} for match in reference.matches]
    assert any({"m", "b"} <= group for group in names), "a fused product"
    assert {name for group in names for name in group} == {"m", "b", "t", "y"}
    for kernel, match in zip(found.kernels, found.matches, strict=True):
        assert {node.name for node in kernel.nodes} & {node.name for node in match.nodes}
    document = found.to_dict()
    assert document["kernels"][0]["reference_seconds"] == found.matches[0].seconds
    assert document["reference"]["matched"] == reference.matched
    assert "reference_us" in found.trace()


def test_the_original_of_an_artifact(compiled):
    with pytest.raises(UsageError, match="not the model of the artifact: expected the inputs x"):
        profile(compiled, original=branches(), seconds=0)
    with pytest.raises(UsageError, match="an original is for an artifact"):
        profile(mlp(), original=mlp(), seconds=0)


def test_pytorch():
    module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()).eval()
    found = profile((module, (torch.zeros(4, 32),)), seconds=0)
    assert found.reference.name.startswith("PyTorch") and found.reference.matched == 1
    operators = {node.operator for match in found.reference.matches for node in match.nodes}
    assert operators == {"aten.linear.default", "aten.gelu.default"}
    assert all(match is not None and match.seconds > 0 for match in found.matches)


def test_a_model_with_branches_is_not_matched():
    found = profile(branches(), seconds=0)
    assert not found.is_exact and found.reference.run_seconds > 0
    assert found.reference.matches == () and found.matches == [None] * len(found.kernels)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (lambda *_: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV: crashed"),
        (lambda *_: 1 / 0, "division by zero"),
        (lambda *_: signal.pause(), "timed out after 0.5 s"),
    ],
)
def test_a_reference_that_does_not_run(failure, reason, compiled, monkeypatch):
    monkeypatch.setattr(onnx_times, "onnx_node_times", failure)
    if "timed out" in reason:
        monkeypatch.setattr(reference_times, "_MAX_SECONDS", 0.5)
    found = profile(compiled, original=mlp(), seconds=0)
    assert found.reference is None and reason in found.no_reference and found.kernels


def test_the_reference_is_not_measured_without_a_request(compiled):
    found = profile(compiled, original=mlp(), compare=False, seconds=0)
    assert (found.reference, found.no_reference) == (None, "not requested")


if __name__ == "__main__":
    tvm.testing.main()
