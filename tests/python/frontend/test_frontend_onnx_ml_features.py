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
"""Scalers, encoders and operators on features of ai.onnx.ml, and its rejected operators."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import numpy_helper

from helpers.onnx_graphs import (
    Arrays,
    assert_as_onnx_runtime,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    normal,
    onnx_runtime,
    side_by_side,
)
from helpers.onnx_ml import DOMAIN, ml_model
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.call import CONVERTERS
from tvm_fixes.frontend.onnx.ops.ml.maps import REJECTED
from tvm_fixes.source.onnx import OnnxSource

pytestmark = pytest.mark.filterwarnings("ignore:.*")

Case = tuple[onnx.ModelProto, Arrays]

SPECIAL = np.array([[0.0, -0.0, 1.5, np.nan], [-2.0, 2.0, np.inf, -np.inf], [0, 0, 0, 0]])


def case(
    operator: str,
    x: np.ndarray,
    attributes: Mapping[str, object],
    result: str = "float32",
    rank: int = 2,
    version: int = 3,
) -> Case:
    outputs = {"y": (result, rank)}
    return ml_model(operator, {"x": x}, attributes, outputs=outputs, version=version), {"x": x}


def test_scaler_normalizer_imputer_and_binarizer() -> None:
    x, whole = normal(5, 4), np.arange(-6, 6).reshape(3, 4)
    each = {"offset": [0.5, -1.0, 2.0, 0.0], "scale": [2.0, 0.25, -1.0, 3.0]}
    cases = {
        **{f"Scaler {d}": case("Scaler", whole.astype(d), each) for d in ("float64", "int64")},
        "Scaler int32": case("Scaler", whole.astype("int32"), {"offset": [3.0], "scale": [0.5]}),
        "Scaler vector": case("Scaler", x[0], each, rank=1),
        **{f"Normalizer {n}": case("Normalizer", x, {"norm": n}) for n in ("MAX", "L1", "L2")},
        "Normalizer int64": case("Normalizer", whole.astype("int64"), {"norm": "L2"}),
        "Normalizer vector": case("Normalizer", x[0].astype("float64"), {"norm": "L1"}, rank=1),
        **{
            f"Normalizer special {n}": case("Normalizer", SPECIAL.astype("float32"), {"norm": n})
            for n in ("L1", "L2")
        },
        "Imputer NaN": case(
            "Imputer",
            SPECIAL.astype("float32"),
            {"imputed_value_floats": [7.0], "replaced_value_float": np.nan},
        ),
        "Imputer zero": case(
            "Imputer",
            SPECIAL.astype("float32"),
            {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": 0.0},
        ),
        "Imputer int64": case(
            "Imputer",
            whole.astype("int64"),
            {"imputed_value_int64s": [9, 8, 7, 6], "replaced_value_int64": -1},
            "int64",
        ),
        "Binarizer": case("Binarizer", SPECIAL[1:].astype("float32"), {"threshold": 0.0}),
    }
    assert_as_onnx_runtime_exactly(cases)


def assert_as_onnx_runtime_exactly(cases: Mapping[str, Case]) -> None:
    """Assert equality with ONNX Runtime, except for the rounding of a quotient or root."""
    model = side_by_side({name: model for name, (model, _) in cases.items()})
    inputs = [array for _, arrays in cases.values() for array in arrays.values()]
    results = imported_and_run(from_onnx, model, *inputs, optimize=False)
    for name, got, expected in zip(cases, results, onnx_runtime(model, *inputs), strict=True):
        assert (got.shape, got.dtype) == (expected.shape, expected.dtype), name
        np.testing.assert_allclose(got, expected, rtol=3e-7, err_msg=name)


def test_encoders() -> None:
    keys = {"keys_int64s": [3, 1, -5], "values_floats": [0.5, 1.5, 2.5], "default_float": 9.0}
    floats = {"keys_floats": [0.0, 1.5, np.inf], "values_int64s": [7, 8, 9], "default_int64": 42}
    cases = {
        "OneHot int64": case(
            "OneHotEncoder", np.array([[3, 1], [9, -2]]), {"cats_int64s": [1, -2, 3]}, rank=3
        ),
        "OneHot float": case(
            "OneHotEncoder", SPECIAL[:1, :3].astype("float32"), {"cats_int64s": [1, 0]}, rank=3
        ),
        "OneHot twice": case(
            "OneHotEncoder", np.array([4.9, 2.0]), {"cats_int64s": [4, 2, 4]}, rank=2
        ),
        "Label int64": case("LabelEncoder", np.array([[1, 3], [-5, 0]]), keys),
        "Label float": case("LabelEncoder", SPECIAL.astype("float32"), floats, "int64"),
        "Label default": case(
            "LabelEncoder", np.array([1, 2]), {"keys_int64s": [1], "values_int64s": [5]}, "int64", 1
        ),
    }
    assert_as_onnx_runtime_exactly(cases)


def test_label_encoder_of_tensors() -> None:
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array([1.5, -2.0])),
        "values_tensor": numpy_helper.from_array(np.array([10.0, 20.0])),
        "default_tensor": numpy_helper.from_array(np.array([-1.0])),
    }
    cases = {"double": case("LabelEncoder", SPECIAL, tensors, "float64", version=4)}
    assert_as_onnx_runtime_exactly(cases)


def test_unknown_category_fails_at_run_time() -> None:
    attributes = {"cats_int64s": [1, 2], "zeros": 0}
    inputs = {"x": np.array([[1, 2, 2]])}
    outputs = {"y": ("float32", 3)}
    model = ml_model("OneHotEncoder", inputs, attributes, outputs=outputs)
    runs = [[inputs["x"]], [np.array([[1, 3, 2]])]]
    assert_follows_onnx_runtime(from_onnx, model, *runs)


def test_features() -> None:
    x = normal(3, 4)
    widths = {"inputdimensions": [3, 4, 2]}
    vectors = {"a": x, "b": normal(3, 2, seed=1), "c": normal(3, 2, seed=2)}
    wholes = {name: np.arange(6).reshape(3, 2) + n for n, name in enumerate("abc")}
    positions = ml_model(
        "ArrayFeatureExtractor", {"x": x}, {}, constants={"p": np.array([[2, 0, 2]])}
    )
    of_vector = ml_model(
        "ArrayFeatureExtractor",
        {"x": np.arange(5)},
        {},
        outputs={"y": ("int64", 2)},
        constants={"p": np.array([4])},
    )
    computed = ml_model("ArrayFeatureExtractor", {"x": x, "p": np.array([1, 3])}, {})
    cases = {
        "vectors": (ml_model("FeatureVectorizer", vectors, widths), vectors),
        "wholes": (ml_model("FeatureVectorizer", wholes, widths), wholes),
        "positions": (positions, {"x": x}),
        "of vector": (of_vector, {"x": np.arange(5)}),
        "computed": (computed, {"x": x, "p": np.array([1, 3])}),
    }
    assert_as_onnx_runtime(from_onnx, cases, optimize=False)


def test_documented_operators() -> None:
    """The page lists each operator of the domain, and which ones are rejected."""
    page = (Path(__file__).parents[3] / "docs" / "onnx.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"## Models of scikit-learn.*?(?=\n## )", page, re.DOTALL)
    found = dict(
        re.findall(r"^\| (\w+) \| (.*?) ?\|$", section.partition("Train")[0], re.MULTILINE)
    )
    del found["operator"]
    schemas = onnx.defs.get_all_schemas_with_history()
    assert set(found) == {schema.name for schema in schemas if schema.domain == DOMAIN}
    assert {f"{DOMAIN}.{operator}" for operator in found} == {
        name for name in CONVERTERS.operators() if name.startswith(DOMAIN)
    }
    assert {name for name, text in found.items() if text.startswith("rejected")} == set(REJECTED)


@pytest.mark.parametrize(
    ("operator", "remedy"),
    [
        ("DictVectorizer", "convert the model with an input of numbers"),
        ("CastMap", "convert the model with an input of numbers"),
        ("CategoryMapper", "map categories to integers before the model"),
    ],
)
def test_rejects_maps_and_strings_with_a_remedy(operator: str, remedy: str) -> None:
    model, _ = case(operator, np.ones((2, 2), "float32"), {})
    with pytest.raises(tvm.error.OpNotImplemented) as error:
        from_onnx(model)
    assert str(error.value).startswith(f"ai.onnx.ml.{operator} 'node': unsupported, ")
    assert remedy in str(error.value)


@pytest.mark.parametrize("labels", [[7, 3, 5], ["c", "a", "b"]])
def test_maps_become_tensors_of_scores(labels: list[int] | list[str]) -> None:
    kind = "int64s" if isinstance(labels[0], int) else "strings"
    for rank, x in ((2, normal(4, 3)), (1, normal(3))):
        model, inputs = case("ZipMap", x, {f"classlabels_{kind}": labels}, rank=rank, version=1)
        key = onnx.TensorProto.INT64 if kind == "int64s" else onnx.TensorProto.STRING
        value = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
        maps = onnx.helper.make_map_type_proto(key, value)
        model.graph.output[0].type.CopyFrom(onnx.helper.make_sequence_type_proto(maps))
        with pytest.warns(match=f"columns are those of the classes {', '.join(map(str, labels))}"):
            [scores] = imported_and_run(from_onnx, model, x, optimize=False)
        np.testing.assert_array_equal(scores, np.atleast_2d(x))
        [expected] = OnnxSource(model, "m").reference()[1](list(inputs.values()))
        assert (scores.shape, scores.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(scores, expected)


def test_rejects_maps_of_other_columns() -> None:
    model, _ = case("ZipMap", normal(4, 3), {"classlabels_int64s": [1, 2]}, version=1)
    assert_rejected(from_onnx, model, "ZipMap 'node': columns of X are 3; expected 2")


def test_rejects_strings_as_input() -> None:
    attributes = {"keys_strings": ["a", "b"], "values_int64s": [0, 1]}
    model, _ = case("LabelEncoder", np.array([1, 2]), attributes, "int64", 1)
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(ValueError, match=r"input 'x': element type is STRING, .* encode them"):
        from_onnx(model)


def test_errors_name_the_attribute_and_its_value() -> None:
    x, whole = normal(3, 4), np.array([1, 2])
    cases = {
        "Scaler 'node': number of elements of scale is 3; expected 0 or 1 or 4": case(
            "Scaler", x, {"scale": [1.0] * 3, "offset": [1.0]}
        ),
        "Scaler 'node': shape of X is [1, 3, 4]; expected one or two axes": case(
            "Scaler", x[None], {"scale": [1.0], "offset": [1.0]}, rank=3
        ),
        "Normalizer 'node': attribute norm is 'L3'; expected one of": case(
            "Normalizer", x, {"norm": "L3"}
        ),
        "Imputer 'node': attribute imputed_value_floats is empty; expected the values": case(
            "Imputer", x, {"imputed_value_int64s": [1]}
        ),
        "OneHotEncoder 'node': attribute cats_strings is given; expected cats_int64s": case(
            "OneHotEncoder", whole, {"cats_strings": ["a"]}
        ),
        "LabelEncoder 'node': attribute keys_strings is strings; expected numbers": case(
            "LabelEncoder", whole, {"keys_strings": ["a"], "values_int64s": [1]}, "int64", 1
        ),
        "LabelEncoder 'node': keys are [1, 1]; expected distinct keys": case(
            "LabelEncoder", whole, {"keys_int64s": [1, 1], "values_int64s": [1, 2]}, "int64", 1
        ),
        "LabelEncoder 'node': keys are [nan]; expected no NaN": case(
            "LabelEncoder", x, {"keys_floats": [np.nan], "values_int64s": [1]}, "int64"
        ),
        "LabelEncoder 'node': dtype of X is int64; expected float32": case(
            "LabelEncoder", whole, {"keys_floats": [1.0], "values_int64s": [1]}, "int64", 1
        ),
        "ArrayFeatureExtractor 'node': operand Y is [4]; expected positions": (
            ml_model("ArrayFeatureExtractor", {"x": x}, {}, constants={"p": np.array([4])}),
            {},
        ),
    }
    for message, (model, _) in cases.items():
        assert_rejected(from_onnx, model, f"ai.onnx.ml.{message}")


if __name__ == "__main__":
    tvm.testing.main()
