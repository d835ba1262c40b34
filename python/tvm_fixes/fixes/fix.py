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
"""The attributes of a fix, and its declaration."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .. import versions

_SUPPORTED = f">={versions.OLDEST_TVM}"


class Kind(StrEnum):
    """Where a fix takes effect."""

    PASS = "pass"
    OPERATOR_ATTRIBUTE = "operator attribute"
    IMPORTER = "importer"
    CODE_GENERATOR = "code generator"
    BINDING = "Python binding"
    TOOL = "tool"
    ENVIRONMENT = "environment"


class Symptom(StrEnum):
    """The symptom of a fault."""

    CRASH = "crash"
    """The process ends, exhausts memory, or accesses memory outside a tensor."""
    ERROR = "error"
    """A valid model is rejected, or does not build."""
    WRONG = "wrong result"
    """The result is wrong, or a wrong module is accepted, without an error."""
    COST = "cost"
    """The result is right, but slow, or takes too much memory."""


@dataclass(frozen=True)
class Fix:
    """One fix.

    Attributes
    ----------
    id : str
        Its name in ``TVM_FIXES_DISABLE``.
    family : str
        Its group of operators or part of TVM, as a slug.
    kind : Kind
        Where it takes effect.
    summary : str
        What it does, in one line.
    symptoms : mapping of Symptom to str
        What a user of stock TVM sees; the probe has the text of the error.
    upstream : tuple of int
        Issues and pull requests of apache/tvm.
    versions : str
        The affected versions of TVM, as a version specifier; by default, all supported versions.
    requirement : str or None
        For kind ``ENVIRONMENT``: the package and its versions without the fault, as a requirement
        specifier.

    Raises
    ------
    ValueError
        If kind and requirement do not match.
    """

    id: str
    family: str
    kind: Kind
    summary: str
    symptoms: Mapping[Symptom, str]
    upstream: tuple[int, ...] = ()
    versions: str = _SUPPORTED
    requirement: str | None = None

    def __post_init__(self) -> None:
        if (self.requirement is not None) is not (self.kind is Kind.ENVIRONMENT):
            raise ValueError(f"fix {self.id!r}: kind {self.kind} and requirement do not match")


declared: dict[str, Fix] = {}
"""The fixes by their ids, in the order of their declarations."""


def declare(
    fix_id: str,
    *,
    family: str,
    kind: Kind,
    summary: str,
    symptoms: Mapping[Symptom, str],
    upstream: tuple[int, ...] = (),
    versions: str = _SUPPORTED,
    requirement: str | None = None,
) -> str:
    """Declare a fix; the parameters are the attributes of :class:`Fix`.

    Returns
    -------
    str
        The id, which the code of the fix passes to the switches.

    Raises
    ------
    ValueError
        If the id is declared already, or if kind and requirement do not match.
    """
    if fix_id in declared:
        raise ValueError(f"fix {fix_id!r} is declared twice")
    declared[fix_id] = Fix(fix_id, family, kind, summary, symptoms, upstream, versions, requirement)
    return fix_id
