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
"""Graphs in the cache: read as they were written, and never as code."""

import json
import math

import pytest
import torch
import tvm.testing

from tvm_fixes.torch.stored_graph import graph_of, values_of_graph


def test_stored_graphs_keep_each_bit_of_a_number() -> None:
    texts = []
    for value in (math.nan, -math.nan, complex(-0.0, -math.nan), complex(0.0, -math.nan)):
        graph = torch.fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_function(torch.ops.aten.mul.Scalar, (x, value)))
        values = values_of_graph(torch.fx.GraphModule({}, graph))
        texts.append(json.dumps(values))
        assert values_of_graph(graph_of(json.loads(texts[-1]), {})) == values
    assert len({*texts}) == len(texts)


@pytest.mark.parametrize("place", ["target", "keyword"])
def test_a_stored_graph_is_not_code(place: str) -> None:
    code = "x=print('no')"
    values = {
        "nodes": [
            ["placeholder", "x", code if place == "target" else "x", [], ["dict"]],
            [
                *("call_function", "y", "operator.neg", [["node", "x"]]),
                ["dict", [code, 1]] if place == "keyword" else ["dict"],
            ],
            ["output", "output", "output", [["tuple", ["node", "y"]]], ["dict"]],
        ],
        "constants": {},
    }
    with pytest.raises(ValueError, match="not a name"):
        graph_of(values, {})


if __name__ == "__main__":
    tvm.testing.main()
