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
"""The operators of a model, and which of them an importer converts."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Operator:
    """An operator of a model.

    Attributes
    ----------
    name : str
    calls : int
        The number of its calls in the model.
    places : list of str
        The place of each call, if the operator is unsupported.
    problem : str
        Why it is unsupported; empty if it is supported.
    """

    name: str
    calls: int
    places: list[str]
    problem: str


def counted(calls: Iterable[tuple[str, str, str]]) -> list[Operator]:
    """Count the calls of each operator.

    Parameters
    ----------
    calls : iterable of tuple
        The name of the operator, the place of the call, and why the operator is unsupported; the
        last is empty if it is supported.

    Returns
    -------
    list of Operator
        The unsupported ones first, then by the number of calls.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for name, place, problem in calls:
        places.setdefault((name, problem), []).append(place)
    operators = [
        Operator(name, len(of_name), of_name if problem else [], problem)
        for (name, problem), of_name in places.items()
    ]
    return sorted(operators, key=lambda one: (not one.problem, -one.calls, one.name))
