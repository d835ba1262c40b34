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
"""Locations in a module: their text, and their nodes."""

from collections.abc import Iterable

import tvm
from tvm_ffi.access_path import AccessKind, AccessPath, AccessStep


def path_text(path: AccessPath) -> str:
    """Write a path in Python: ``functions["main"].body.blocks[0].bindings[1].value``."""
    return _steps_text(path.to_steps())


def node_at(root: tvm.runtime.Object, steps: Iterable[AccessStep]) -> tvm.runtime.Object:
    """Return the node that `steps` lead to from `root`."""
    for step in steps:
        root = getattr(root, step.key) if step.kind == AccessKind.ATTR else root[step.key]
    return root


def short_text(path: AccessPath) -> str:
    """Write a path without its function: ``body.blocks[0].bindings[1]``."""
    steps = list(path.to_steps())
    return _steps_text(steps[2:] or steps)


def _steps_text(steps: Iterable[AccessStep]) -> str:
    parts = []
    for step in steps:
        if step.kind in (AccessKind.ATTR, AccessKind.ATTR_MISSING):
            parts.append(f".{step.key}")
        elif isinstance(step.key, tvm.ir.GlobalVar):
            parts.append(f'["{step.key.name_hint}"]')
        else:
            parts.append(f"[{step.key!r}]")
    return "".join(parts).removeprefix(".")
