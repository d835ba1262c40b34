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
"""Conv, MatMul, Gemm, PRelu and unnamed dims of ``tvm_fixes.frontend.onnx``."""

import itertools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
import tvm_ffi
from onnx import helper
from tvm import relax
from tvm.relax.frontend import onnx as tvm_onnx

from helpers.grids import few, sample
from helpers.models import FLOAT, onnx_model
from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    integers,
    node_model,
    normal,
    onnx_runtime,
    program,
    side_by_side,
    text_model,
)
from helpers.relax_modules import call, calls, count, cpu
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.support import switches

Case = tuple[onnx.ModelProto, Arrays]


# Conv


@pytest.mark.parametrize("rank", (1, 2, 3))
def test_conv(rank: int) -> None:
    cases: dict[str, Case] = {}
    for auto_pad, stride, group, bias in itertools.product(
        ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"), (1, 2, 3), (1, 2), (False, True)
    ):
        attributes: dict[str, object] = {
            "auto_pad": auto_pad,
            "strides": [stride] * rank,
            "group": group,
        }
        if auto_pad == "NOTSET":
            attributes["pads"] = [1, 2, 0][:rank] + [2, 0, 1][:rank]
        x = integers(2, 4, *(7, 8, 6)[:rank])
        constants = {"w": integers(4, 4 // group, *(3, 4, 2)[:rank], seed=1)}
        if bias:
            constants["b"] = integers(4, seed=2)
        name = f"{auto_pad}_{stride}_{group}_{bias}"
        cases[name] = (node_model("Conv", {"x": x}, attributes, constants=constants), {"x": x})
    names = sample(list(cases), 10)
    assert_as_onnx_runtime(from_onnx, {name: cases[name] for name in names})


@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_conv_with_auto_pad_and_symbolic_dims() -> None:
    """One program serves all extents, and residual sums of its result build."""
    models = {}
    for auto_pad, stride in itertools.product(("SAME_UPPER", "SAME_LOWER"), (1, 2, 3)):
        attributes = {"auto_pad": auto_pad, "strides": [stride, 1]}
        weight = {"w": integers(4, 3, 4, 3, seed=1)}
        x = integers(1, 3, 6, 6)
        shapes = {"x": (None, 3, None, None)}
        models[f"{auto_pad}_{stride}"] = node_model(
            "Conv", {"x": x}, attributes, constants=weight, shapes=shapes
        )
    model = side_by_side(models)
    vm = relax.VirtualMachine(relax.build(from_onnx(model), cpu()), tvm.cpu())
    for height in (6, 7, 8):
        inputs = [integers(2, 3, height, 5)] * len(models)
        for name, got, expected in zip(
            models, call(vm, "main", *inputs), onnx_runtime(model, *inputs), strict=True
        ):
            np.testing.assert_array_equal(got, expected, err_msg=f"{name} of {height} rows")


@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_conv_with_auto_pad_in_a_residual_sum() -> None:
    """Two branches with different kernels have provably equal extents."""
    conv = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    model = onnx_model(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], **conv),
            helper.make_node("Conv", ["x", "v"], ["b"], **conv),
            helper.make_node("Add", ["a", "b"], ["y"]),
        ],
        [("x", FLOAT, (1, 3, "h", "w"))],
        [("y", FLOAT, (1, 4, "i", "j"))],
        {"w": integers(4, 3, 3, 3), "v": integers(4, 3, 1, 1, seed=1)},
    )
    x = integers(1, 3, 5, 8)
    [got] = imported_and_run(from_onnx, model, x)
    np.testing.assert_array_equal(got, onnx_runtime(model, x)[0])


def test_conv_with_auto_pad_is_one_operator() -> None:
    x = normal(1, 3, 7, 8)
    attributes = {"auto_pad": "SAME_LOWER", "strides": [2, 2], "dilations": [2, 1]}
    constants = {"w": normal(4, 3, 3, 4)}
    mod = from_onnx(node_model("Conv", {"x": x}, attributes, constants=constants))
    (found,) = calls(mod)
    assert found.op.name == "relax.nn.conv2d"
    # 4 of 7 at stride 2 by 5 need 4 more; 4 of 8 at stride 2 by 4 need 2.
    assert [int(pad) for pad in found.attrs.padding] == [2, 1, 2, 1]


@pytest.mark.parametrize(
    "changed, message",
    (
        ({"pads": [1, 1]}, "Conv 'node': attribute pads is [1, 1]; expected 4 elements"),
        ({"auto_pad": "SAME"}, "Conv 'node': attribute auto_pad is SAME; expected one of"),
        ({"strides": [1, 0]}, "Conv 'node': attribute strides is [1, 0]; expected at least 1"),
        ({"kernel_shape": [3, 1]}, "Conv 'node': attribute kernel_shape is [3, 1]; expected the"),
    ),
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*")
def test_invalid_conv(changed: dict[str, object], message: str) -> None:
    constants = {"w": normal(4, 3, 3, 3)}
    assert_rejected(
        from_onnx,
        node_model("Conv", {"x": normal(1, 3, 5, 5)}, changed, constants=constants),
        message,
    )


# 16 bits


def products(dtype: str) -> dict[str, tuple[onnx.ModelProto, Arrays, np.ndarray]]:
    """Models of `dtype`, with inputs and results; float32 sums of this data are exact."""
    a, b = integers(3, 40, most=200), integers(40, 5, most=4, seed=1)
    c = integers(5, most=4, seed=2)
    image = integers(2, 6, 5, 4, most=200)
    conv, transposed = integers(4, 6, 2, 3, seed=3), integers(6, 4, 2, 3, seed=3)
    bias = integers(4, seed=4)
    windows = np.lib.stride_tricks.sliding_window_view(image, (2, 3), (2, 3))
    scattered = np.zeros((2, 4, 6, 6))
    for i, j in itertools.product(range(2), range(3)):
        scattered[:, :, i : i + 5, j : j + 4] += np.einsum(
            "nchw,co->nohw", image, transposed[:, :, i, j]
        )
    specified: dict[str, tuple[str, dict, tuple[np.ndarray, ...], np.ndarray]] = {
        "matmul": ("MatMul", {}, (a, b), a @ b),
        "vector": ("MatMul", {}, (a[0], b), a[0] @ b),
        "gemm": ("Gemm", {}, (a, b, c), a @ b + c),
        "gemm-scaled": ("Gemm", {"alpha": 0.5, "beta": 2.0}, (a, b, c), 0.5 * (a @ b) + 2 * c),
        "gemm-transposed": ("Gemm", {"transA": 1, "transB": 1}, (a.T, b.T), a @ b),
        "conv": (
            "Conv",
            {},
            (image, conv, bias),
            np.einsum("nchwij,ocij->nohw", windows, conv) + bias.reshape(-1, 1, 1),
        ),
        "conv-transpose": (
            "ConvTranspose",
            {},
            (image, transposed, bias),
            scattered + bias.reshape(-1, 1, 1),
        ),
    }
    numpy_type = np.dtype(getattr(ml_dtypes, dtype, dtype))
    found = {}
    for name, (operator, attributes, operands, expected) in specified.items():
        arrays = {
            letter: np.ascontiguousarray(array).astype(numpy_type)
            for letter, array in zip("abc", operands, strict=False)
        }
        first = {"a": arrays.pop("a")}
        model = node_model(operator, first, attributes, constants=arrays)
        found[name] = (model, first, expected.astype(numpy_type))
    return found


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
@pytest.mark.filterwarnings("ignore:.*bfloat16", "ignore:.*")
def test_sums_of_16_bits(dtype: str) -> None:
    for name, (model, inputs, expected) in products(dtype).items():
        with switches.collect() as acted:
            [got] = imported_and_run(from_onnx, model, *inputs.values())
        assert "onnx-dtype" in acted, name
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), name
        np.testing.assert_array_equal(got.astype("float32"), expected.astype("float32"), name)
        if dtype == "float16":
            np.testing.assert_array_equal(onnx_runtime(model, *inputs.values())[0], got, name)


@pytest.mark.parametrize("dtype", ("float32", "float64", "int32"))
def test_sums_of_other_dtypes_are_imported_as_by_tvm(dtype: str) -> None:
    a, b = integers(2, 3, dtype=dtype), integers(3, 4, dtype=dtype)
    model = node_model("MatMul", {"a": a}, constants={"b": b})
    tvm.ir.assert_structural_equal(from_onnx(model), tvm_onnx.from_onnx(model))


# PRelu


@pytest.mark.parametrize("symbolic", (False, True))
@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_prelu(symbolic: bool) -> None:
    cases: dict[str, Case] = {}
    slopes = {
        (2, 3, 4, 5): (
            (),
            (1,),
            (5,),
            (3, 1, 1),
            (1, 3, 1, 1),
            (1, 1, 1, 1),
            (4, 5),
            (3, 4, 5),
            (2, 3, 4, 5),
            (2, 1, 1, 1),
            (4, 1),
            (3, 1, 5),
        ),
        (2, 3): ((3,), (1,), (2, 1), ()),
        (6,): ((6,), (1,)),
    }
    for shape, group in slopes.items():
        for slope in group:
            for dtype in ("float32", "float16", "int32")[: 3 if slope in ((1,), (3, 1, 1)) else 1]:
                x = (4 * normal(*shape)).astype(dtype)
                constants = {"slope": (4 * normal(*slope, seed=1)).astype(dtype)}
                name = f"{len(shape)}_{'_'.join(map(str, slope))}_{dtype}"
                symbols = [f"d{name}_{axis}" if axis != 1 else 3 for axis in range(len(shape))]
                shapes = {"x": symbols}
                model = node_model(
                    "PRelu", {"x": x}, constants=constants, shapes=shapes if symbolic else None
                )
                cases[name] = (model, {"x": x})
    assert_as_onnx_runtime(from_onnx, cases)


def test_prelu_of_bfloat16() -> None:
    x, slope = (normal(2, 3, 4, seed=s).astype(ml_dtypes.bfloat16) for s in (0, 1))
    slope = slope[0, :, :1]
    [y] = imported_and_run(from_onnx, node_model("PRelu", {"x": x}, constants={"slope": slope}), x)
    np.testing.assert_array_equal(y, np.where(x < 0, x * slope, x))


def test_prelu_of_zero_is_zero_for_any_slope() -> None:
    model = text_model("(float[2,3,m] x, float[2,3,m] s) => (float[2,3,m] y) { y = PRelu(x, s) }")
    x = np.zeros((2, 3, 4), "float32")
    slope = np.full((2, 3, 4), np.nan, "float32")
    slope[0] = 2
    assert_follows_onnx_runtime(from_onnx, model, [x, slope], [normal(2, 3, 4), slope])


def test_prelu_of_equal_symbolic_parts() -> None:
    model = text_model(
        "(float[n,4] x) => (float[a,4] y) "
        "{ a, b, c = Split<axis=0, num_outputs=3>(x) y = PRelu(b, a) }"
    )
    assert_follows_onnx_runtime(from_onnx, model, [normal(9, 4)], [normal(12, 4)])


@few(3)
@pytest.mark.parametrize("slope", ((), (1,), (3, 1, 1), (1, 3, 1, 1)))
@pytest.mark.parametrize("shape", ((1, 3, 4, 5), ("n", 3, "h", "w")))
def test_prelu_is_kept(slope: tuple[int, ...], shape: Sequence[int | str]) -> None:
    model = node_model(
        "PRelu", {"x": normal(1, 3, 4, 5)}, constants={"s": normal(*slope)}, shapes={"x": shape}
    )
    assert count(from_onnx(model), "relax.nn.prelu") == 1


def test_invalid_prelu() -> None:
    for shape in ((4,), (3, 1), (1, 2, 3, 4, 5)):
        model = node_model("PRelu", {"x": normal(2, 3, 4, 5)}, constants={"s": normal(*shape)})
        dims = ", ".join(map(str, shape))
        assert_rejected(
            from_onnx, model, f"PRelu 'node': shape of slope is R.shape([{dims}]); expected a"
        )


# Inputs


@pytest.mark.filterwarnings("ignore:.*")
def test_unnamed_dims() -> None:
    model = onnx_model(
        [helper.make_node("Relu", ["0"], ["y"]), helper.make_node("Relu", ["a/b.c"], ["z"])],
        [("0", FLOAT, (None, 3, None, "n")), ("a/b.c", FLOAT, ("n", None, "input_0_0"))],
        [("y", FLOAT, [None] * 4), ("z", FLOAT, [None] * 3)],
    )
    # Exporters write 0 or -1 for unknown dims.
    for unknown, axis in ((0, 0), (-1, 2)):
        model.graph.input[0].type.tensor_type.shape.dim[axis].dim_value = unknown
    function = from_onnx(model)["main"]
    dims = [dim for param in function.params for dim in param.ty.shape if dim != 3]
    assert len({dim.name for dim in dims}) == len(dims) - 1
    assert dims[2].same_as(dims[3])
    x, z = normal(1, 3, 2, 4), normal(4, 5, 6)
    for array, got in zip((x, z), imported_and_run(from_onnx, model, x, z), strict=True):
        np.testing.assert_array_equal(got, np.maximum(array, 0))


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("name", (None, "?", "None"))
def test_unnamed_dims_of_two_inputs(name: str | None) -> None:
    """Each is a dim of its own; Paddle gives every dim the name ``?``."""
    model = program(
        {"sum": ("Add", ["a", "b"]), "flat": ("Concat", ["c", "d"], {"axis": 1})},
        {
            "a": ("float32", (name, "dim0", name)),
            "b": ("float32", (name, "dim0", name)),
            "c": ("float32", (name, 2)),
            "d": ("float32", (name, name)),
        },
        outputs=("sum", "flat"),
    )
    shapes = [
        [(2, 3, 4), (2, 3, 4), (5, 2), (5, 7)],
        [(1, 3, 4), (2, 3, 1), (1, 2), (1, 1)],
        [(2, 3, 4), (3, 3, 4), (5, 2), (5, 7)],
        [(2, 3, 4), (2, 3, 4), (5, 2), (4, 7)],
    ]
    runs = [[normal(*shape) for shape in given] for given in shapes]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def switched_models() -> dict[str, onnx.ModelProto]:
    x = normal(1, 3, 4, 5)
    half = x.astype("float16")
    sizes = np.array([1, 3, 8, 10])
    return {
        "onnx-conv-auto-pad": node_model(
            "Conv", {"x": x}, {"auto_pad": "SAME_UPPER"}, constants={"w": normal(2, 3, 3, 3)}
        ),
        "onnx-dtype": node_model("MatMul", {"x": half, "w": half.swapaxes(2, 3).copy()}),
        "onnx-pad": node_model("Pad", {"x": x}, constants={"pads": np.array([0, 0, 1, 1] * 2)}),
        "onnx-prelu": node_model(
            "PRelu", {"x": x}, constants={"s": normal(1)}, shapes={"x": (1, 3, 4, "w")}
        ),
        "onnx-resize": node_model(
            "Resize", {"x": x}, constants={"sizes": sizes}, operands=["x", "", "", "sizes"]
        ),
        "onnx-slice": node_model(
            "Slice",
            {"x": x},
            constants={"starts": np.array([0]), "ends": np.array([2])},
            shapes={"x": ("n", 3, 4, 5)},
        ),
        "onnx-reshape": node_model(
            "Reshape",
            {"x": x},
            constants={"shape": np.array([2, -1])},
            shapes={"x": ("n", 3, 3, 5)},
        ),
        "onnx-expand": node_model(
            "Tile",
            {"x": x},
            constants={"repeats": np.array([1, 1, 0, 1])},
            shapes={"x": ("n", 3, 4, 5)},
        ),
        "onnx-parameters": node_model(
            "OneHot", {"x": sizes}, constants={"depth": np.array(4), "values": np.array([0, 1])}
        ),
        "onnx-unnamed-dims": node_model("Relu", {"x": x}, shapes={"x": (None, 3, None, None)}),
    }


@pytest.mark.parametrize("fix", switched_models())
@pytest.mark.filterwarnings("ignore:.*unknown dimension")
def test_disabled_fix_uses_stock(fix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = switched_models()[fix]
    with switches.collect() as acted:
        ours = from_onnx(model)
    assert acted == {fix}
    stock = tvm_onnx.from_onnx(model)
    assert not tvm_ffi.structural_equal(ours, stock, map_free_vars=True)
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, fix)
    tvm.ir.assert_structural_equal(from_onnx(model), stock)


if __name__ == "__main__":
    tvm.testing.main()
