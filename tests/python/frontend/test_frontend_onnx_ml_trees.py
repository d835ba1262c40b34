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
"""TreeEnsembleRegressor, TreeEnsembleClassifier and TreeEnsemble."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
import tvm
import tvm.testing
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from helpers.growth import assert_grows_linearly, largest_kernel
from helpers.onnx_graphs import (
    Arrays,
    assert_follows_onnx_runtime,
    assert_rejected,
    imported_and_run,
    onnx_runtime,
)
from helpers.onnx_ml import (
    LABELS,
    MODES,
    Garden,
    Split,
    assert_sample_as_onnx_runtime,
    elements,
    joined,
    listed,
    ml_model,
)
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.ops.ml.forest import Forest, Leaves, Splits

pytestmark = pytest.mark.filterwarnings("ignore:.*")

LISTED_MODES = MODES[:-1]

Case = tuple[onnx.ModelProto, Arrays]


def regressor(
    garden: Garden,
    attributes: dict[str, object] | None = None,
    *,
    dtype: str = "float32",
    own: str = "float32",
    seed: int = 0,
) -> Case:
    """A TreeEnsembleRegressor; `own` is the dtype of its attributes."""
    trees = garden.trees(seed=seed)
    given = {"n_targets": max(garden.targets) + 1} | listed(trees, "target", own)
    inputs = {"x": elements(29, garden.features, seed, dtype)}
    return ml_model("TreeEnsembleRegressor", inputs, given | (attributes or {})), inputs


def classifier(
    garden: Garden, classes: int, transform: str = "NONE", *, dtype: str = "float32", **more: object
) -> Case:
    given = {"classlabels_int64s": [10 - 3 * n for n in range(classes)]}
    given |= {"post_transform": transform} | listed(garden.trees(), "class") | more
    inputs = {"x": elements(29, garden.features, dtype=dtype)}
    return ml_model("TreeEnsembleClassifier", inputs, given, outputs=LABELS), inputs


def test_modes_of_nodes() -> None:
    two = {"targets": (0, 1), "each": 2, "tracks_true": True}
    cases = {
        "tracks": regressor(Garden(LISTED_MODES, **two)),
        "no tracks": regressor(Garden(LISTED_MODES), seed=1),
        "float64": regressor(Garden(LISTED_MODES, **two), dtype="float64", own="float64"),
        "float64 of float32": regressor(Garden(LISTED_MODES), dtype="float64", seed=2),
        "one leaf": regressor(Garden(depth=0)),
    }
    assert_sample_as_onnx_runtime(cases, 3, rtol=1e-6)


def test_aggregations_and_base_values() -> None:
    one, some = Garden(LISTED_MODES), Garden(LISTED_MODES, targets=(0, 2, 3))
    every = replace(some, targets=(0, 1, 2), each=3)
    base = {"base_values": [0.5, -1.0, 2.0]}
    cases = {}
    for function in ("SUM", "AVERAGE", "MIN", "MAX"):
        given = {"aggregate_function": function}
        cases[f"{function} one"] = regressor(one, given | {"base_values": [0.75]})
        cases[f"{function} some"] = regressor(some, given)
    cases["AVERAGE every"] = regressor(every, {"aggregate_function": "AVERAGE"} | base)
    assert_sample_as_onnx_runtime(cases, 3, rtol=1e-6)


def test_base_value_of_a_target_without_a_weight() -> None:
    """As in the specification, it is added to each prediction; ONNX Runtime leaves it out."""
    base = [0.5, -1.0, 2.0, 0.25]
    garden = Garden(targets=(0, 2, 3))
    (model, inputs), (plain, _) = regressor(garden, {"base_values": base}), regressor(garden)
    (got,) = imported_and_run(from_onnx, model, inputs["x"], optimize=False)
    (expected,) = onnx_runtime(plain, inputs["x"])
    np.testing.assert_allclose(got, expected + np.array(base, "float32"), rtol=1e-6, atol=1e-6)


def test_transforms() -> None:
    garden = Garden(LISTED_MODES, targets=(0, 2))
    shares = replace(garden, targets=(0,), low=0.05, high=0.3)
    cases = {
        transform: regressor(garden, {"post_transform": transform})
        for transform in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
    }
    cases["PROBIT"] = regressor(shares, {"post_transform": "PROBIT"})
    assert_sample_as_onnx_runtime(cases, 1, rtol=1e-5)


def test_classifiers() -> None:
    mixed, positive = Garden(LISTED_MODES), Garden(LISTED_MODES, low=0.01, high=0.3)
    three = Garden(LISTED_MODES, targets=(0, 1, 2), each=3)
    cases = {
        "share": classifier(positive, 2, base_values=[0.125]),
        "share logistic": classifier(positive, 2, "LOGISTIC"),
        "two": classifier(mixed, 2),
        "two logistic": classifier(mixed, 2, "LOGISTIC", base_values=[-0.25]),
        "second": classifier(replace(mixed, targets=(1,)), 2),
        "float64": classifier(mixed, 2, "LOGISTIC", dtype="float64"),
        "int64": classifier(mixed, 2, dtype="int64"),
        "three with base": classifier(three, 3, dtype="int32", base_values=[0.5, -0.25, 0.125]),
        "some absent": classifier(replace(mixed, targets=(0, 2)), 3),
        "probit": classifier(replace(three, low=0.05, high=0.3), 3, "PROBIT"),
        **{name: classifier(three, 3, name) for name in ("SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")},
    }
    assert_sample_as_onnx_runtime(cases, 3, rtol=1e-5)


def test_two_classes_with_weights_of_both() -> None:
    """ONNX Runtime returns labels that are not in the list; the label is that of the best score."""
    model, inputs = classifier(Garden(LISTED_MODES, targets=(0, 1), each=2), 2, "SOFTMAX")
    labels, scores = imported_and_run(from_onnx, model, inputs["x"])
    _, expected = onnx_runtime(model, inputs["x"])
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_array_equal(labels, np.array([10, 7])[np.argmax(expected, axis=1)])


def ensemble(garden: Garden, dtype: str = "float32", **attributes: int) -> Case:
    trees = garden.trees()
    given = {"n_targets": max(garden.targets) + 1} | joined(trees, dtype) | attributes
    # ONNX Runtime truncates what it looks up in a set.
    whole = "MEMBER" in garden.modes
    inputs = {"x": elements(29, garden.features, dtype=dtype, whole=whole)}
    outputs = {"y": (dtype, 2)}
    return ml_model("TreeEnsemble", inputs, given, outputs=outputs, version=5), inputs


def test_tree_ensemble() -> None:
    every = Garden(MODES, targets=(0, 1), tracks_true=True)
    cases = {
        "every mode": ensemble(every),
        "members": ensemble(Garden(["MEMBER"])),
        "members with tracks": ensemble(Garden(["MEMBER"], tracks_true=True)),
        "float64": ensemble(every, "float64"),
        "least": ensemble(every, aggregate_function=2),
        "greatest": ensemble(every, aggregate_function=3),
    }
    assert_sample_as_onnx_runtime(cases, 2, rtol=1e-6)


def test_transforms_of_tree_ensemble() -> None:
    """ONNX Runtime exchanges the numbers of SOFTMAX, 1, and LOGISTIC, 2."""
    garden = Garden(MODES, targets=(0, 1))
    for number, swapped in ((1, 2), (2, 1)):
        model, inputs = ensemble(garden, post_transform=number)
        (got,) = imported_and_run(from_onnx, model, inputs["x"], optimize=False)
        (expected,) = onnx_runtime(ensemble(garden, post_transform=swapped)[0], inputs["x"])
        is_softmax = np.allclose(got.sum(axis=1), 1, rtol=1e-6)
        assert is_softmax == (number == 1)
        np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_tree_ensemble_of_float16() -> None:
    model, inputs = ensemble(Garden(LISTED_MODES, targets=(0, 1)), "float16")
    (expected,) = ReferenceEvaluator(model).run(None, dict(inputs))
    (got,) = imported_and_run(from_onnx, model, inputs["x"], optimize=False)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3)


def test_symbolic_rows_and_columns() -> None:
    garden = Garden(LISTED_MODES, targets=(0, 1), each=2)
    attributes = {"n_targets": 2} | listed(garden.trees(60), "target")
    inputs = {"x": elements(1)}
    model = ml_model("TreeEnsembleRegressor", inputs, attributes, shapes={"x": ("n", "m")})
    # 6000 rows of 60 trees are evaluated in parallel.
    runs = [[elements(rows, columns)] for rows, columns in ((0, 4), (5, 6), (6000, 4))]
    assert_follows_onnx_runtime(from_onnx, model, *runs, pipeline="tvm_fixes", rtol=1e-5)


def chain(nodes: int) -> onnx.ModelProto:
    """A tree as deep as it has nodes; node i tests whether the first column is at most i."""
    order = list(range(nodes))
    given = {
        "n_targets": 1,
        "tree_roots": [0],
        "nodes_featureids": [0] * nodes,
        "nodes_modes": numpy_helper.from_array(np.zeros(nodes, "uint8")),
        "nodes_splits": numpy_helper.from_array(np.arange(nodes, dtype="float32")),
        "nodes_truenodeids": order,
        "nodes_trueleafs": [1] * nodes,
        "nodes_falsenodeids": [*order[1:], nodes],
        "nodes_falseleafs": [0] * (nodes - 1) + [1],
        "leaf_targetids": [0] * (nodes + 1),
        "leaf_weights": numpy_helper.from_array(np.arange(nodes + 1, dtype="float32")),
    }
    return ml_model("TreeEnsemble", {"x": np.zeros((4, 1), "float32")}, given, version=5)


def test_grows_linearly_with_the_nodes() -> None:
    mods = {}

    def imported(blocks: int) -> tvm.IRModule:
        mods[blocks] = from_onnx(chain(500 * blocks))
        return mods[blocks]

    assert_grows_linearly(imported)
    kernels = [largest_kernel(mod) for mod in mods.values()]
    assert max(kernels) - min(kernels) < 50  # only the numbers of elements differ
    x = np.array([[-1], [0], [2.5], [9999]], "float32")
    (got,) = imported_and_run(from_onnx, chain(2000), x, optimize=False)
    np.testing.assert_array_equal(got, [[0], [0], [3], [2000]])


def test_membership_is_a_balanced_search() -> None:
    values = np.arange(1000, dtype="float32") * 3
    splits = Splits(
        *(np.array([number]) for number in (0, MODES.index("MEMBER"))),
        np.zeros(1, "float32"),
        *(np.array([number]) for number in (-1, -2)),
        np.zeros(1, bool),
        {0: np.random.default_rng(0).permutation(values)},
    )
    leaves = Leaves.of(2, np.arange(2), np.zeros(2, int), np.ones(2, "float32"))
    forest = Forest.of(splits, np.zeros(1, int), leaves)
    assert len(forest.features) == 2 * len(values)
    for x in range(-1, 3001):
        node, steps = 0, 0
        while node >= 0:
            is_left = x <= forest.thresholds[node]
            node, steps = int(forest.children[node, 0 if is_left else 1]), steps + 1
        assert steps <= 12
        assert (node == -1) == (x in values), x


def test_errors_name_the_attribute_and_its_value() -> None:
    named = "ai.onnx.ml.TreeEnsembleRegressor 'node': "
    tree = Split(0, "LEQ", 0.0, False, [(0, 1.0)], [(0, 2.0)])
    good = {"n_targets": 1} | listed([tree], "target")
    cases = {
        "attribute n_targets is 0; expected at least 1": {"n_targets": 0},
        "element of target_ids is 1; expected 0 to 0": {"target_ids": [0, 1]},
        "element of nodes_truenodeids is 7; expected the id of a node of tree 0": {
            "nodes_truenodeids": [7, 0, 0]
        },
        "first node of tree is 0; expected its root, but it has a parent": {
            "nodes_truenodeids": [0, 0, 0]
        },
        "inner node is 1; expected trees, but a node is its own descendant": {
            "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
            "nodes_truenodeids": [1, 1, 0],
            "nodes_falsenodeids": [2, 2, 0],
        },
        "element of nodes_nodeids is 0; expected distinct nodes, but tree 0 has it twice": {
            "nodes_nodeids": [0, 0, 2]
        },
        "number of elements of nodes_modes is 2; expected 3": {"nodes_modes": ["LEAF"] * 2},
        "element of nodes_modes is 'BRANCH'; expected one of": {"nodes_modes": ["BRANCH"] * 3},
        "element of nodes_featureids is -1; expected 0 to": {"nodes_featureids": [-1, 0, 0]},
        "element of nodes_featureids is 4294967296; expected 0 to": {
            "nodes_featureids": [2**32, 0, 0]
        },
        "columns of X are 4; expected at least 9": {"nodes_featureids": [8, 0, 0]},
        "number of elements of base_values is 3; expected 0 or 1": {"base_values": [0.0] * 3},
        "attribute aggregate_function is 'MEAN'; expected one of": {"aggregate_function": "MEAN"},
        "attribute post_transform is LOGISTIC; expected NONE or PROBIT for one score": {
            "post_transform": "LOGISTIC"
        },
    }
    for message, attributes in cases.items():
        model = ml_model("TreeEnsembleRegressor", {"x": elements(3)}, good | attributes)
        assert_rejected(from_onnx, model, named + message)


def test_rejects_strings_as_labels() -> None:
    given = listed(Garden().trees(), "class") | {"classlabels_strings": ["cat", "dog"]}
    model = ml_model("TreeEnsembleClassifier", {"x": elements(3)}, given, outputs=LABELS)
    message = (
        "ai.onnx.ml.TreeEnsembleClassifier 'node': attribute classlabels_strings is "
        "['cat', 'dog']; expected integers in classlabels_int64s, because tensors hold no strings: "
        "train the model with classes 0, 1"
    )
    assert_rejected(from_onnx, model, message)


if __name__ == "__main__":
    tvm.testing.main()
