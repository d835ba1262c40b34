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
"""Every import error names the operator and the node."""

import pytest
import tvm
import tvm.testing

from helpers.onnx_graphs import text_model
from tvm_fixes.frontend.onnx import from_onnx

INVALID = tvm.error.OpAttributeInvalid
MISSING = tvm.error.OpNotImplemented

REJECTED = {
    "an error of TVM's": (
        "(float[2,2] x) => (float[2,2] y) { [node0] y = Transpose <perm = [0, 5]> (x) }",
        INVALID,
        "^Transpose 'node0': In relax.permute_dims, the input axis 5 is out of range",
    ),
    "numbers and dtypes of TVM's": (
        "(float[1,3,8,8] x, float[4,5,3,3] w) => (float[] y) { [node0] y = Conv (x, w) }",
        INVALID,
        "^Conv 'node0': .* channel size is 3 while .* number of groups are 5 and 1$",
    ),
    "an error of a converter": (
        "(float[2,2] x, float[3,2] w) => (float[2,2] y) { [node0] y = Concat <axis = 1> (x, w) }",
        INVALID,
        "^Concat 'node0': shapes of the operands are ",
    ),
    "an error in a body": (
        """(float[2,2] x, bool b) => (float[2,2] y) {
        [cond] y = If (b) <
            then_branch = t () => (float[2,2] z) { [node0] z = Transpose <perm = [0, 5]> (x) },
            else_branch = e () => (float[2,2] z) { [node1] z = Relu (x) }> }""",
        INVALID,
        "^Transpose 'node0': ",
    ),
    "operators that are not supported": (
        """(float[2,2] x) => (float[2,2] y, float z) {
        [node0] a = Relu (x)
        [node1] z = RegexFullMatch (x)
        y = StringSplit (a) }""",
        MISSING,
        "^unsupported operator RegexFullMatch at node 'node1', StringSplit at the node with output "
        "'y'$",
    ),
    "one in a body": (
        """(float[2,2] x, bool b) => (float y) {
        [cond] y = If (b) <
            then_branch = t () => (float z) { [node0] z = RegexFullMatch (x) },
            else_branch = e () => (float z) { [node1] z = ReduceSum <keepdims = 0> (x) }> }""",
        MISSING,
        "^unsupported operator RegexFullMatch at node 'node0'$",
    ),
}


@pytest.mark.parametrize("name", REJECTED)
def test_errors_name_the_node(name: str) -> None:
    text, kind, message = REJECTED[name]
    with pytest.raises(kind, match=message) as error:
        from_onnx(text_model(text, 20))
    assert isinstance(error.value, ValueError)  # which TVM's importer raises for many of these


def test_the_original_error_is_the_cause() -> None:
    text = "(float[2,2] x) => (float[2,2] y) { [node0] y = Transpose <perm = [0, 5]> (x) }"
    with pytest.raises(INVALID) as error:
        from_onnx(text_model(text))
    assert "axis 5" in str(error.value.__cause__)


if __name__ == "__main__":
    tvm.testing.main()
