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
"""The operators of the domain ``ai.onnx.ml``: trees, linear models, SVMs, scalers and encoders.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A scikit-learn, XGBoost or LightGBM model, converted by skl2onnx, onnxmltools or another tool.
Symptom
    ``OpNotImplemented``.
Mechanism
    TVM has no converters for the domain.
How to remove
    When TVM's ``from_onnx`` passes the tests of this folder, use it; delete the folder, its tests
    and the fix id ``onnx-ml``.
"""

from collections.abc import Mapping

from tvm import relax

from ....fixes.onnx_importer import ML
from ....support import switches
from ..node import Converter, Correction, Node
from .encoders import convert_label_encoder, convert_one_hot_encoder
from .features import convert_array_feature_extractor, convert_feature_vectorizer
from .linear import convert_linear_classifier, convert_linear_regressor
from .maps import REJECTED, convert_zip_map, reject
from .scaling import convert_binarizer, convert_imputer, convert_normalizer, convert_scaler
from .svm import convert_svm_classifier, convert_svm_regressor
from .trees import convert_tree_classifier, convert_tree_ensemble, convert_tree_regressor

__all__ = ["CORRECTIONS", "DOMAIN", "REJECTED"]

DOMAIN = "ai.onnx.ml"


def _noting(correction: Correction) -> Correction:
    """A converter that reports each use of the fix."""

    def noting(node: Node, convert: Converter) -> relax.Expr:
        switches.note(ML)
        return correction(node, convert)

    return noting


CORRECTIONS: Mapping[str, Correction] = {
    f"{DOMAIN}.{operator}": _noting(correction)
    for operator, correction in {
        "ArrayFeatureExtractor": convert_array_feature_extractor,
        "Binarizer": convert_binarizer,
        "FeatureVectorizer": convert_feature_vectorizer,
        "Imputer": convert_imputer,
        "LabelEncoder": convert_label_encoder,
        "LinearClassifier": convert_linear_classifier,
        "LinearRegressor": convert_linear_regressor,
        "Normalizer": convert_normalizer,
        "OneHotEncoder": convert_one_hot_encoder,
        "SVMClassifier": convert_svm_classifier,
        "SVMRegressor": convert_svm_regressor,
        "Scaler": convert_scaler,
        "TreeEnsemble": convert_tree_ensemble,
        "TreeEnsembleClassifier": convert_tree_classifier,
        "TreeEnsembleRegressor": convert_tree_regressor,
        "ZipMap": convert_zip_map,
        **dict.fromkeys(REJECTED, reject),
    }.items()
}
"""The converters, by domain and operator."""
