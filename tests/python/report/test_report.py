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
"""tvm_fixes.debug.report: its values and page; test_report_page.py opens pages in a browser."""

import base64
import errno
import hashlib
import json
import math
import os
import re
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm.testing
from onnx import parser

import tvm_fixes
from helpers.growth import assert_linear
from helpers.onnx_graphs import branches
from helpers.reports import data_of, layered
from tvm_fixes.debug import report
from tvm_fixes.errors import ArtifactError, CompileError, UsageError
from tvm_fixes.report import reporting
from tvm_fixes.runtime.inspection import inspect
from tvm_fixes.runtime.report import DIFFERENT, EQUAL

MAX_BYTES = 3_000_000


def network(first: str = "c", steps: str = "y = MatMul(c, p)") -> onnx.ModelProto:
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        network (float[1, 4, 8, 8] x) => (float[1, 4, 8, 8] y) {{
            {first} = Conv<pads = [1, 1, 1, 1]>(x, w)
            p = MaxPool<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>({first})
            {steps}
        }}"""
    )
    weight = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype("float32")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return model


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "out"
    tvm_fixes.compile(network(), compare=False).save(path)
    return path


@pytest.fixture(scope="module")
def whole(artifact):
    """A report with a profile and a comparison."""
    return report(artifact, original=network(), seconds=0)


def test_the_graph_has_what_the_other_tools_find(artifact, whole):
    graph, kernels = whole.graph, whole.manifest.kernels
    assert whole.has_edges and len(graph) == len(kernels.calls) >= 3
    assert sum(call["seconds"] for call in graph) == whole.profile.kernel_seconds
    for call, known, timed in zip(graph, kernels.calls, whole.profile.kernels, strict=True):
        assert (call["kernel"], call["reads"]) == (known.kernel, known.reads)
        assert (call["seconds"], call["nbytes"]) == (timed.seconds, timed.nbytes)
        assert call["share_of_limits"] == whole.profile.share_of_limits(timed)
        assert call["reference_seconds"] is not None and call["matched_with"], "ONNX Runtime's time"
        assert timed.nbytes == known.nbytes, "the sizes of the types are those of the tensors"
    errors = {v.node.name: v.result.max_rel_error for v in whole.comparison.values}
    (conv,) = [call for call in graph if "Conv" in [n["operator"] for n in call["nodes"]]]
    assert conv["error"] == max(errors[node["name"]] for node in conv["nodes"])
    assert conv["verdict"] == EQUAL and conv["layout"].startswith("NCHW")
    assert whole.inspection == inspect(artifact)


def test_the_page_has_the_values_of_the_json(artifact, whole, tmp_path):
    values = json.loads(whole.to_json())
    assert values["comparison"]["equal"] and values["profile"]["attributed"] == 1
    assert values["inspection"]["constant_bytes"] == whole.inspection.constant_bytes
    page = tmp_path / "page.html"
    whole.save(page)
    assert data_of(page.read_text()) == values


def test_a_compiled_model_needs_no_directory(tmp_path):
    model = tvm_fixes.compile(network(), compare=False)
    found = report(model, tmp_path / "page.html", measure=False)
    assert found.inspection.nbytes > 0 and found.inspection.path == found.name
    assert found.profile is None and found.no_profile == "not requested"
    assert all(call["seconds"] is None and call["nbytes"] for call in found.graph)
    assert data_of((tmp_path / "page.html").read_text())["profile"] is None


def test_only_scripts_and_styles_of_the_page_run():
    page = layered(5).to_html()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy"\s+content="(.*?)"', page)
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert "{{" not in page and not re.search(r"\b(?:src|href)=\"(?!data:)", page)


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028\ud800\u202eé"


def test_no_name_of_the_model_is_html():
    page = layered(5, lambda name: f"{name}{HOSTILE}").to_html()
    assert re.sub(r'id="data">.*?</script>', "", page) == re.sub(
        r'id="data">.*?</script>', "", layered(5).to_html()
    )
    assert data_of(page)["name"] == f"layered.onnx{HOSTILE}"
    assert page.encode("utf-8"), "a lone surrogate is not written as it is"


def test_a_page_of_5000_kernels_with_long_names_is_small():
    assert len(layered(20).to_html()) < 100_000
    long = layered(5000, lambda name: f"model.encoder.layers.block.attention.{name}" * 4)
    assert len(long.to_html()) < MAX_BYTES


def test_the_time_grows_linearly():
    seconds = {}
    for count in (250, 500, 1000, 2000):
        found = layered(count)
        start = time.process_time()
        found.to_html()
        seconds[count] = time.process_time() - start
    assert_linear(seconds, factor=5, slack=0.002)


def without_flow(found):
    calls = tuple(replace(call, reads=None) for call in found.manifest.kernels.calls)
    kernels = replace(found.manifest.kernels, calls=calls)
    return replace(found, manifest=replace(found.manifest, kernels=kernels))


def test_an_artifact_of_an_earlier_version_has_no_edges():
    found = without_flow(layered(20))
    values = data_of(found.to_html())
    assert not values["has_edges"] and all(call["reads"] is None for call in values["graph"])
    order = [(call["column"], call["y"]) for call in values["graph"]]
    assert order == sorted(order)


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"target": {"kind": "cuda", "arch": "sm_90"}}, "only models for a CPU"),
        ({"triple": "sparc-linux-gnu"}, "it is for sparc"),
    ],
)
def test_a_model_for_another_machine_is_not_measured(artifact, changes, reason, monkeypatch):
    read = reporting.read_manifest
    monkeypatch.setattr(reporting, "read_manifest", lambda path: replace(read(path), **changes))
    found = report(artifact)
    assert found.profile is None and reason in found.no_profile
    assert len(found.graph) == len(found.manifest.kernels.calls)


def test_in_a_branch_only_kernels_with_one_call_have_a_time():
    found = report(tvm_fixes.compile(branches(), compare=False), seconds=0)
    names = [call["kernel"] for call in found.graph]
    run = {kernel.kernel for kernel in found.profile.kernels}
    assert any(names.count(name) == 1 and name in run for name in names)
    for call in found.graph:
        is_known = names.count(call["kernel"]) == 1 and call["kernel"] in run
        assert (call["seconds"] is not None) == is_known


def test_the_runs_of_a_loop_are_added():
    found = layered(3)
    times = [replace(found.profile.kernels[0], call=1, seconds=s, nbytes=100) for s in (2.0, 3.0)]
    profile = replace(found.profile, kernels=times, is_exact=False, reference=None)
    looped = replace(found, profile=profile)
    assert [call["seconds"] for call in looped.graph] == [None, 5.0, None]
    assert looped.graph[1]["nbytes"] == 200 and looped.graph[1]["runs"] == 2


def test_a_difference_without_an_error_is_a_difference():
    found = layered(2)
    first, second = found.comparison.values
    unlike = replace(first.result, max_rel_error=None, equal=False, problem="NaN")
    values = [replace(first, result=unlike), second]
    differs = replace(found, comparison=replace(found.comparison, values=values))
    assert [(c["error"], c["verdict"]) for c in differs.graph] == [
        (None, DIFFERENT),
        (second.result.max_rel_error, EQUAL),
    ]


def test_json_has_no_nan():
    found = layered(2)
    result = replace(found.comparison.values[0].result, max_abs_error=math.inf, rtol=math.nan)
    value = replace(found.comparison.values[0], result=result)
    found = replace(found, comparison=replace(found.comparison, values=[value]))

    def reject(constant):
        raise AssertionError(constant)

    values = json.loads(found.to_json(), parse_constant=reject)
    assert values["comparison"]["values"][0]["result"]["max_abs_error"] is None
    assert data_of(found.to_html()) == values


@pytest.mark.parametrize(
    "other, problem",
    [
        (network(first="other", steps="y = MatMul(other, p)"), None),
        (parser.parse_model(onnx.printer.to_text(network()).replace("x", "z")), "inputs x, got z"),
    ],
)
def test_another_model_is_rejected(artifact, other, problem):
    if problem is None:
        for node in other.graph.node:
            node.name = f"other_{node.op_type}"
        problem = "they share no node"
    with pytest.raises(UsageError, match=f"is not the model of the artifact.*{problem}"):
        report(artifact, original=other, measure=False)


def test_what_is_not_an_artifact_is_rejected(artifact, tmp_path):
    with pytest.raises(UsageError, match="no such directory"):
        report(tmp_path / "missing")
    with pytest.raises(UsageError, match="not a directory"):
        report(artifact / "model.so")
    with pytest.raises(ArtifactError, match="not an artifact"):
        report(tmp_path)


@pytest.mark.parametrize(
    "path, problem",
    [
        ("", "the name of the output file is empty"),
        ("missing/page.html", "missing is not a directory"),
        (".", "not a regular file"),
        (os.devnull, "not a regular file"),
    ],
)
def test_the_destination_is_checked_first(path, problem, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=problem):
        report("not looked at", path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_page(tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("old")

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(CompileError, match=r"page\.html: cannot write: No space left"):
        layered(2).save(page)
    monkeypatch.undo()
    assert page.read_text() == "old" and list(tmp_path.iterdir()) == [page]


def test_a_link_to_the_page_is_kept(tmp_path):
    page, link = tmp_path / "page.html", tmp_path / "link.html"
    page.write_text("old")
    link.symlink_to(page)
    layered(2).save(link)
    assert link.is_symlink() and data_of(page.read_text())["name"] == "layered.onnx"


if __name__ == "__main__":
    tvm.testing.main()
