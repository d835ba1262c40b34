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
"""The example models, their way to ONNX and to channels-last, and the demo."""

import importlib
import json
from functools import cache

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import tvm.testing
from torch import nn

from examples import dcgan, demo, quantize
from examples._random import seeded, settle_batch_norm
from examples.export import to_onnx
from examples.relay_dcgan import to_relay
from helpers.grids import is_full
from tvm_fixes import relay
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.relay import from_relay
from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import stages
from tvm_fixes.relax.analysis import activation_transforms
from tvm_fixes.runtime.report import OutputComparison, Report

# The models that are exported to ONNX.
FROM_ONNX = list(demo.MODELS) if is_full() else ["dcgan", "superres"]


def factory(name):
    return importlib.import_module(f"examples.{name}").factory()


@cache
def program(name):
    return torch.export.export(*factory(name))


@cache
def onnx_model(name):
    return to_onnx(program(name))


@cache
def int8_model(name):
    return quantize.static(to_onnx(program(name)), *(x.numpy() for x in factory(name)[1]))


@cache
def expected(name):
    module, inputs = factory(name)
    with torch.no_grad():
        return module(*inputs).numpy()


@pytest.mark.parametrize("name", demo.MODELS)
def test_factories_are_seeded_and_leave_the_global_state_alone(name):
    state = torch.random.get_rng_state()
    module, inputs = factory(name)
    again, same_inputs = factory(name)
    assert torch.equal(state, torch.random.get_rng_state())
    assert not any(part.training for part in module.modules())
    for first, second in zip(inputs, same_inputs, strict=True):
        assert torch.equal(first, second)
    assert module.state_dict().keys() == again.state_dict().keys()
    for key, value in module.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key


@pytest.mark.parametrize("name", demo.MODELS)
def test_the_signal_does_not_vanish(name):
    # With a vanishing signal, every compiler would pass.
    assert 0.05 < expected(name).std() < 5


@pytest.mark.parametrize(
    "name", ["dcgan", "unet", "fcn", "superres"] if is_full() else ["dcgan", "superres"]
)
def test_batch_norm_statistics_show(name):
    module, inputs = factory(name)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
    with torch.no_grad():
        difference = np.abs(module(*inputs).numpy() - expected(name))
    assert difference.max() > 0.1


@pytest.mark.parametrize("name", FROM_ONNX)
def test_onnx_runtime_agrees_with_pytorch(name):
    _, inputs = factory(name)
    session = onnxruntime.InferenceSession(
        onnx_model(name).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {
        spec.name: value.numpy() for spec, value in zip(session.get_inputs(), inputs, strict=True)
    }
    (output,) = session.run(None, feeds)
    np.testing.assert_allclose(output, expected(name), rtol=1e-4, atol=1e-5)


def test_group_norm_is_one_onnx_operator():
    operators = {node.op_type for node in onnx_model("autoencoder_kl").graph.node}
    assert "GroupNormalization" in operators
    assert "InstanceNormalization" not in operators


@pytest.mark.parametrize(
    "name, source",
    [
        (name, source)
        for name in demo.MODELS
        for source in demo.sources_of(name, relay=True)
        if source != "onnx" or name in FROM_ONNX
    ],
)
def test_channels_last_needs_no_transform_but_those_at_the_ends_and_its_own(name, source):
    if source == "torch":
        mod = from_exported_program(program(name))
    elif source == "onnx":
        mod = from_onnx(onnx_model(name))
    elif source == "onnx-int8":
        mod = from_onnx(int8_model(name))
    else:
        text, params = to_relay(factory(name)[0])
        mod = from_relay(relay.parse(text), params)
    converted = stages(layout="NHWC").operators[-1](mod)
    assert len(activation_transforms(converted)) <= demo.MAX_TRANSFORMS[name]


def test_the_quantized_model_has_integers_of_8_bits_and_a_scale_per_channel():
    model = int8_model("superres")
    constants = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    dequantized = {n.output[0]: n for n in model.graph.node if n.op_type == "DequantizeLinear"}
    weights = [dequantized[n.input[1]].input for n in model.graph.node if n.op_type == "Conv"]
    assert len(weights) == 8
    for weight, scale, *_ in weights:
        assert constants[weight].dtype == "int8"
        assert constants[scale].shape == constants[weight].shape[:1]
    assert 0 < quantize.output_step(model) < np.ptp(expected("superres")) / 200
    assert quantize.output_step(onnx_model("superres")) == 0


def test_a_quantized_model_is_computed_in_integers_as_in_onnx_runtime(monkeypatch):
    monkeypatch.setattr(demo, "SOURCES", ("onnx-int8",))
    with demo.Watch(1) as watch:
        [row] = demo.compile_model("superres", watch)
    assert (row.source, row.layout, row.problem) == ("onnx-int8", None, "")
    assert row.report.reference.startswith("ONNX Runtime")
    assert row.report.max_abs_error < quantize.output_step(int8_model("superres")) * 1.01
    assert (row.report.integer_products, row.report.float_products) == (8, [])


def small_dcgan():
    with seeded(0):
        module = dcgan.Generator(width=4)
        settle_batch_norm(module, torch.randn(8, 100, 1, 1))
        return module, (torch.randn(1, 100, 1, 1),)


@pytest.mark.parametrize(
    "options, layout, sources",
    [
        ([], None, ["torch", "onnx"] if is_full() else ["torch"]),
        (
            ["--layout", "NHWC", "--relay"],
            "NHWC",
            ["torch", "onnx", "relay"] if is_full() else ["relay"],
        ),
    ],
)
def test_demo_as_json(options, layout, sources, monkeypatch, capsys):
    monkeypatch.setattr(dcgan, "factory", small_dcgan)
    monkeypatch.setattr(demo, "SOURCES", tuple(sources))
    status = demo.main(["dcgan", "--json", *options])
    rows = json.loads(capsys.readouterr().out)
    assert status == 0
    assert [(row["source"], row["layout"]) for row in rows] == [
        (source, layout) for source in sources
    ]
    assert all(row["report"]["equal"] for row in rows)
    assert all(row["compile_seconds"] > 0 for row in rows)
    for row in rows:
        took, reference_took = (row["report"][f"{x}latency_ms"] for x in ("", "reference_"))
        assert row["ratio"] == took / reference_took


def report(*, equal=True, transforms=1):
    output = OutputComparison(
        name="y",
        shape=[1, 4],
        dtype="float32",
        max_abs_error=0.0 if equal else 0.5,
        max_rel_error=0.0 if equal else 0.5,
        rtol=1e-4,
        atol=1e-5,
        equal=equal,
        problem="" if equal else "1 of 4 elements differ",
    )
    return Report(
        source="model",
        layout="NHWC",
        seconds={"import": 1.0, "reference": 4.0, "build": 2.0, "compare": 8.0},
        artifact_bytes=150,
        parameter_bytes=100,
        activation_transforms=transforms,
        reference="PyTorch",
        outputs=[output],
        latency_ms=1.0,
        reference_latency_ms=2.0,
    )


@pytest.mark.parametrize(
    "row, problem",
    [
        (demo.Row("dcgan", "torch", "NHWC", report()), ""),
        (demo.Row("dcgan", "torch", None, report(transforms=9)), ""),
        (demo.Row("dcgan", "torch", "NCHW", report(transforms=9)), ""),
        (
            demo.Row("dcgan", "torch", "NHWC", report(transforms=3)),
            "3 layout transforms left, expected at most 1",
        ),
        (demo.Row("dcgan", "onnx", "NCHW", report(equal=False)), "1 of 4 elements differ"),
        (demo.Row("dcgan", "onnx", "NCHW", error="no lowering for it"), "no lowering for it"),
    ],
)
def test_what_the_demo_accepts(row, problem, monkeypatch, capsys):
    assert row.problem == problem
    monkeypatch.setattr(demo, "compile_model", lambda *_, **__: iter([row]))
    assert demo.main(["dcgan"]) == (1 if problem else 0)
    captured = capsys.readouterr()
    assert row.model in captured.out
    assert problem in captured.err
    assert "\x1b" not in captured.out + captured.err


def test_forced_colours_do_not_make_a_log_a_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    row = demo.Row("dcgan", "torch", "NHWC", report())
    monkeypatch.setattr(
        demo, "compile_model", lambda _, watch, *__, **___: iter([watch.finish(row) or row])
    )
    assert demo.main(["dcgan"]) == 0
    captured = capsys.readouterr()
    assert captured.err == "dcgan from torch: equal\n"
    assert "\x1b[?25" not in captured.out  # hides and shows the cursor


def test_compile_seconds_leave_the_comparison_out():
    assert demo.Row("dcgan", "torch", None, report()).compile_seconds == 3.0


@pytest.mark.parametrize("layout", [None, "NHWC"])
def test_the_table_shows_layout_transforms_if_a_layout_is_requested(layout):
    rows = [
        demo.Row("dcgan", "torch", layout, report()),
        demo.Row("dcgan", "onnx", layout, error="x"),
    ]
    table = demo.render(rows)
    headers = [" ".join(column.header.split()) for column in table.columns]
    assert ("layout transforms" in headers) == (layout is not None)
    assert list(table.columns[headers.index("ratio")].cells) == ["0.50", "-"]


def test_an_unknown_model_is_wrong_use(capsys):
    with pytest.raises(SystemExit) as raised:
        demo.main(["resnet"])
    assert raised.value.code == 2
    assert "unknown model 'resnet'; expected one of dcgan, unet" in capsys.readouterr().err


if __name__ == "__main__":
    tvm.testing.main()
