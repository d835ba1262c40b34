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
"""NonMaxSuppression and RoiAlign, compared with ONNX Runtime."""

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.onnx_graphs import assert_rejected, imported_and_run, node_model, onnx_runtime
from helpers.relax_modules import cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

FIX_ID = "onnx-boxes"


def boxes() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    corners = rng.integers(0, 8, (2, 12, 2)) / 2
    sizes = rng.integers(1, 5, (2, 12, 2)) / 2
    scores = rng.permutation(2 * 3 * 12).reshape(2, 3, 12) / 72 - 0.25
    return {
        "boxes": np.concatenate([corners, corners + sizes], axis=2).astype("float32"),
        "scores": scores.astype("float32"),
    }


def nms(**constants: np.ndarray) -> onnx.ModelProto:
    outputs = {"y": ("int64", 2)}
    return node_model("NonMaxSuppression", boxes(), constants=constants, outputs=outputs)


@pytest.mark.parametrize("iou", (0.25, 0.5, 1.0))
def test_boxes_that_overlap_as_much_as_the_threshold(iou: float) -> None:
    model = nms(count=np.array([5]), iou=np.array([iou], "float32"))
    [got] = imported_and_run(from_onnx, model, *boxes().values())
    [expected] = onnx_runtime(model, *boxes().values())
    np.testing.assert_array_equal(sorted(got.tolist()), sorted(expected.tolist()))


def test_negative_scores() -> None:
    model = nms(count=np.array([12]), iou=np.array([0.9], "float32"))
    [got] = imported_and_run(from_onnx, model, *boxes().values())
    assert (boxes()["scores"][tuple(got[:, [0, 1, 2]].T)] < 0).any()


@pytest.mark.parametrize("most", (17, 80))
def test_more_boxes_than_a_block(most: int) -> None:
    """A box is compared with all chosen ones: of a grid, and of copies in reverse order."""
    steps = np.stack(np.meshgrid(np.arange(8), np.arange(5)), axis=-1).reshape(-1, 2) * 4
    corners = np.concatenate([steps, steps[::-1] + 0.5])
    given = {
        "boxes": np.concatenate([corners, corners + 3], axis=1)[None].astype("float32"),
        "scores": np.linspace(1, 0.1, 80, dtype="float32")[None, None],
    }
    constants = {"count": np.array([most]), "iou": np.float32([0.3])}
    outputs = {"y": ("int64", 2)}
    model = node_model("NonMaxSuppression", given, constants=constants, outputs=outputs)
    [got] = imported_and_run(from_onnx, model, *given.values())
    [expected] = onnx_runtime(model, *given.values())
    np.testing.assert_array_equal(got, expected)
    assert len(got) == min(most, 40)


@pytest.mark.parametrize("by_centers", (0, 1))
def test_computed_thresholds(by_centers: int) -> None:
    """One library, for any thresholds, number of boxes and extents; some scores are equal."""
    operands = {"count": np.array([5]), "iou": np.float32([0.5]), "score": np.float32([0.1])}
    model = node_model(
        "NonMaxSuppression",
        boxes() | operands,
        {"center_point_box": by_centers},
        shapes={"boxes": ("n", "m", 4), "scores": ("n", 3, "m")},
        outputs={"y": ("int64", 2)},
    )
    mod = from_onnx(model)
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())
    for most, iou, score, rows in (
        (5, 0.5, 0.1, 12),
        (0, 0.5, 0, 12),
        (2, 0, -1, 7),
        (9, 0.25, 9, 5),
    ):
        given = {name: value[..., :rows, :] for name, value in boxes().items() if name == "boxes"}
        given["scores"] = boxes()["scores"][..., :rows].round(1)
        given |= {"count": np.array([most]), "iou": np.float32([iou]), "score": np.float32([score])}
        got = vm["main"](*map(tvm.runtime.tensor, given.values())).numpy()
        [expected] = onnx_runtime(model, *given.values())
        np.testing.assert_array_equal(got, expected)


def test_operands_that_do_not_agree_are_rejected() -> None:
    inputs = boxes() | {"count": np.array([5]), "iou": np.float32([0.5, 0.6])}
    model = node_model("NonMaxSuppression", inputs, outputs={"y": ("int64", 2)})
    message = "NonMaxSuppression 'node': shape of iou_threshold is [2]; expected one element"
    assert_rejected(from_onnx, model, message)
    inputs = boxes() | {"scores": np.zeros((2, 3, 11), "float32")}
    model = node_model("NonMaxSuppression", inputs, outputs={"y": ("int64", 2)})
    assert_rejected(from_onnx, model, "shape of boxes is [2, 12, 4]; expected 11 in axis 1")


def roi_align(**attributes: object):
    rng = np.random.default_rng(1)
    corners = rng.uniform(0, 20, (4, 2))
    inputs = {
        "x": rng.standard_normal((2, 3, 8, 9)).astype("float32"),
        "rois": np.concatenate([corners, corners + rng.uniform(1, 20, (4, 2))], axis=1).astype(
            "float32"
        ),
        "batch": np.array([0, 1, 1, 0]),
    }
    attributes = {"output_height": 3, "output_width": 2, "spatial_scale": 0.25} | attributes
    return node_model("RoiAlign", inputs, attributes), inputs


@pytest.mark.parametrize("sampling", (0, 2))
@pytest.mark.parametrize("mode", ("half_pixel", "output_half_pixel"))
def test_roi_align(sampling: int, mode: str) -> None:
    model, inputs = roi_align(sampling_ratio=sampling, coordinate_transformation_mode=mode)
    [got] = imported_and_run(from_onnx, model, *inputs.values())
    [expected] = onnx_runtime(model, *inputs.values())
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_largest_samples_are_rejected() -> None:
    model, _ = roi_align(mode="max")
    assert_rejected(from_onnx, model, "RoiAlign 'node': attribute mode is max; expected avg")


def test_disabled_fix_uses_stock(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = nms(count=np.array([5]), iou=np.array([0.5], "float32")), None
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {FIX_ID}
    with pytest.raises(ValueError):
        tvm.ir.assert_structural_equal(ours, tvm_onnx.from_onnx(model))
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, FIX_ID)
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


if __name__ == "__main__":
    tvm.testing.main()
