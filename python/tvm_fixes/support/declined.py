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
"""Optimizations that a compilation did not apply, with the reasons."""

from dataclasses import dataclass

from . import ambient


@dataclass(frozen=True)
class NotDone:
    """An optimization that was not applied.

    Attributes
    ----------
    what : str
        The optimization, such as ``layout NCHW16c`` or ``product in integers``.
    where : str
        The nodes of the model; if unknown, the variable or kernel.  Empty for the whole model.
    reason : str
    """

    what: str
    where: str
    reason: str


def decline(what: str, where: str, reason: str) -> None:
    """Record an optimization that is not applied; the parameters are those of :class:`NotDone`."""
    ambient.record(NotDone(what, where, reason))
