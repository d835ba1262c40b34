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
"""Linear models and support vector machines of ai.onnx.ml."""

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.onnx_graphs import (
    Arrays,
    assert_follows_onnx_runtime,
    assert_rejected,
    normal,
)
from helpers.onnx_ml import LABELS, assert_sample_as_onnx_runtime, ml_model
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = pytest.mark.filterwarnings("ignore:.*")

Case = tuple[onnx.ModelProto, Arrays]

ROWS, COLUMNS = 13, 5


def numbers(count: int, seed: int = 0, scale: float = 1.0) -> list[float]:
    return (normal(count, seed=seed) * np.float32(scale)).tolist()


def rows(dtype: str = "float32") -> dict[str, np.ndarray]:
    return {"x": (normal(ROWS, COLUMNS, seed=7) * 2).astype(dtype)}


def linear_regressor(targets: int, intercepts: bool = True, **attributes: object) -> Case:
    given = {"targets": targets, "coefficients": numbers(targets * COLUMNS)} | attributes
    if intercepts:
        given["intercepts"] = numbers(targets, 1)
    return ml_model("LinearRegressor", rows(), given), rows()


def linear_classifier(classes: int, count: int, dtype: str = "float32", **more: object) -> Case:
    given = {
        "classlabels_ints": [5 - n for n in range(classes)],
        "coefficients": numbers(count * COLUMNS),
        "intercepts": numbers(count, 1),
    }
    inputs = rows(dtype)
    return ml_model("LinearClassifier", inputs, given | more, outputs=LABELS), inputs


def test_linear_models() -> None:
    shares = {"coefficients": numbers(3 * COLUMNS, scale=0.01), "intercepts": [0.3, 0.4, 0.6]}
    cases = {
        "one target": linear_regressor(1),
        "no intercepts": linear_regressor(3, intercepts=False),
        "probit": linear_regressor(3, post_transform="PROBIT", **shares),
        "softmax": linear_regressor(3, post_transform="SOFTMAX"),
        "one row for two classes": linear_classifier(2, 1),
        "int64": linear_classifier(2, 2, "int64"),
        "float64": linear_classifier(3, 3, "float64"),
        **{
            name: linear_classifier(3, 3, post_transform=name)
            for name in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")
        },
    }
    assert_sample_as_onnx_runtime(cases, 4, rtol=1e-5)


KERNELS = {
    "LINEAR": [0.0, 0.0, 0.0],
    "POLY": [0.125, 0.5, 3.0],
    "RBF": [0.0625, 0.0, 0.0],
    "SIGMOID": [0.125, -0.25, 0.0],
}


def without_empty(attributes: dict[str, object]) -> dict[str, object]:
    """The attributes without empty lists, which have no type."""
    return {name: value for name, value in attributes.items() if value != []}


def svm_regressor(kernel: str, supports: int = 7, **attributes: object) -> Case:
    count = supports or COLUMNS
    given = {
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "n_supports": supports,
        "coefficients": numbers(count),
        "support_vectors": numbers(supports * COLUMNS, 2),
        "rho": [0.25],
    }
    return ml_model("SVMRegressor", rows(), without_empty(given | attributes)), rows()


def svm_classifier(
    kernel: str, counts: list[int], *, proba: bool = False, dtype: str = "float32", **more: object
) -> Case:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    given = {
        "classlabels_ints": [3 + 2 * n for n in range(classes)],
        "kernel_type": kernel,
        "kernel_params": KERNELS[kernel],
        "vectors_per_class": counts,
        "coefficients": numbers(total * (classes - 1)),
        "support_vectors": numbers(total * COLUMNS, 2),
        "rho": numbers(pairs, 3, 0.1),
    }
    if proba:
        given |= {"prob_a": numbers(pairs, 4, 0.5), "prob_b": numbers(pairs, 5, 0.1)}
    inputs = rows(dtype)
    given = without_empty(given | more)
    return ml_model("SVMClassifier", inputs, given, outputs=LABELS), inputs


def test_support_vector_regressors() -> None:
    cases = {kernel: svm_regressor(kernel) for kernel in KERNELS}
    cases |= {
        "square": svm_regressor("POLY", kernel_params=[0.25, 1.0, 2.0]),
        "linear": svm_regressor("LINEAR", 0),
        "one class": svm_regressor("RBF", one_class=1),
    }
    assert_sample_as_onnx_runtime(cases, 3, rtol=2e-5)


def test_support_vector_classifiers() -> None:
    linear = {
        "vectors_per_class": [],
        "support_vectors": [],
        "coefficients": numbers(3 * COLUMNS),
        "rho": [0.5],
    }
    cases = {
        "two": svm_classifier("RBF", [3, 4], dtype="int64"),
        "three": svm_classifier("POLY", [3, 0, 4], dtype="float64"),
        "four": svm_classifier("SIGMOID", [2, 2, 3, 1], post_transform="SOFTMAX"),
        "linear": svm_classifier("LINEAR", [1, 1, 1], **linear),
    }
    assert_sample_as_onnx_runtime(cases, 2, rtol=2e-5)


def test_probabilities_of_support_vector_classifiers() -> None:
    cases = {
        "two": svm_classifier("RBF", [3, 4], proba=True),
        "four": svm_classifier("LINEAR", [3, 1, 4, 2], proba=True, post_transform="LOGISTIC"),
    }
    assert_sample_as_onnx_runtime(cases, 1, rtol=1e-4)


@pytest.mark.parametrize(
    ("operator", "case"),
    [
        ("LinearClassifier", linear_classifier(3, 3)),
        ("SVMClassifier", svm_classifier("RBF", [3, 1, 4], proba=True)),
    ],
)
def test_symbolic_rows(operator: str, case: Case) -> None:
    model, _ = case
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    runs = [[normal(count, COLUMNS, seed=count)] for count in (0, 1, 6)]
    assert_follows_onnx_runtime(from_onnx, model, *runs, rtol=1e-4)


def test_errors_name_the_attribute_and_its_value() -> None:
    cases = {
        "LinearRegressor 'node': columns of X are 5; expected 4": linear_regressor(
            1, coefficients=numbers(4)
        ),
        "LinearClassifier 'node': number of elements of intercepts is 2; expected 3": (
            linear_classifier(3, 2)
        ),
        "LinearClassifier 'node': attribute classlabels_strings is ['a', 'b']; expected integers": (
            linear_classifier(2, 2, classlabels_strings=["a", "b"])
        ),
        "LinearClassifier 'node': attribute post_transform is LOGISTIC; expected NONE": (
            linear_classifier(2, 1, post_transform="LOGISTIC")
        ),
        "SVMRegressor 'node': attribute kernel_type is 'CUBIC'; expected one of": svm_regressor(
            "LINEAR", kernel_type="CUBIC"
        ),
        "SVMRegressor 'node': number of elements of rho is 2; expected 1": svm_regressor(
            "LINEAR", rho=[1.0, 2.0]
        ),
        "SVMClassifier 'node': number of elements of prob_b is 2; expected 3": svm_classifier(
            "RBF", [1, 1, 1], proba=True, prob_b=[1.0, 2.0]
        ),
        "SVMClassifier 'node': number of elements of vectors_per_class is 2; expected 0 or 3": (
            svm_classifier("RBF", [1, 1, 1], vectors_per_class=[1, 2])
        ),
    }
    for message, (model, _) in cases.items():
        assert_rejected(from_onnx, model, f"ai.onnx.ml.{message}")


if __name__ == "__main__":
    tvm.testing.main()
