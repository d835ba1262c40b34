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
"""The text of errors of checks that a compiled model makes while it runs."""

import re
from collections.abc import Sequence
from typing import Any

from .manifest import TensorSpec, describe_shape

__all__ = ["failed_check"]

# The first part is the node, and the requirement that the importer gave, if any.
_CHECK = re.compile(
    r"(?:\((?P<actual>-?\d+) vs\. (?P<expected>-?\d+))?\) : "
    r"(?:(?P<reason>.+?); )?ErrorContext\(match_cast, ty=(?P<type>.*)\)\s+match_cast error,"
    r"\s*(?P<detail>[^\n]*)",
    re.S,
)
_AXIS = re.compile(r"shape\[(\d+)\]")
_INPUT = re.compile(r"ErrorContext\(fn=\w+, loc=param\[(\d+)\], .*match_cast error,", re.S)

_REMEDY = "other sizes (--size, --inputs) or a model compiled for them (--shape) may be valid"


def failed_check(text: str, specs: Sequence[TensorSpec], inputs: Sequence[Any]) -> str:
    """The message about inputs that a check in the model rejects.

    Parameters
    ----------
    text : str
        The text of TVM's error.
    specs : sequence of TensorSpec
        The inputs in order.
    inputs : sequence of arrays
        Their values, in the same order.

    Returns
    -------
    str
        The node with its requirement, and the shapes of the inputs; empty for another error.
    """
    shapes = [
        (spec.name, describe_shape(getattr(value, "shape", ())))
        for spec, value in zip(specs, inputs, strict=False)
    ]
    of_input, check = _INPUT.search(text), _CHECK.search(text)
    if of_input is not None and int(of_input[1]) < len(specs):
        spec = specs[int(of_input[1])]
        reason = f"input {spec.name!r}: expected shape {describe_shape(spec.shape)}"
    elif check is None:
        return ""
    else:
        detail = " ".join(check["detail"].split())
        inner = f"a value within the model is not {check['type']}: {detail.rstrip('.')}"
        reason = check["reason"] or inner
        axis = _AXIS.search(check["detail"])
        if check["reason"] and "expected" not in reason and axis and check["actual"]:
            reason += (
                f": axis {axis[1]} of a value has {check['actual']} elements; "
                f"expected {check['expected']}"
            )
    listed = ", ".join(f"{name} {shape}" for name, shape in shapes)
    remedy = "" if "export the program" in reason else f"; {_REMEDY}"
    return f"{reason}; the inputs have the shapes {listed}{remedy}"
