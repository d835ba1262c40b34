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
"""Steps around all converters: the source of results, and errors that name the node."""

from typing import Any

import tvm
from tvm import relax

from ....errors import OpNotImplemented
from ....fixes.torch_importer import DECOMPOSITIONS
from ....relax.source_nodes import mark
from ....support import switches
from ...convert import EVERY
from ..call import Call, converts
from ..graph.decompositions import WITHOUT_INDICES

# Errors of these types, but not of derived types, come without the name of the node.
_UNNAMED = (
    *(AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError),
    *(NotImplementedError, ZeroDivisionError, tvm.error.InternalError),
)


@converts(EVERY, place="source")
def convert_marked(call: Call) -> Any:
    """Mark the result with the node of the program before its decomposition."""
    with switches.at(call.source):
        result = call.proceed()
    mark(result, call.source)
    return result


@converts(EVERY, place="errors", fix=DECOMPOSITIONS)
def convert_named(call: Call) -> Any:
    """Let internal errors name the node.

    Raises
    ------
    tvm.error.OpNotImplemented
        Instead of the internal error.
    """
    try:
        return call.proceed()
    except Exception as error:
        # The exact type counts: TVM's errors for users are of classes derived from these.
        if type(error) not in _UNNAMED or repr(call.node.name) in str(error):
            raise
        raise OpNotImplemented(
            f"cannot import {call.node.target} at node {call.node.name!r}: "
            f"{type(error).__name__}: {error}"
        ) from error


@converts("getitem", fix=DECOMPOSITIONS)
def convert_getitem(call: Call) -> Any:
    """Read a result of an operator.

    Raises
    ------
    tvm.error.OpNotImplemented
        If no converter computes this result.
    """
    source, index = call.node.args
    has_results = isinstance(source.meta.get("val"), tuple | list)
    # A converter that returns a single tensor computes only the first result.
    only_first = isinstance(getattr(call.operands[0], "ty", None), relax.TensorType)
    only_first |= source.target in WITHOUT_INDICES
    if has_results and index != 0 and only_first and call.node.users:
        raise OpNotImplemented(
            f"{source.target} {source.name!r}: the program reads result {index}; "
            "expected only result 0"
        )
    return call.proceed()
