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
"""Models of scikit-learn, XGBoost and LightGBM, as their converters write them.

The packages are not dependencies of the project: ``pip install --no-deps`` scikit-learn, scipy,
joblib, cloudpickle, threadpoolctl, narwhals, skl2onnx, onnxmltools, onnxconverter-common, xgboost
and lightgbm.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm.testing

from helpers.onnx_graphs import imported_and_run, onnx_runtime
from tvm_fixes.frontend.onnx import from_onnx

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif("config.getoption('tier') != 'full'", reason="trains nineteen models"),
]

ROWS, COLUMNS = 200, 6

Predict = Callable[[np.ndarray], list[np.ndarray]]
"""The results of a model for some rows, as computed by its own library."""

Model = Callable[[], tuple[onnx.ModelProto, Predict]]


def data(classes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Features, and targets of a regression or of a classification."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((ROWS, COLUMNS)).astype("float32")
    score = x[:, 0] * 2 + np.sin(x[:, 1] * 3) + x[:, 2] * x[:, 3]
    if not classes:
        return x, score
    bounds = np.quantile(score, np.arange(1, classes) / classes)
    return x, np.searchsorted(bounds, score).astype("int64")


def own_results(fitted: Any) -> Predict:
    """The predictions, and the probabilities or scores of classes, if there are any."""
    scores = next(
        (name for name in ("predict_proba", "decision_function") if hasattr(fitted, name)), None
    )

    def predict(x: np.ndarray) -> list[np.ndarray]:
        labels = np.asarray(fitted.predict(x))
        return [labels, np.asarray(getattr(fitted, scores)(x))] if scores else [labels[:, None]]

    return predict


def scikit(name: str, classes: int = 0, **parameters: object) -> tuple[onnx.ModelProto, Predict]:
    """A fitted model of scikit-learn; `name` is a module and a class."""
    reason = "the package and its dependencies are not installed"
    sklearn = pytest.importorskip("sklearn", reason=f"scikit-learn: {reason}")
    pytest.importorskip("skl2onnx", reason=f"skl2onnx: {reason}")
    module, _, kind = name.rpartition(".")
    made = getattr(pytest.importorskip(f"{sklearn.__name__}.{module}"), kind)(**parameters)
    x, y = data(classes)
    return converted(made.fit(x, y), x, classes > 0)


def converted(fitted: Any, x: np.ndarray, is_classifier: bool) -> tuple[onnx.ModelProto, Predict]:
    """A fitted model of scikit-learn as an ONNX model."""
    import skl2onnx

    options = {id(fitted): {"zipmap": False}} if is_classifier else None
    opsets = {"": 18, "ai.onnx.ml": 3}
    model = skl2onnx.to_onnx(fitted, x[:1], options=options, target_opset=opsets)
    return model, own_results(fitted)


def pipeline() -> tuple[onnx.ModelProto, Predict]:
    """Scaled, one-hot encoded and imputed columns of a logistic regression."""
    pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Binarizer, MinMaxScaler, Normalizer, StandardScaler

    x, y = data(3)
    columns = ColumnTransformer(
        [
            ("standard", make_pipeline(SimpleImputer(), StandardScaler()), [0, 1]),
            ("range", make_pipeline(MinMaxScaler(), Normalizer()), [2, 3]),
            ("sign", Binarizer(threshold=0.5), [4, 5]),
        ]
    )
    return converted(make_pipeline(columns, LogisticRegression()).fit(x, y), x, True)


def boosted(
    package: str, kind: str, classes: int = 0, **parameters: object
) -> tuple[onnx.ModelProto, Predict]:
    """A fitted model of XGBoost or LightGBM."""
    reason = "the package and its dependencies are not installed"
    made = getattr(pytest.importorskip(package, reason=f"{package}: {reason}"), kind)
    onnxmltools = pytest.importorskip("onnxmltools", reason=f"onnxmltools: {reason}")
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data(classes)
    fitted = made(n_estimators=20, **parameters).fit(x, y)
    types = [("x", FloatTensorType([None, COLUMNS]))]
    if package == "lightgbm":
        more = {"zipmap": False} if classes else {}
        convert = functools.partial(onnxmltools.convert_lightgbm, **more)
    else:
        convert = onnxmltools.convert_xgboost
    return convert(fitted, initial_types=types, target_opset=15), own_results(fitted)


MODELS: dict[str, Model] = {
    "linear regression": lambda: scikit("linear_model.LinearRegression"),
    "logistic regression": lambda: scikit("linear_model.LogisticRegression", 2),
    "decision tree": lambda: scikit("tree.DecisionTreeClassifier", 3, max_depth=5),
    "random forest": lambda: scikit("ensemble.RandomForestClassifier", 3, n_estimators=10),
    "forest of two classes": lambda: scikit("ensemble.RandomForestClassifier", 2, n_estimators=10),
    "regression forest": lambda: scikit("ensemble.ExtraTreesRegressor", n_estimators=10),
    "gradient boosting": lambda: scikit("ensemble.GradientBoostingClassifier", 2, n_estimators=9),
    "regression tree": lambda: scikit("tree.DecisionTreeRegressor", max_depth=6),
    "support vectors": lambda: scikit("svm.SVC", 3),
    "support vector regression": lambda: scikit("svm.SVR"),
    "perceptron": lambda: scikit("neural_network.MLPClassifier", 3, max_iter=20),
    "naive Bayes": lambda: scikit("naive_bayes.GaussianNB", 3),
    "pipeline": pipeline,
    "XGBoost regression": lambda: boosted("xgboost", "XGBRegressor", max_depth=4),
    "XGBoost": lambda: boosted("xgboost", "XGBClassifier", 3, max_depth=4),
    "XGBoost of two classes": lambda: boosted("xgboost", "XGBClassifier", 2, max_depth=4),
    "LightGBM regression": lambda: boosted("lightgbm", "LGBMRegressor", verbose=-1),
    "LightGBM": lambda: boosted("lightgbm", "LGBMClassifier", 3, verbose=-1),
    "LightGBM of two classes": lambda: boosted("lightgbm", "LGBMClassifier", 2, verbose=-1),
}


@pytest.mark.parametrize("name", MODELS)
def test_converted_model(name: str) -> None:
    """The results are those of ONNX Runtime, and of the library that made the model."""
    model, predict = MODELS[name]()
    x = np.random.default_rng(1).standard_normal((50, COLUMNS)).astype("float32")
    results = imported_and_run(from_onnx, model, x, optimize=False)
    for got, expected in zip(results, onnx_runtime(model, x), strict=True):
        assert got.dtype == expected.dtype
        check(got, expected)
    for got, expected in zip(results, predict(x), strict=True):
        check(got, expected)


def check(got: np.ndarray, expected: np.ndarray) -> None:
    """Compare labels exactly, and numbers within the rounding errors of float32."""
    if got.dtype.kind == "i":
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    tvm.testing.main()
