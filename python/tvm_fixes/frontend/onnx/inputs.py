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
"""Inputs whose dims have neither a value nor a name.

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    An ONNX input with two such dims, ``(?, 3, ?, ?)``.
Symptom
    The program takes inputs alone whose unnamed dims are all equal: ``match_cast error, shape[2]
    mismatch to a previous populated value``.
Mechanism
    The importer looks symbols up by name, and the empty name is one of them.
How to remove
    When TVM's ``from_onnx`` passes the tests of this module, use it; delete this file, its test
    and the fix id ``onnx-unnamed-dims``.
"""

from itertools import chain, count

import onnx

from ... import switches

__all__ = ["UNNAMED_DIMS", "name_dims"]

UNNAMED_DIMS = "onnx-unnamed-dims"


def name_dims(graph: onnx.GraphProto) -> onnx.GraphProto:
    """The inputs of `graph` with a name for each dim that has neither value nor name.

    Exporters write 0 and -1 for a dim that they do not know, too.  Unnamed dims of the same axis
    have one name: inputs that are added to each other would not lower with different ones.

    Returns
    -------
    onnx.GraphProto
        `graph` itself if all dims have a name or a value; otherwise its inputs alone.
    """
    named = onnx.GraphProto(input=graph.input)
    dims = [
        (axis, dim)
        for value in named.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
    ]
    taken = {dim.dim_param for _, dim in dims}
    unnamed = [(axis, dim) for axis, dim in dims if not dim.dim_param and dim.dim_value <= 0]
    if not unnamed:
        return graph
    switches.note(UNNAMED_DIMS)
    prefixes = chain(["dim"], (f"dim{index}_" for index in count(1)))
    prefix = next(p for p in prefixes if taken.isdisjoint(f"{p}{axis}" for axis, _ in unnamed))
    for axis, dim in unnamed:
        dim.dim_param = f"{prefix}{axis}"
    return named
