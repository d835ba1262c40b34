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
"""The description of an architecture: how its model and its inputs are made."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

VOCABULARY = 99

MakeInputs = Callable[[int, int], dict[str, torch.Tensor]]


@dataclass(frozen=True)
class Inputs:
    """The inputs of a model by name, for a batch and a length.

    Attributes
    ----------
    make : callable
        Makes them.
    dynamic : mapping
        The axes that a dynamic program leaves open, by input.
    """

    make: MakeInputs
    dynamic: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Entry:
    """An architecture with a small configuration and random weights.

    Attributes
    ----------
    library : str
        The Python package that defines it.
    make : callable
        Makes the module.
    inputs : Inputs
        Its inputs.
    sizes : tuple
        Two pairs of batch and length; a static program is run twice on the first.
    onnx : bool
        Whether the ONNX exports are tested too.
    """

    library: str
    make: Callable[[], nn.Module]
    inputs: Inputs
    sizes: tuple[tuple[int, int], tuple[int, int]] = ((2, 12), (3, 9))
    onnx: bool = False


class Tensors(nn.Module):
    """The tensors that a model returns, as a flat tuple; its inputs are positional.

    Parameters
    ----------
    model : nn.Module
    names : tuple of str
        The names of the inputs; one that begins with ``_`` is a positional argument of the model.
    options : dict
        The other keyword arguments of the model.
    """

    def __init__(self, model: nn.Module, names: tuple[str, ...], options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.options = model, names, options

    def forward(self, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        pairs = list(zip(self.names, inputs, strict=True))
        positional = [value for name, value in pairs if name.startswith("_")]
        named = {name: value for name, value in pairs if not name.startswith("_")}
        found = pytree.tree_leaves(self.model(*positional, **named, **self.options))
        return tuple(value for value in found if isinstance(value, torch.Tensor | fx.Proxy))


def padding(batch: int, length: int) -> torch.Tensor:
    """A mask whose rows but the first end with two tokens of padding."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1:, -2:] = 0
    return mask


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


SEQUENCE = (0, 1)
BATCH = (0,)

TEXT = Inputs(
    lambda batch, length: {
        "input_ids": tokens(batch, length),
        "attention_mask": padding(batch, length),
    },
    {"input_ids": SEQUENCE, "attention_mask": SEQUENCE},
)
TOKENS = Inputs(lambda batch, length: {"input_ids": tokens(batch, length)}, {"input_ids": SEQUENCE})
TRANSLATION = Inputs(
    lambda batch, length: {
        "input_ids": tokens(batch, length),
        "decoder_input_ids": tokens(batch, length // 2 + 1),
    },
    {"input_ids": SEQUENCE, "decoder_input_ids": SEQUENCE},
)


def pictures(size: int = 32, name: str = "pixel_values", channels: int = 3) -> Inputs:
    """A batch of pictures."""
    return Inputs(
        lambda batch, length: {name: torch.randn(batch, channels, size, size)}, {name: BATCH}
    )


def of_shape(**shapes: tuple[Any, ...]) -> Inputs:
    """Random tensors of `shapes`, whose extents are numbers, ``"batch"`` or ``"length"``."""

    def make(batch: int, length: int) -> dict[str, torch.Tensor]:
        extents = {"batch": batch, "length": length}
        return {
            name: torch.randn([extents.get(extent, extent) for extent in shape])
            for name, shape in shapes.items()
        }

    dynamic = {
        name: tuple(axis for axis, extent in enumerate(shape) if isinstance(extent, str))
        for name, shape in shapes.items()
    }
    return Inputs(make, dynamic)
