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
"""Pass contexts like the current one, with other instruments."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

import tvm


class Running(Protocol):
    """A pass that an instrument saw begin."""

    @property
    def name(self) -> str:
        """The name of the pass."""


Item = TypeVar("Item", bound=Running)


def ended(running: list[Item], name: str) -> Item | None:
    """Remove the innermost running pass `name`, with passes in it, which raised; return it."""
    while running:
        last = running.pop()
        if last.name == name:
            return last
    return None


def watched_by(*instruments: tvm.ir.instrument.PassInstrument) -> tvm.transform.PassContext:
    """The current pass context with additional instruments."""
    current = tvm.transform.PassContext.current()
    return _like(current, [*current.instruments, *instruments])


def unwatched() -> tvm.transform.PassContext:
    """The current pass context without instruments, for passes on another module."""
    return _like(tvm.transform.PassContext.current(), ())


def _like(
    context: tvm.transform.PassContext, instruments: Iterable[tvm.ir.instrument.PassInstrument]
) -> tvm.transform.PassContext:
    return tvm.transform.PassContext(
        opt_level=context.opt_level,
        required_pass=context.required_pass,
        disabled_pass=context.disabled_pass,
        instruments=list(instruments),
        config=context.config,
    )
