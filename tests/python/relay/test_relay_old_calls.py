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
"""Calls as older versions of TVM wrote them, and as both readers return them."""

import numpy as np
import pytest
import tvm.testing
import tvm_ffi

from helpers.relay_json import SavedGraph
from tvm_fixes import relay
from tvm_fixes.errors import RelayError

QNN_06 = "lhs_zero_point=1, lhs_scale=0.5f, rhs_zero_point=2, rhs_scale=0.25f"
RESIZE = "image.resize2d(%x, size=[4, 6]"

# The same calls in the text of an older version, and of TVM 0.19.
CALLS = {
    "quantize": (
        'qnn.quantize(%x, out_dtype="uint8", output_zero_point=3, output_scale=0.5f)',
        'qnn.quantize(%x, 0.5f, 3, out_dtype="uint8")',
    ),
    "dequantize": (
        "qnn.dequantize(%x, input_zero_point=3, input_scale=0.5f)",
        "qnn.dequantize(%x, 0.5f, 3)",
    ),
    "requantize": (
        "qnn.requantize(%x, input_scale=0.5f, input_zero_point=3, output_scale=1f,"
        ' output_zero_point=0, rounding="TONEAREST", out_dtype="int8")',
        'qnn.requantize(%x, 0.5f, 3, 1f, 0, rounding="TONEAREST", out_dtype="int8")',
    ),
    "qnn.conv2d": (
        "qnn.conv2d(%x, %y, channels=2, kernel_size=[1, 1], input_zero_point=3,"
        ' kernel_zero_point=4, input_scale=0.5f, kernel_scale=0.25f, out_dtype="int32")',
        'qnn.conv2d(%x, %y, 3, 4, 0.5f, 0.25f, channels=2, kernel_size=[1, 1], out_dtype="int32")',
    ),
    "qnn.dense": (
        "qnn.dense(%x, %y, units=2, input_zero_point=3, kernel_zero_point=4, input_scale=0.5f,"
        ' kernel_scale=0.25f, out_dtype="int32")',
        'qnn.dense(%x, %y, 3, 4, 0.5f, 0.25f, units=2, out_dtype="int32")',
    ),
    "qnn.add": (
        f"qnn.add(%x, %y, {QNN_06}, output_zero_point=3, output_scale=2f)",
        "qnn.add(%x, %y, 0.5f, 1, 0.25f, 2, 2f, 3)",
    ),
    "qnn.concatenate": (
        "qnn.concatenate((%x, %y), input_scales=[0.5f, 1f], input_zero_points=[1, 2],"
        " output_zero_point=3, output_scale=2f, axis=1)",
        "qnn.concatenate((%x, %y), (0.5f, 1f), (1, 2), 2f, 3, axis=1)",
    ),
    "qnn.leaky_relu": (
        "qnn.leaky_relu(%x, 0.5f, 1, alpha=0.1f)",
        "qnn.leaky_relu(%x, 0.5f, 1, 0.5f, 1, alpha=0.1f)",
    ),
    "get_valid_counts": (
        "vision.get_valid_counts(%x, score_threshold=0.5f, id_index=-1)",
        "vision.get_valid_counts(%x, 0.5f, id_index=-1)",
    ),
    "get_valid_counts, default": (
        "vision.get_valid_counts(%x)",
        "vision.get_valid_counts(%x, 0f)",
    ),
    "non_max_suppression": (
        "vision.non_max_suppression(%x, %y, %y, 3, iou_threshold=0.25f, top_k=2)",
        "vision.non_max_suppression(%x, %y, %y, 3, 0.25f, top_k=2)",
    ),
    "non_max_suppression, default": (
        "vision.non_max_suppression(%x, %y, %y, 3)",
        "vision.non_max_suppression(%x, %y, %y, 3, 0.5f)",
    ),
    "resize": ("image.resize(%x, size=[4, 6])", f'{RESIZE}, method="linear")'),
    "resize, half_pixel": (
        'image.resize(%x, size=[4, 6], method="nearest_neighbor")',
        f'{RESIZE}, method="nearest_neighbor", coordinate_transformation_mode="asymmetric",'
        ' rounding_method="floor")',
    ),
    "resize, align_corners": (
        'image.resize(%x, size=[4, 6], coordinate_transformation_mode="align_corners")',
        f'{RESIZE}, method="linear", coordinate_transformation_mode="align_corners")',
    ),
    "resize of TVM 0.6": (
        'image.resize(%x, size=[4, 6], method="BICUBIC", align_corners=False)',
        f'{RESIZE}, method="cubic", cubic_alpha=-0.5f,'
        ' coordinate_transformation_mode="asymmetric")',
    ),
    "resize3d": (
        'image.resize3d(%x, size=[4, 6, 8], method="trilinear")',
        'image.resize3d(%x, size=[4, 6, 8], method="linear")',
    ),
}


def body_of(call: str, version: str = "") -> relay.Expr:
    return relay.parse(f"{version}def @main(%x, %y) {{ {call} }}")["main"].body


@pytest.mark.parametrize("name", CALLS)
def test_text(name: str) -> None:
    old, new = (relay.parse(f"def @main(%x, %y) {{ {call} }}") for call in CALLS[name])
    assert tvm_ffi.structural_equal(old, new)
    assert tvm_ffi.structural_equal(relay.parse(old.astext()), new)


def test_text_of_dynamic_resizes() -> None:
    for call in ("dyn.image.resize(%x, %y)", 'dyn.image.resize2d(%x, %y, method="linear")'):
        body = body_of(call)
        assert body.op.name == "dyn.image.resize2d"
        assert dict(body.attrs) == {"method": "linear"}
        np.testing.assert_array_equal(body.args[2].numpy(), np.zeros(4, "float32"))


@pytest.mark.parametrize("version", ["v0.0.4\n", '#[version = "0.0.4"]\n'])
def test_the_version_of_the_text_decides_defaults(version: str) -> None:
    assert body_of("nn.batch_matmul(%x, %y)", version).attrs["transpose_b"] is True
    resize = body_of("image.resize(%x, size=[4, 6])", version)
    assert resize.attrs["coordinate_transformation_mode"] == "align_corners"
    convolution = body_of('nn.conv2d_transpose(%x, %y, kernel_layout="HWIO")', version)
    assert convolution.attrs["kernel_layout"] == "HWOI"


@pytest.mark.parametrize(
    "call",
    [
        'qnn.quantize(%x, out_dtype="uint8", output_zero_point=3)',
        'qnn.quantize(%x, out_dtype="uint8", output_zero_point="a", output_scale=1f)',
        "qnn.concatenate((%x,), input_scales=1, input_zero_points=[1], axis=1)",
        "vision.non_max_suppression(%y, %y, %y)",
        "vision.non_max_suppression(%y, %y, %y, 1, 1f, iou_threshold=1f)",
    ],
)
def test_calls_of_no_version(call: str) -> None:
    mod = relay.parse(
        f"def @main(%x: Tensor[(2), float32], %y: Tensor[(1, 2, 6), float32]) {{ {call} }}"
    )
    with pytest.raises(RelayError, match=r"(qnn|vision)\.\w+ at "):
        relay.transform.InferType()(mod)


def saved_call(
    version: str, name: str, count: int, attrs: str, fields: dict[str, object]
) -> relay.Expr:
    """A call as a version of TVM saves it; an array of numbers becomes nodes."""
    graph = SavedGraph(version)
    stored = {
        field: graph.integers(value) if isinstance(value, list) else value
        for field, value in fields.items()
    }
    x = graph.var("x")
    call = graph.call(name, [x] * count, graph.node(f"relay.attrs.{attrs}", **stored))
    return relay.load_json(graph.text(graph.function([x], call)))["main"].body


def test_json_of_quantized_calls() -> None:
    fields = {"out_dtype": "uint8", "output_zero_point": 3, "output_scale": "0.5"}
    call = saved_call("0.6.1", "qnn.quantize", 1, "QuantizeAttrs", fields)
    assert [arg.numpy().item() for arg in call.args[1:]] == [0.5, 3]
    assert [str(arg.data.dtype) for arg in call.args[1:]] == ["float32", "int32"]
    assert dict(call.attrs) == {"out_dtype": "uint8"}


def test_json_of_resizes() -> None:
    fields = {"size": [4, 6], "layout": "NHWC", "method": "BILINEAR", "out_dtype": ""}
    first = saved_call("0.6.1", "image.resize", 1, "ResizeAttrs", fields | {"align_corners": 0})
    mode = {"coordinate_transformation_mode": "half_pixel", "method": "nearest_neighbor"}
    second = saved_call("0.7.0", "image.resize", 1, "ResizeAttrs", fields | mode)
    assert {first.op.name, second.op.name} == {"image.resize2d"}
    for call, method in ((first, "linear"), (second, "nearest_neighbor")):
        assert call.attrs["method"] == method
        assert call.attrs["coordinate_transformation_mode"] == "asymmetric"
        assert (list(call.attrs["size"]), call.attrs["layout"]) == ([4, 6], "NHWC")


@pytest.mark.parametrize("version", ["0.6.0", "0.7.0"])
def test_json_of_suppressions(version: str) -> None:
    graph = SavedGraph(version)
    limit = 7 if graph.is_old else 0  # In TVM 0.7 the null node.
    fields = {"max_output_size": limit, "iou_threshold": "0.25", "top_k": 3}
    count = 2 if graph.is_old else 4
    name = "NonMaximumSuppressionAttrs"
    call = saved_call(version, "vision.non_max_suppression", count, name, fields)
    if graph.is_old:
        assert dict(call.attrs) == {"max_output_size": 7, "iou_threshold": 0.25, "top_k": 3}
        with pytest.raises(RelayError, match="no form with 2 inputs"):
            relay.save_json(relay.IRModule({"main": relay.Function(list(call.args[:1]), call)}))
    else:
        assert dict(call.attrs) == {"top_k": 3}
        assert call.args[4].numpy() == np.float32(0.25)


# What the letters O and I of a kernel's layout name.
LAYOUTS = [
    ("2D", "0.6.0", "HWIO", "HWOI"),
    ("2D", "0.7.0", "OIHW", "IOHW"),
    ("2D", "0.8.dev0", "OIHW", "IOHW"),
    ("2D", "0.8.dev0", "IOHW", "IOHW"),
    ("2D", "0.8.0", "IOHW", "IOHW"),
    ("2D", "0.11.0", "OIHW", "OIHW"),
    ("2D", "0.19.0", "OIHW", "OIHW"),
    ("1D", "0.7.0", "OIW", "IOW"),
    ("3D", "0.9.0", "OIDHW", "IODHW"),
    ("3D", "0.7.0", "OIDHW", "IODHW"),
    ("3D", "0.12.0", "IODHW", "IODHW"),
]


@pytest.mark.parametrize("rank, version, saved, expected", LAYOUTS)
def test_json_of_transposed_convolutions(
    rank: str, version: str, saved: str, expected: str
) -> None:
    graph = SavedGraph(version)
    layout = graph.name(saved) if rank == "3D" and not graph.version.startswith("0.7") else saved
    attrs = graph.node(f"relay.attrs.Conv{rank}TransposeAttrs", kernel_layout=layout)
    x = graph.var("x")
    call = graph.call(f"nn.conv{rank.lower()}_transpose", [x, x], attrs)
    body = relay.load_json(graph.text(graph.function([x], call)))["main"].body
    assert body.attrs["kernel_layout"] == expected


def test_json_of_batch_matmul() -> None:
    for version, expected in (("0.7.0", True), ("0.8.dev0", True), ("0.19.0", False)):
        graph = SavedGraph(version)
        x = graph.var("x")
        call = graph.call("nn.batch_matmul", [x, x])
        attrs = relay.load_json(graph.text(graph.function([x], call)))["main"].body.attrs
        assert dict(attrs) == ({"transpose_b": True} if expected else {})


def test_indices_of_int64() -> None:
    """TVM says it where it has inferred types."""
    wide = 'cast(argmax(%x, axis=[1]), dtype="int64")'
    for comment, expected in {
        "/* ty=Tensor[(3i64), int64] */": wide,
        "/* ty=Tensor[(3), int32] */": "argmax(%x, axis=[1])",
        "": "argmax(%x, axis=[1])",
    }.items():
        assert tvm_ffi.structural_equal(
            body_of(f"argmax(%x, axis=[1]) {comment}"), body_of(expected), map_free_vars=True
        )
    graph = SavedGraph()
    x = graph.var("x")
    call = graph.call("argmax", [x])
    graph.nodes[call]["attrs"]["_checked_type_"] = str(graph.static_type([3], "int64"))
    body = relay.load_json(graph.text(graph.function([x], call)))["main"].body
    assert (body.op.name, body.attrs["dtype"]) == ("cast", "int64")
    assert body.args[0].op.name == "argmax"


if __name__ == "__main__":
    tvm.testing.main()
