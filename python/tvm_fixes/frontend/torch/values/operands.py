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
"""Operands of operators: their dtypes, and numbers as tensors."""

from typing import Any

import numpy as np
import torch
from torch import fx
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as Kind
from torch._prims_common import elementwise_dtypes
from tvm import relax
from tvm.ir import PrimType

from ....errors import OpAttributeInvalid
from ....fixes.torch_importer import DTYPE
from ....support import switches
from ...dtypes import accumulation_dtype, dtype_of
from ...extents import static_extent
from ..call import Call

__all__ = [
    "Kind",
    "dtypes",
    "has_dtype",
    "integers",
    "operand_of",
    "operands_of",
    "result_dtype",
    "value_of",
]


def integers(operator: str, name: str, value: Any, count: int) -> list[int]:
    """Return an attribute as `count` integers; a single integer applies to all axes.

    Raises
    ------
    tvm.error.OpAttributeInvalid
        If an element is symbolic, or the number of elements is neither 1 nor `count`.
    """
    values = list(value) if isinstance(value, list | tuple) else [value]
    values = [static_extent(v) for v in (values * count if len(values) == 1 else values)]
    if len(values) != count or None in values:
        raise OpAttributeInvalid(
            f"{operator}: attribute {name} is {value}; expected {count} integers known at import"
        )
    return values


def dtypes(operand: relax.Expr) -> tuple[str, str]:
    """Return the result dtype and the accumulation dtype for the first operand of an operator."""
    dtype = dtype_of(operand)
    if dtype != "float32":
        switches.note(DTYPE)
    return dtype, accumulation_dtype(dtype)


def value_of(argument: Any) -> Any:
    """Return PyTorch's value of an argument: a fake tensor, a number, or a symbolic number."""
    return argument.meta.get("val") if isinstance(argument, fx.Node) else argument


def _example(argument: Any) -> Any:
    """Return an operand for PyTorch's promotion; an example replaces a symbolic number."""
    value = value_of(argument)
    for symbolic, example in (
        (torch.SymBool, True),
        (torch.SymInt, 1),
        (torch.SymFloat, 1.0),
    ):
        if isinstance(value, symbolic):
            return example
    return value


def result_dtype(call: Call, kind: Kind, *arguments: Any) -> str:
    """Return the dtype in which PyTorch computes an elementwise operator of `arguments`."""
    examples = [_example(argument) for argument in arguments if argument is not None]
    _, dtype = elementwise_dtypes(*examples, type_promotion_kind=kind)
    name: str = call.context.dtype(dtype)
    return name


def operand_of(call: Call, value: Any, dtype: str) -> relax.Expr:
    """Convert an operand (a tensor, a number or a size) to a tensor of `dtype`."""
    if not isinstance(value, relax.Expr):
        if "int" in dtype and isinstance(value, int | float):
            # PyTorch truncates and wraps a number that does not fit the dtype.
            value = torch.tensor(value).to(getattr(torch, dtype)).numpy()
        return relax.const(value, dtype)
    if isinstance(value.ty, PrimType):
        return call.context.scalar_tensor(value, dtype)
    return call.astype(value, dtype)


def operands_of(call: Call, dtype: str) -> list[relax.Expr]:
    """Convert all positional operands to tensors of `dtype`."""
    return [operand_of(call, value, dtype) for value in call.operands]


def has_dtype(value: Any, dtype: str) -> bool:
    """Whether a tensor has `dtype`, or a number fits it; False for a size of the program."""
    if isinstance(value, int | float) and "int" in dtype:
        return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)
    if not isinstance(value, relax.Expr):
        return True
    return isinstance(value.ty, relax.TensorType) and dtype_of(value) == dtype
