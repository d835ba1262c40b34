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
"""The options of the backend."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self

import tvm

from .. import target as targets
from ..errors import UsageError
from ..lowering import layout_named

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """The options of ``torch.compile(model, backend="tvm_fixes", options={...})``.

    Attributes
    ----------
    target : str, mapping or tvm.target.Target
        As for :func:`tvm_fixes.compile`; a CPU.
    layout : str, optional
        As for :func:`tvm_fixes.compile`.
    fallback : bool
        Whether PyTorch runs what cannot be compiled.  Otherwise, that is an error.
    cache : bool
        Whether compiled code is stored on disk, and taken from there by later processes.
    """

    target: Any = "native"
    layout: str | None = None
    fallback: bool = True
    cache: bool = True

    @classmethod
    def read(cls, options: Mapping[str, Any] | None, mode: str | None) -> Self:
        """Check the options of a call of ``torch.compile``.

        Raises
        ------
        UsageError
            If an option or the mode is unknown, or has an invalid value.
        """
        # The default of transformers' CompileConfig; only on a GPU does it differ from the default.
        if mode not in (None, "default", "reduce-overhead"):
            raise UsageError(f"mode: expected 'default' or 'reduce-overhead', got {mode!r}")
        names = [field.name for field in fields(cls)]
        for name in options or {}:
            if name not in names:
                raise UsageError(f"unknown option {name!r}; options: {', '.join(names)}")
        read = cls(**(options or {}))
        for name in ("fallback", "cache"):
            if not isinstance(getattr(read, name), bool):
                raise UsageError(f"{name}: expected a bool, got {getattr(read, name)!r}")
        layout_named(read.layout)
        read.resolved_target()
        return read

    def resolved_target(self) -> tvm.target.Target:
        """The target, which runs on this machine."""
        return targets.resolve(self.target, kinds=["llvm"])
