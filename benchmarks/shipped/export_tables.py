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
"""Exports of predictors for tables, trained on scikit-learn's own data sets."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx

_DATA = {"iris": 4, "wine": 13, "breast_cancer": 30, "digits": 64, "diabetes": 10}
"""The data sets, and the number of their features."""


def features(data: str) -> int:
    """Return the number of features of a data set."""
    return _DATA[data]


def predictor(name: str, data: str, path: Path, *, maps: bool = False, **options: Any) -> None:
    """Train a predictor, and write it as ONNX.

    Parameters
    ----------
    name : str
        A class of scikit-learn with its module, or of lightgbm or xgboost.
    data : str
        The data set.
    path : Path
    maps : bool
        Whether probabilities are maps from classes, as the converter makes them by default.
    **options : object
        The options of the predictor.
    """
    from importlib import import_module

    from sklearn import datasets

    module, _, kind = name.rpartition(".")
    values, labels = getattr(datasets, f"load_{data}")(return_X_y=True)
    library = module.partition(".")[0]
    made = getattr(import_module(module), kind)(**options)
    if library == "sklearn":
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        made = make_pipeline(StandardScaler(), made)
    made.fit(values.astype("float32"), labels)
    path.write_bytes(_converted(made, library, values.shape[1], maps).SerializeToString())


@contextmanager
def _integers_for_booleans() -> Iterator[None]:
    """Let attributes of integers hold booleans, which skl2onnx writes and protobuf rejects."""
    make = onnx.helper.make_attribute

    def make_attribute(key: str, value: Any, *rest: Any, **named: Any) -> onnx.AttributeProto:
        if isinstance(value, list | np.ndarray):
            value = [int(each) if isinstance(each, bool | np.bool_) else each for each in value]
        return make(key, value, *rest, **named)

    with patch.object(onnx.helper, "make_attribute", make_attribute):
        yield


def _converted(made: Any, library: str, columns: int, maps: bool) -> Any:
    if library == "sklearn":
        import skl2onnx

        options = (
            {} if maps or not hasattr(made, "predict_proba") else {id(made): {"zipmap": False}}
        )
        example = np.zeros((1, columns), "float32")
        with _integers_for_booleans():
            return skl2onnx.to_onnx(made, example, options=options)
    import onnxmltools
    from onnxmltools.convert.common.data_types import FloatTensorType

    convert = getattr(onnxmltools, f"convert_{library}")
    kinds = [("input", FloatTensorType([None, columns]))]
    return convert(
        made, initial_types=kinds, **({} if maps or library == "xgboost" else {"zipmap": False})
    )
