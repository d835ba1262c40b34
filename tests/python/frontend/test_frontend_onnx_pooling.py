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
"""Pooling, compared with ONNX Runtime."""

from itertools import product

import numpy as np
import pytest
import tvm
import tvm.testing
from tvm.relax.frontend import onnx as tvm_onnx

from helpers import grids
from helpers.onnx_graphs import (
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    node_model,
    normal,
    onnx_runtime,
    rejected_by_onnx_runtime,
)
from helpers.relax_modules import run
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.lowering import pipeline
from tvm_fixes.support import switches

FIX_ID = "onnx-pooling"


def pool(operator: str, rank: int = 2, **attributes: object):
    x = normal(2, 3, *(9, 8, 7)[:rank])
    return node_model(operator, {"x": x}, attributes, opset=22), {"x": x}


PADDINGS = (
    {"auto_pad": "SAME_UPPER"},
    {"auto_pad": "SAME_LOWER"},
    {"auto_pad": "VALID"},
    {"pads": [0, 1, 1, 0]},
    {"pads": [1, 1, 1, 1], "ceil_mode": 1},
    {"pads": [1, 0, 0, 1], "ceil_mode": 1},
)

GRID = [
    (operator, {"kernel_shape": list(kernel), "strides": list(strides), **padding, **more})
    for operator, mores in (
        ("MaxPool", ({}, {"dilations": [2, 1]})),
        ("AveragePool", ({}, {"count_include_pad": 1}, {"dilations": [2, 1]})),
        ("LpPool", ({}, {"p": 3}, {"dilations": [1, 2]})),
    )
    for more in mores
    for kernel, strides, padding in product(
        ((3, 2), (2, 3), (1, 1)), ((1, 1), (2, 3), (3, 2)), PADDINGS
    )
    # ONNX Runtime computes extents other than ONNX's here: it pads as for a dilation of 1.
    if not (operator == "AveragePool" and "dilations" in more and "auto_pad" in padding)
]


def test_windows() -> None:
    cases = {str(index): pool(op, **attributes) for index, (op, attributes) in enumerate(GRID)}
    sampled = dict(grids.sample(list(cases.items()), 40))
    chosen = {
        name: (model, inputs)
        for name, (model, inputs) in sampled.items()
        if not rejected_by_onnx_runtime(model, *inputs.values())
    }
    assert len(chosen) > len(sampled) / 2
    assert_as_onnx_runtime(from_onnx, chosen, 1e-5)


@pytest.mark.parametrize("order", (0, 1))
def test_indices(order: int) -> None:
    cases = {}
    for rank in (1, 2, 3):
        x = normal(2, 3, *(7, 6, 5)[:rank])
        outputs = {"y": ("float32", rank + 2), "indices": ("int64", rank + 2)}
        attributes = {
            "kernel_shape": [3] * rank,
            "strides": [2] * rank,
            "pads": [1] * (2 * rank),
            "storage_order": order,
        }
        model = node_model("MaxPool", {"x": x}, attributes, outputs=outputs)
        cases[f"{rank}-D"] = model, {"x": x}
    assert_as_onnx_runtime(from_onnx, cases)


def test_symbolic_extents() -> None:
    x = normal(2, 3, 8, 6)
    shapes = {"x": ("n", 3, "h", "w")}
    attributes = {"kernel_shape": [3, 3], "auto_pad": "SAME_LOWER"}
    model = node_model("MaxPool", {"x": x}, attributes, shapes=shapes)
    [got] = imported_and_run(from_onnx, model, x)
    np.testing.assert_array_equal(got, onnx_runtime(model, x)[0])


SAME = "SAME_UPPER", "SAME_LOWER"
WINDOWED = "MaxPool", "AveragePool", "LpPool", "Conv"


@pytest.mark.parametrize(
    ("operator", "auto_pad"),
    list(product(WINDOWED, SAME))
    if grids.is_full()
    else list(zip(WINDOWED, SAME * 2, strict=True)),
)
def test_same_padding_of_symbolic_extents(operator: str, auto_pad: str) -> None:
    """Whether the padding before the data depends on the extent depends on the stride."""
    sizes = [normal(2, 2, h, w) for h, w in ((8, 6), (7, 8), (5, 5), (1, 2))]
    for kernel, strides in (([3, 2], [2, 2]), ([2, 5], [1, 3])):
        attributes = {"kernel_shape": kernel, "strides": strides, "auto_pad": auto_pad}
        constants = {"w": normal(3, 2, *kernel)} if operator == "Conv" else {}
        for more in ({}, {"count_include_pad": 1})[: 2 if operator == "AveragePool" else 1]:
            model = node_model(
                operator,
                {"x": sizes[0]},
                attributes | more,
                constants=constants,
                shapes={"x": ("n", 2, "h", "w")},
                opset=19,
            )
            runs = [[x] for x in sizes]
            assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-5, pipeline=pipeline())


def test_windows_that_exceed_the_data() -> None:
    """ONNX Runtime rounds the number of windows towards 0: one window for -1 / 2 more steps."""
    cases = {}
    for operator, extent, kernel, stride, more in product(
        ("MaxPool", "AveragePool", "LpPool"),
        (1, 2, 3),
        (4, 5),
        (1, 2, 3, 4),
        ({}, {"dilations": [2]}, {"pads": [1, 0]}, {"ceil_mode": 1}, {"count_include_pad": 1}),
    ):
        if "count_include_pad" in more and operator != "AveragePool":
            continue
        attributes = {"kernel_shape": [kernel], "strides": [stride], **more}
        x = normal(1, 2, extent)
        model = node_model(operator, {"x": x}, attributes, opset=22)
        if not rejected_by_onnx_runtime(model, x):
            cases[f"{operator} of {extent} with {attributes}"] = model, {"x": x}
        else:
            assert_rejected(from_onnx, model, "elements on spatial axis 0")
    assert len(cases) > 100
    assert_as_onnx_runtime(from_onnx, dict(grids.sample(list(cases.items()), 60)), rtol=1e-5)


def test_averages_over_windows_that_exceed_the_data_divide_by_the_kernel() -> None:
    """With padding included, up to opset 18."""
    attributes = {"kernel_shape": [5], "strides": [4], "count_include_pad": 1, "pads": [1, 0]}
    x = normal(1, 2, 2)
    models = {
        opset: node_model("AveragePool", {"x": x}, attributes, opset=opset) for opset in (18, 19)
    }
    for model in models.values():
        assert_as_onnx_runtime(from_onnx, {"y": (model, {"x": x})}, rtol=1e-6)


def test_a_kernel_longer_than_the_data() -> None:
    x = normal(1, 1, 8)
    constants = {"w": normal(2, 1, 5)}
    shapes = {"x": (1, 1, "n")}
    model = node_model("Conv", {"x": x}, {"strides": [2]}, constants=constants, shapes=shapes)
    runs = [[normal(1, 1, n)] for n in (8, 5, 4, 1)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-5)
    model = node_model("Conv", {"x": normal(1, 1, 4)}, constants=constants)
    assert_rejected(from_onnx, model, "expected at least 5 elements on spatial axis 0")


@pytest.mark.parametrize("operator", ("MaxPool", "AveragePool", "LpPool"))
def test_symbolic_extents_that_are_rounded_up(operator: str) -> None:
    shapes = {"x": ("n", 3, "h", "w")}
    for kernel, strides, pads in (([2, 3], [3, 2], [1, 0, 0, 1]), ([3, 1], [2, 3], [0, 0, 1, 0])):
        attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1}
        sizes = [normal(2, 3, h, w) for h, w in ((8, 6), (7, 8), (3, 4))]
        model = node_model(operator, {"x": sizes[0]}, attributes, opset=22, shapes=shapes)
        for x in sizes:
            [got] = imported_and_run(from_onnx, model, x)
            np.testing.assert_allclose(got, onnx_runtime(model, x)[0], rtol=1e-5, atol=1e-6)
    attributes = {"kernel_shape": [2, 2], "pads": [0, 0, 2, 2], "ceil_mode": 1}
    model = node_model("LpPool", {"x": normal(1, 1, 4, 4)}, attributes, opset=22, shapes=shapes)
    assert_rejected(from_onnx, model, "expected a static shape for ceil_mode with pads as large")


def unpool(pads: list[int], **constants: np.ndarray):
    inputs = {"x": normal(1, 1, 2, 2), "indices": np.array([1, 3, 5, 8]).reshape(1, 1, 2, 2)}
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": pads}
    return node_model("MaxUnpool", inputs, attributes, constants=constants), inputs


@pytest.mark.parametrize("operator", ("MaxPool", "AveragePool", "LpPool"))
def test_extents_of_a_negative_number_of_windows_are_rejected(operator: str) -> None:
    x = normal(2, 3, 3)
    attributes = {"kernel_shape": [5], "strides": [2]}
    model = node_model(operator, {"x": x}, attributes, shapes={"x": ("n", 3, "h")})
    [got] = imported_and_run(from_onnx, model, x)
    assert got.shape == (2, 3, 0)
    for extent in (1, 4):  # for 4, ONNX Runtime computes a part of a window
        with pytest.raises(RuntimeError, match="match_cast error"):
            imported_and_run(from_onnx, model, normal(0, 3, extent))
    model = node_model(operator, {"x": x[..., :1]}, attributes)
    assert_rejected(from_onnx, model, "expected at least 2 elements on spatial axis 0")


def test_errors_at_run_time_name_the_node() -> None:
    x = normal(1, 1, 8)
    attributes = {"kernel_shape": [4], "strides": [2]}
    model = node_model("MaxPool", {"x": x}, attributes, shapes={"x": (1, 1, "n")})
    message = (
        "MaxPool 'node': shape of X: expected at least 4 elements on spatial axis 0; .*match_c"
    )
    with pytest.raises(RuntimeError, match=message):
        run(from_onnx(model), x[..., :3], pipeline=pipeline())


def test_the_last_window_of_valid_padding() -> None:
    """With ceil_mode, ONNX Runtime also rounds up for VALID padding."""
    attributes = {"auto_pad": "VALID", "ceil_mode": 1, "kernel_shape": [3], "strides": [2]}
    small = np.abs(normal(2, 3, 2))
    cases = {}
    for operator in ("MaxPool", "AveragePool", "LpPool"):
        cases[operator] = pool(operator, rank=1, **attributes)
        model = node_model(operator, {"x": small}, attributes, opset=22)
        cases[f"{operator} of less than a window"] = model, {"x": small}
    assert_as_onnx_runtime(from_onnx, cases, rtol=1e-6)


def test_max_unpool() -> None:
    cases = {
        "plain": unpool([0, 0, 0, 0]),
        "another pad for each axis": unpool([0, 1, 0, 0]),
    }
    assert_as_onnx_runtime(from_onnx, cases)


def test_parts_of_a_symbolic_extent() -> None:
    """The padding before the data is a separate kernel, parallel depending on the extent."""
    x = np.random.default_rng(0).standard_normal((2, 3, 7, 8)).astype("float32")
    attributes = {"kernel_shape": [1, 2], "pads": [0, 1, 0, 0], "strides": [1, 3]}
    model = node_model("AveragePool", {"x": x}, attributes, shapes={"x": [2, 3, 7, "m"]})
    [expected] = onnx_runtime(model, x)
    got = run(from_onnx(model), x, pipeline=pipeline())
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_max_unpool_to_a_larger_shape() -> None:
    """Indices refer to the smaller shape by the ONNX specification, unlike in ONNX Runtime."""
    model, inputs = unpool([0, 0, 0, 0], shape=np.array([1, 1, 5, 6]))
    [got] = imported_and_run(from_onnx, model, *inputs.values())
    expected = np.zeros((1, 1, 4, 4), "float32")
    expected.ravel()[inputs["indices"].ravel()] = inputs["x"].ravel()
    np.testing.assert_array_equal(got, np.pad(expected, ((0, 0), (0, 0), (0, 1), (0, 2))))


def test_wrong_lengths_are_rejected() -> None:
    model, _ = pool("MaxPool", kernel_shape=[3, 3], strides=[1])
    message = "MaxPool 'node': attribute strides is [1]; expected 2 elements of at least 1"
    assert_rejected(from_onnx, model, message)


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = pool("MaxPool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER")
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
