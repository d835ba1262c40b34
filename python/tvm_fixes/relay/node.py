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
"""The check of a node's parts."""

from typing import Any

from ..errors import RelayError


def required(*parts: Any) -> tuple[Any, ...]:
    """The parts of a node: objects, and lists and dicts of objects.

    The C++ constructors do not check them: the nodes of a file may share a long array.

    Raises
    ------
    RelayError
        If a part or an element is None.
    """
    for part in parts:
        elements = part.values() if isinstance(part, dict) else part
        if part is None or (isinstance(part, list | dict) and any(e is None for e in elements)):
            raise RelayError("a part of a node is None")
    return parts
