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
"""The decompositions of operators, by overload."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

__all__ = ["RULES", "decomposes"]

F = TypeVar("F", bound=Callable[..., Any])

RULES: dict[torch._ops.OperatorBase, Callable[..., Any]] = {}
"""The rules of all families."""


def decomposes(*overloads: torch._ops.OperatorBase) -> Callable[[F], F]:
    """Register the decorated function as the decomposition of `overloads`."""

    def register(rule: F) -> F:
        RULES.update(dict.fromkeys(overloads, rule))
        return rule

    return register
