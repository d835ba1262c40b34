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
"""The three ways from a PyTorch module to Relax."""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import torch
import tvm
from torch import fx, nn
from tvm import tirx

from tvm_fixes.frontend.torch import from_exported_program, from_fx

InputInfo = list[tuple[tuple[Any, ...], str]]
"""The shapes and dtypes of the inputs of a traced module."""


class Way(StrEnum):
    """How a module is imported."""

    EXPORTED = "exported"
    NOT_DECOMPOSED = "not decomposed"
    TRACED = "traced"

    @staticmethod
    def of(seed: int) -> "Way":
        """The way of a case: half of the cases are exported and decomposed."""
        ways = (Way.EXPORTED, Way.NOT_DECOMPOSED, Way.EXPORTED, Way.TRACED)
        return ways[(seed // len(ways)) % len(ways)]


def traced(forward: Callable[..., Any], count: int) -> fx.GraphModule:
    """Trace a function, or a module in evaluation mode, of `count` tensors.

    Raises
    ------
    Exception
        Whatever the function raises for a proxy: it cannot be traced.
    """
    names = ", ".join(f"x{index}" for index in range(count))
    scope: dict[str, Any] = {}
    exec(f"def forward(self, {names}):\n    return self.run({names})", scope)
    root = type("Root", (nn.Module,), {"forward": scope["forward"]})().eval()
    root.run = forward
    return fx.symbolic_trace(root)


def input_info(program: torch.export.ExportedProgram) -> InputInfo:
    """The shapes and dtypes of the inputs of a program; its symbols become variables."""
    symbols: dict[str, tirx.Var] = {}

    def extent(size: Any) -> Any:
        text = str(size)
        for name in re.findall(r"[a-z]\w*", text):
            symbols.setdefault(name, tirx.Var(name, "int64"))
        return eval(text.replace("/", "//"), dict(symbols)) if symbols else int(text)

    names = set(program.graph_signature.user_inputs)
    values = [n.meta["val"] for n in program.graph.nodes if n.name in names]
    return [
        (tuple(extent(size) for size in value.shape), str(value.dtype).removeprefix("torch."))
        for value in values
    ]


def imported(
    way: Way, program: torch.export.ExportedProgram, trace: fx.GraphModule | None = None
) -> tvm.IRModule:
    """Import a program, or the `trace` of the same module, by a `way`."""
    if way is Way.TRACED:
        assert trace is not None
        return from_fx(trace, input_info(program))
    return from_exported_program(program, run_ep_decomposition=way is Way.EXPORTED)
