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
"""The export of PyTorch modules."""

import contextlib
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import CompileError
from ..support import logs
from .torch_caches import register_caches

if TYPE_CHECKING:
    import torch


def exported(
    module: "torch.nn.Module",
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    name: str,
    dynamic_shapes: Any = None,
) -> "torch.export.ExportedProgram":
    """The program of a module, called with example inputs; `name` is the model's in messages."""
    import torch

    from ..frontend.torch import recurrent_shapes

    register_caches()
    args, kwargs = _distinct((args, kwargs))
    # torch.export logs and prints the unfinished graph; the exception is enough.
    silent = contextlib.redirect_stderr(io.StringIO())
    with logs.captured("torch"), silent, torch.no_grad(), recurrent_shapes():
        try:
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
        except (Exception, SystemExit) as error:
            reason = next(iter(str(error).strip().splitlines()), "")
            if " " not in reason:  # only an operator, or the key of a KeyError
                reason = f"{type(error).__name__}: {reason}".removesuffix(": ")
            raise CompileError(
                f"{name}: torch.export failed: {reason}{_user_frame(error)}"
            ) from error


def _distinct(arguments: Any) -> Any:
    """The arguments, with a copy for each repeated tensor: torch.export would merge its inputs."""
    import torch
    from torch.utils import _pytree as pytree

    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if len({id(tensor) for tensor in tensors}) == len(tensors):
        return arguments
    seen: set[int] = set()

    def distinct(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    return pytree.tree_map(distinct, arguments)


def _user_frame(error: BaseException) -> str:
    """The place in the model's own code where ``torch.export`` failed, if the message names one."""
    import torch

    places = re.findall(r'File "([^"]+)", line (\d+), in (\w+)', str(error))
    package = str(Path(torch.__file__).parent)
    own = [place for place in places if not place[0].startswith(package)]
    return f" ({own[-1][0]}:{own[-1][1]}, in {own[-1][2]})" if own else ""
