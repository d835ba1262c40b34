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
"""Comparison of exported programs with PyTorch, for several inputs of one compiled program."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import tvm
from torch import nn
from torch.utils import _pytree as pytree
from tvm import relax

import tvm_fixes
from helpers.relax_modules import cpu
from tvm_fixes.frontend.torch import from_exported_program

Inputs = Sequence[torch.Tensor]


def compiled(mod: tvm.IRModule) -> Callable[..., list[torch.Tensor]]:
    """Build a module; returns a function of its inputs."""
    vm = relax.VirtualMachine(relax.build(mod, cpu(), relax_pipeline="tvm_fixes"), tvm.cpu())

    def run(*inputs: torch.Tensor) -> list[torch.Tensor]:
        given = [tvm.runtime.from_dlpack(x.detach().contiguous()) for x in inputs]
        return [torch.from_dlpack(result) for result in vm["main"](*given)]

    return run


def check_exported(
    module: nn.Module,
    *runs: Inputs,
    dynamic: Any = None,
    tolerance: float = 1e-5,
    reload: Callable[[torch.export.ExportedProgram], torch.export.ExportedProgram] | None = None,
    by_program: bool = False,
) -> tvm.IRModule:
    """Compare a module, exported with its first inputs, with PyTorch for each of its inputs.

    Parameters
    ----------
    module : nn.Module
        The module.
    *runs : sequences of torch.Tensor
        Its inputs in each run.
    dynamic : optional
        ``dynamic_shapes`` of the export.
    tolerance : float
        The relative and absolute tolerance.
    reload : callable, optional
        Applied to the program before the import.
    by_program : bool
        Whether PyTorch runs the exported program instead of the module.  A module's loops are
        compiled by Dynamo for each new shape, which takes longer than all else.

    Returns
    -------
    tvm.IRModule
        The imported program.
    """
    # Dynamo would make symbols of extents that differ from those of an earlier export.
    torch.compiler.reset()
    module = module.eval()
    program = torch.export.export(module, tuple(runs[0]), dynamic_shapes=dynamic)
    mod = from_exported_program(program if reload is None else reload(program))
    tvm_fixes.verify(mod).raise_if_errors()
    run = compiled(mod)
    reference = program.module() if by_program else module
    for inputs in runs:
        with torch.no_grad():
            expected = pytree.tree_leaves(reference(*inputs))
        got = run(*inputs)
        assert len(got) == len(expected)
        for result, value in zip(got, expected, strict=True):
            torch.testing.assert_close(result, value, rtol=tolerance, atol=tolerance)
    return mod
