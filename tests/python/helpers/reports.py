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
"""Reports of models of any size, without compiling any."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from typing import Any

from tvm_fixes.relax.kernel_calls import KernelCall, KernelCalls
from tvm_fixes.relax.source_nodes import SourceNode
from tvm_fixes.report.layer_comparison import LayerComparison, ValueComparison
from tvm_fixes.report.profiling import KernelTime, Limits, Profile
from tvm_fixes.report.reference_times import Match, ReferenceProfile
from tvm_fixes.report.reporting import ModelReport
from tvm_fixes.runtime.inspection import Constant, Inspection
from tvm_fixes.runtime.manifest import Manifest, TensorSpec
from tvm_fixes.runtime.report import OutputComparison, Report

OPERATORS = ("aten.conv2d.default", "aten.matmul.default", "aten.add.Tensor", "aten.softmax.int")


def layered(number: int, name: Callable[[str], str] = str) -> ModelReport:
    """The report of a model of `number` kernels: layers with branches and skipped connections.

    Parameters
    ----------
    number : int
    name : callable
        Changes each name and text of the model.
    """
    calls = [_call(at, name) for at in range(number)]
    nodes = tuple(_node(at, name) for at in range(number))
    flops = {call.kernel: 100.0 * (call.nbytes or 0) for call in calls}
    # Times, bytes and errors are in different orders.
    times = [
        KernelTime(call.kernel, (node,), 1e-6 * (1 + 7 * at % 101), call.nbytes or 0, 1e6, at)
        for at, (call, node) in enumerate(zip(calls, nodes, strict=True))
    ]
    errors = [1e-8 * (1 + 13 * at % 107) for at in range(number)]
    values = [
        ValueComparison(node, _output(name(f"value{at}"), error), 0, 0, 0, 0)
        for at, (node, error) in enumerate(zip(nodes, errors, strict=True))
    ]
    output = _output(name("y"), 1e-6)
    compiled = Report(
        name("layered.onnx"),
        "NCHW",
        {"import": 1.0},
        10_000_000,
        9_000_000,
        fixes=[name("a-fix")],
        warnings=[name("a warning")],
        reference=name("ONNX Runtime"),
        outputs=[output],
    )
    manifest = Manifest(
        (TensorSpec(name("x"), (1, 3, 8, 8), "float32"),),
        (TensorSpec(name("y"), (1, 8), "float32"),),
        {},
        {"kind": "llvm", "mcpu": "skylake-avx512"},
        "x86_64-linux-gnu",
        [],
        {"apache-tvm": name("0.27.0")},
        "0" * 64,
        10_000_000,
        kernels=KernelCalls(nodes, tuple(calls), flops),
        report=compiled,
    )
    constants = tuple(
        Constant(at, "tensor", "float32", (8, 8), "model.so", 0, 256 + at, (name(f"weight{at}"),))
        for at in range(number // 2)
    )
    total = sum(time.seconds for time in times)
    # The first two kernels share a time.
    matches = (Match((0, 1), (), "Gemm", 5e-4), Match((2,), (), "Softmax", 4e-4))
    reference = ReferenceProfile(
        name("ONNX Runtime 1.31.1"), total, total, matches if number > 2 else (), ()
    )
    return ModelReport(
        name("layered.onnx"),
        manifest,
        Inspection("out", {"model.so": 10_000_000}, (), (), constants, 9_000_000),
        Profile(name("layered.onnx"), total, times, {}, 3, True, Limits(1e11, 1e10), reference),
        "",
        LayerComparison(name("layered.onnx"), name("ONNX Runtime"), [output], values),
    )


def data_of(page: str) -> dict[str, Any]:
    """The values embedded in a page."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">(.*?)</script>', page)
    values: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return values


def _call(at: int, name: Callable[[str], str]) -> KernelCall:
    step = at % 10
    reads = {0: [at - 1], 3: [at - 2], 4: [at - 1, at - 2], 9: [at - 1, at - 5]}
    tensor = "float32 (1, 64, 56, 56)"
    return KernelCall(
        name(f"fused_kernel{at % 40}"),
        (at,),
        tuple(sorted(read for read in reads.get(step, [at - 1]) if read >= 0)),
        (tensor, "float32 (64, 64, 3, 3)"),
        (tensor,),
        1000 * (1 + 3 * at % 97),
        ("NCHW", "NHWC")[at // 4 % 2] if at % len(OPERATORS) == 0 else "",
    )


def _node(at: int, name: Callable[[str], str]) -> SourceNode:
    operator = OPERATORS[at % len(OPERATORS)]
    return SourceNode(name(f"node{at}"), name(operator), name(f"model.layers.{at // 10}.part{at}"))


def _output(name: str, error: float) -> OutputComparison:
    return OutputComparison(name, [1, 64], "float32", error, error, 1e-4, 1e-5, True)
