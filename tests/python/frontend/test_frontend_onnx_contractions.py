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

import numpy as np
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    assert_follows_onnx_runtime,
    assert_rejected,
    integers,
    node_model,
    normal,
    onnx_runtime,
    program,
)
from helpers.relax_modules import calls
from tvm_fixes.compiler import compile as compile_model
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")


@pytest.mark.parametrize(
    "operator, attributes", (("MatMul", {}), ("Gemm", {}), ("Einsum", {"equation": "ab,bc->ac"}))
)
def test_symbolic_extents_that_are_summed_over(operator: str, attributes: dict) -> None:
    """Mismatched extents are an error, except 1 in an Einsum, which broadcasts."""
    model = program(
        {"y": (operator, ["x", "c"], attributes)},
        {"x": ("float32", ("n", "k"))},
        {"c": integers(4, 3)},
    )
    runs = [[integers(2, k)] for k in (4, 7, 1, 3)]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("equation", ("ab,bc->ac", "ab,cb->", "ab,ba->b", "bb,bc->c"))
def test_extents_of_1_of_an_einsum(equation: str) -> None:
    """Extents of 1 broadcast, whether static or symbolic."""
    first, second = equation.partition("->")[0].split(",")
    sizes = {"a": 2, "b": 4, "c": 3}
    x = integers(*(sizes[label] for label in first))
    y = integers(*(1 if label == "b" else sizes[label] for label in second))
    for shape in (y.shape, second):
        model = program(
            {"z": ("Einsum", ["x", "y"], {"equation": equation})},
            {"x": ("float32", x.shape), "y": ("float32", shape)},
        )
        whole = integers(*(sizes[label] for label in second))
        runs = [[x, y]] if shape is y.shape else [[x, y], [x, whole]]
        assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_attention_with_a_mask_of_computed_size() -> None:
    """Kernels fuse although an extent of the mask is known only after import."""
    model = program(
        {
            "dims": ("Concat", ["one", "k", "k"], {"axis": 0}),
            "mask": ("Expand", ["half", "dims"]),
            "turned": ("Transpose", ["x"], {"perm": [0, 2, 1]}),
            "scores": ("MatMul", ["x", "turned"]),
            "masked": ("Add", ["scores", "mask"]),
            "shares": ("Softmax", ["masked"], {"axis": -1}),
            "is_nan": ("IsNaN", ["shares"]),
            "kept": ("Where", ["is_nan", "half", "shares"]),
            "y": ("MatMul", ["kept", "x"]),
        },
        {"x": ("float32", (1, "n", 4)), "k": ("int64", (1,))},
        {"one": np.array([1]), "half": np.array([0.5], "float32")},
    )
    compiled = compile_model(model, compare=False)
    for n, k in ((3, 3), (3, 1), (5, 5)):
        inputs = normal(1, n, 4), np.array([k])
        [expected] = onnx_runtime(model, *inputs)
        np.testing.assert_allclose(compiled.run(*inputs), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "reason"),
    [
        ("ij,jk->iq", "expected label 'q' of the result once, and in an operand"),
        ("ij,jk->jj", "expected label 'j' of the result once, and in an operand"),
        ("ij->ij", "expected 2 terms, one per operand"),
        ("ijk,jk->i", "expected 2 labels in the term 'ijk' of operand 0"),
        ("ij,k->ik", "expected 2 labels in the term 'k' of operand 1"),
        ("i1,1k->ik", "expected letters and one ellipsis in the term 'i1'"),
        ("ij,...j...->i", "expected letters and one ellipsis in the term '...j...'"),
    ],
)
def test_a_wrong_equation(equation: str, reason: str) -> None:
    """Labels only in the result crashed type inference."""
    x = {"x": normal(3, 3), "z": normal(3, 3)}
    model = node_model("Einsum", x, {"equation": equation})
    assert_rejected(from_onnx, model, f"Einsum 'node': attribute equation is {equation}; {reason}")


def test_an_einsum_stays_an_operator() -> None:
    """A pass can then find its matrix product; TVM's converter makes a kernel."""
    equation = {"equation": "abc,bcd->ad"}
    model = node_model("Einsum", {"x": normal(2, 3, 4), "c": normal(3, 4, 5)}, equation)
    mod = from_onnx(model)
    assert len(calls(mod, "relax.einsum")) == 1
    assert len(mod.functions) == 1


def test_extents_that_differ_are_rejected() -> None:
    operands = {"x": normal(2, 4), "c": normal(5, 3)}
    shapes = {"x": ("n", 4), "c": (5, "m")}
    message = "MatMul 'node': extents of the inner axes are [4, 5]; expected equal extents"
    assert_rejected(from_onnx, node_model("MatMul", operands, shapes=shapes), message)
    message = "Einsum 'node': extents of 'b' are [4, 5]; expected extents that are equal or 1"
    model = node_model("Einsum", operands, {"equation": "ab,bc"}, shapes=shapes)
    assert_rejected(from_onnx, model, message)


@pytest.mark.parametrize("operator", ("MatMul", "Gemm"))
def test_inner_extents_with_different_names(operator: str) -> None:
    shapes = {"x": ("float32", ("a", "b")), "y": ("float32", ("c", "d"))}
    nodes = {"product": (operator, ["x", "y"]), "z": ("Add", ["product", "product"])}
    model = program(nodes, shapes, outputs=("z",))
    runs = [[integers(2, 3), integers(inner, 4)] for inner in (3, 2, 1)]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("names", (("e", "f"), ("f",), (None, None)))
def test_bias_with_extents_of_other_names(names: tuple[str | None, ...]) -> None:
    """The bias of a Gemm broadcasts to the product; the product does not to the bias."""
    shapes = {"x": ("float32", ("a", "b")), "y": ("float32", ("b", "d"))}
    model = program({"z": ("Gemm", ["x", "y", "c"])}, shapes | {"c": ("float32", names)}, (), "z")
    biases = [(2, 4), (1, 4), (2, 1), (1, 1), (3, 4), (2, 3)]
    for columns in (4, 1):
        runs = [
            [integers(2, 3), integers(3, columns), integers(*bias[-len(names) :])]
            for bias in biases
        ]
        assert_follows_onnx_runtime(from_onnx, model, *runs)


@pytest.mark.parametrize("operator", ("Conv", "ConvTranspose"))
@pytest.mark.parametrize("groups", (1, 2))
def test_channels_of_convolutions(operator: str, groups: int) -> None:
    """The channels of the data have a name, or are those of two tensors."""
    weight = integers(4, 4 // groups, 3)
    nodes = {
        "y": (operator, ["x", "w"], {"group": groups}),
        "both": ("Concat", ["a", "b"], {"axis": 1}),
        "z": (operator, ["both", "w"], {"group": groups}),
    }
    shapes = {"x": ("n", "c", 5), "a": ("n", "d", 5), "b": ("n", "e", 5)}
    inputs = {name: ("float32", shape) for name, shape in shapes.items()}
    model = program(nodes, inputs, {"w": weight}, ("y", "z"))
    counts = [(4, 1, 3), (4, 2, 2), (4, 2, 3), (2, 1, 3)]
    runs = [[integers(2, count, 5) for count in each] for each in counts]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


if __name__ == "__main__":
    tvm.testing.main()
