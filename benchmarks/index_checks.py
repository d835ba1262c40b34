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
"""The cost of bounded indices in a language model, which looks up tokens and takes the last one.

The model is compiled for the CPU of this machine as three functions of one executable: twice
without bounds, and once with them.  They share weights and all other kernels, like those of
``benchmarks/runtime_checks.py``.  The second function without bounds is the control.
"""

from functools import partial

import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.utils import copy_with_new_vars

from tvm_fixes.frontend.torch import from_exported_program
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.analysis import operator_calls
from tvm_fixes.relax.transform import CheckIndices
from tvm_fixes.support import ambient
from tvm_fixes.target import resolve

from .measure import Comparison, compare
from .runtime_checks import check

__all__ = ["check", "comparisons", "model"]

_RUNS = 1000
_LOOKUP = "relax.take"


class _LanguageModel(nn.Module):
    """Two blocks of attention and linear layers; nanoGPT also ends with the last position only."""

    def __init__(self, width: int = 256, vocabulary: int = 1000, context: int = 128) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, nhead=4, dim_feedforward=4 * width, batch_first=True, norm_first=True
            )
            for _ in range(2)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, [-1], :])


def model() -> tuple[tvm.IRModule, list[tvm.runtime.Tensor]]:
    """Return the imported model and its inputs: 2 sequences of 64 tokens."""
    inputs = torch.randint(0, 1000, (2, 64)), torch.arange(64).expand(2, 64).contiguous()
    program = torch.export.export(_LanguageModel().eval(), inputs)
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    return mod, [tvm.runtime.tensor(value.numpy()) for value in inputs]


def comparisons() -> list[Comparison]:
    """Compare the model without bounds, again without bounds, and with bounds.

    Raises
    ------
    RuntimeError
        If no index of the model is checked.
    """
    mod, arguments = model()
    main = mod["main"]
    with resolve("native"):
        with ambient.within(trusts_indices=True):
            without = _lower_lookups(
                tvm.IRModule({"function0": _named(main, 0), "function1": _named(main, 1)})
            )
        builder = relax.BlockBuilder(without)
        builder.add_func(_named(main, 2), "function2")
        checked = CheckIndices()(builder.get())
        count = checked["function2"].script(show_meta=False).count("(check_indices")
        if count == 0:
            raise RuntimeError("no index is checked")
        whole = _lower_lookups(checked)
    executable = tvm.compile(whole, resolve("native"), relax_pipeline=pipeline(unsafe_indices=True))
    machine = relax.VirtualMachine(executable, tvm.cpu())
    names = ("without bounds", "without bounds, again", f"with bounds, and {count} checks")
    implementations = {
        name: partial(machine[f"function{i}"], *arguments) for i, name in enumerate(names)
    }
    return [compare("run a language model", implementations, runs=_RUNS)]


def _named(function: relax.Function, number: int) -> relax.Function:
    return copy_with_new_vars(function).with_attr("global_symbol", f"function{number}")


def _lower_lookups(mod: tvm.IRModule) -> tvm.IRModule:
    others = {binding.value.op.name for _, binding in operator_calls(mod)} - {_LOOKUP}
    return relax.transform.LegalizeOps(skip_ops=sorted(others))(mod)
