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
"""The operators of ai.onnx.ml and com.microsoft: which are imported.

``docs/tables/onnx_ml.md`` and ``docs/tables/onnx_microsoft.md`` have one row per operator that ONNX
Runtime defines; docs/onnx.md and docs/quantized.md name those that are imported.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import tvm.testing
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_state

from helpers.coverage_tables import CoverageTables
from helpers.onnx_graphs import imported_and_run, node_model
from tvm_fixes.frontend.onnx import from_onnx
from tvm_fixes.frontend.onnx.graph.preflight import operators_of

DOCS = Path(__file__).parents[3] / "docs"

DOMAINS = {"ai.onnx.ml": "onnx_ml", "com.microsoft": "onnx_microsoft"}
"""The tables by domain."""


def problems(domain: str) -> dict[str, str]:
    """Why each operator of a domain is rejected; empty for those that are imported."""
    schemas = onnxruntime_state.get_all_operator_schema()
    names = sorted({schema.name for schema in schemas if schema.domain == domain})
    nodes = [helper.make_node(name, ["x"], [name], name=name, domain=domain) for name in names]
    outputs = [helper.make_empty_tensor_value_info(name) for name in names]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(domain, 1)]
    model = helper.make_model(helper.make_graph(nodes, "every", [], outputs), opset_imports=opsets)
    found = {one.name.removeprefix(f"{domain}."): one.problem for one in operators_of(model)}
    assert sorted(found) == names
    return dict(sorted(found.items()))


@pytest.mark.parametrize("domain", DOMAINS)
def test_operators(domain: str, coverage_table: CoverageTables) -> None:
    found = problems(domain)
    table = coverage_table.measurement_table(DOMAINS[domain])
    for name, problem in found.items():
        table.add(operator=name, imported="no" if problem else "yes", reason=problem)
    pages = (DOCS / f"{page}.md" for page in ("onnx", "quantized"))
    words = set(re.findall(r"\w+", "".join(page.read_text() for page in pages)))
    unnamed = {name for name, problem in found.items() if not problem and name not in words}
    assert not unnamed
    assert sum(not problem for problem in found.values()) >= (15 if domain == "ai.onnx.ml" else 52)


def test_products_of_16_bit_integers() -> None:
    """TVM's converter, for an operator of com.microsoft only."""
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-300, 300, shape).astype("int16") for shape in ((3, 4), (4, 5)))
    model = node_model(
        "MatMulInteger16",
        {"x": x, "w": y},
        operands=["x", "w"],
        outputs={"y": ("int32", 2)},
        domain="com.microsoft",
    )
    [got] = imported_and_run(from_onnx, model, x, y)
    np.testing.assert_array_equal(got, x.astype("int32") @ y.astype("int32"))


if __name__ == "__main__":
    tvm.testing.main()
