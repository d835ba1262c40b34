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
"""``tvm_fixes.debug.explain``: the fixes applied to each node, and optimizations not made."""

import numpy as np
import pytest
import tvm.testing

import tvm_fixes
from helpers.planted_faults import graph
from tvm_fixes.debug import explain
from tvm_fixes.runtime.report import Report
from tvm_fixes.support import ambient
from tvm_fixes.support.declined import NotDone, decline

AVX512 = {"kind": "llvm", "mcpu": "skylake-avx512"}


def network():
    weight = np.ones((16, 16), "float32")
    nodes = """i = Resize<mode = "linear"> (x, , scales) r = Reshape (i, shape)
               m = MatMul (r, w) n = Neg (m) t = Transpose (n) y = Relu (t)"""
    constants = {"scales": np.float32([1, 1, 1, 0.6]), "shape": np.array([4, 16]), "w": weight}
    return graph("float[1,1,4,27] x", "float[16,4] y", nodes, **constants)


def quantized():
    rng = np.random.default_rng(0)
    nodes = """q = QuantizeLinear (x, s, z) d = DequantizeLinear (q, s, z)
               v = DequantizeLinear (w, s, z) m = MatMul (d, v)
               p = QuantizeLinear (m, s, z) e = DequantizeLinear (p, s, z) y = MatMul (e, f)"""
    constants = {
        "s": np.float32(0.1),
        "z": np.int8(0),
        "w": rng.integers(-100, 100, (16, 16)).astype("int8"),
        "f": np.ones((16, 16), "float32"),
    }
    return graph("float[4,16] x", "float[4,16] y", nodes, **constants)


def test_nodes_of_an_importer_and_of_lowerings():
    found = explain(network())
    fixes = {one.fix: one for one in found.fixes}
    resize = fixes["onnx-resize"]
    assert (resize.times, resize.by, resize.nodes) == (1, ["import"], ["Resize i"])
    assert resize.plain_tvm["wrong result"].startswith("Resize to fractional extents")
    assert resize.does
    product = fixes["matmul-legalize"]
    assert (product.times, product.by, product.nodes) == (1, ["lowering"], ["MatMul m"])
    assert fixes["comparison-legalize"].nodes == ["Relu y"]
    assert (
        NotDone(
            "fusion",
            "Transpose t, Relu y",
            "not fused with MatMul m, Neg n: TVM fuses only elementwise operators after it",
        )
        in found.not_done
    )


def test_a_fix_that_is_off_is_not_listed(monkeypatch):
    monkeypatch.setenv("TVM_FIXES_DISABLE", "onnx-resize")
    assert "onnx-resize" not in [one.fix for one in explain(network()).fixes]


def test_nodes_that_a_pass_changes_and_products_in_float():
    found = explain(quantized())
    [fused] = [one for one in found.fixes if one.fix == "fuse-quantized"]
    assert fused.by == ["FuseQuantized"]
    assert {"MatMul m", "QuantizeLinear p"} <= set(fused.nodes)
    assert "MatMul y" not in fused.nodes
    assert fused.times == len(fused.nodes)
    expected = NotDone("product in integers", "MatMul y", "the weight is not quantized")
    assert expected in found.not_done


def test_layouts_and_rules_of_operators():
    """A block of 16 divides the channels of all convolutions but the last."""
    nodes = """a = Conv (x, u) b = Conv (a, v) t = Transpose<perm = [0, 1, 3, 2]> (b)
               r = Relu (t) y = Conv (r, w)"""
    channels = {"u": (16, 3), "v": (32, 16), "w": (30, 32)}
    constants = {name: np.ones((*shape, 3, 3), "float32") for name, shape in channels.items()}
    model = graph("float[1,3,12,12] x", "float[1,30,6,6] y", nodes, **constants)
    found = explain(model, target=AVX512)
    fixes = {one.fix: one for one in found.fixes}
    rule = fixes["permute-dims-infer-layout"]
    assert (rule.times, rule.by, rule.nodes) == (1, ["operator rule"], ["Transpose t"])
    assert fixes["conv-infer-layout"].nodes == ["Conv a", "Conv b", "Conv y"]
    assert fixes["choose-layout"].by == ["ChooseLayout"]
    kept = NotDone("layout NCHW16c", "Conv y", "the block must divide its channels")
    assert kept in found.not_done
    found = explain(model, target="llvm", layout="NCHW16c")
    assert kept in found.not_done
    assert "choose-layout" not in [one.fix for one in found.fixes]


@pytest.mark.parametrize(
    "nodes, target, what, reason",
    [
        ("y = Conv (x, v)", AVX512, "layout NCHW16c", "there is only one convolution"),
        (
            "c = Conv (x, v) y = Conv (c, v)",
            AVX512,
            "layout NCHW16c",
            "no convolution is converted: the block must divide its channels",
        ),
        (
            "c = Conv (x, v) i = LayerNormalization (c, o, o) y = Conv (i, v)",
            AVX512,
            "layout NCHW16c",
            "relax.nn.layer_norm would be slower",
        ),
        ("y = Conv (x, v)", "llvm", "layout", "no other layout is faster on this target"),
    ],
)
def test_a_layout_that_is_not_chosen(nodes, target, what, reason):
    constants = {"v": np.ones((3, 3, 1, 1), "float32"), "o": np.ones(8, "float32")}
    model = graph("float[1,3,8,8] x", "float[1,3,8,8] y", nodes, **constants)
    [found] = [one for one in explain(model, target=target).not_done if "layout" in one.what]
    assert (found.what, found.where) == (what, "")
    assert found.reason.startswith(reason)


def test_a_constant_that_is_not_folded():
    nodes = "z = Expand (w, shape) y = Add (x, z)"
    constants = {"w": np.ones((1, 64), "float32"), "shape": np.array([512, 64])}
    found = explain(graph("float[512,64] x", "float[512,64] y", nodes, **constants), max_growth=0)
    [constant] = [one for one in found.not_done if one.what == "folded constant"]
    assert constant.where == "Expand z"
    assert "131072 bytes" in constant.reason


def test_the_report_keeps_the_explanation(tmp_path):
    model = tvm_fixes.compile(quantized(), compare=False, explain=True, output=tmp_path / "out")
    assert model.report.explanation.fixes and model.report.explanation.not_done
    assert Report.from_dict(model.report.to_dict()) == model.report
    loaded = tvm_fixes.CompiledModel.load(tmp_path / "out")
    assert loaded.report.explanation == model.report.explanation


def test_nothing_is_explained_unless_asked_for():
    model = tvm_fixes.compile(quantized(), compare=False)
    assert model.report.explanation is None
    assert model.report.fixes == sorted(one.fix for one in explain(quantized()).fixes)


def test_only_a_caller_that_collects_gets_what_is_not_done():
    decline("fusion", "a", "none")
    with ambient.collect() as found:
        decline("fusion", "b", "none")
    assert found == [NotDone("fusion", "b", "none")]


if __name__ == "__main__":
    tvm.testing.main()
