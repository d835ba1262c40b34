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
"""Single PyTorch transposed convolutions, called in every supported way."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from helpers.torch_programs import FLOATS, name_of, random, randomize

# By axes D, H, W; a layer of lower rank uses the last ones.
GEOMETRIES: dict[str, dict[str, tuple[int, int, int]]] = {
    "plain": {},
    "kernel-1": {"kernel": (1, 1, 1)},
    "kernel-asymmetric": {"kernel": (2, 4, 3)},
    "stride-2": {"stride": (2, 2, 2)},
    "stride-asymmetric": {"stride": (1, 3, 2)},
    "kernel-is-stride": {"kernel": (2, 2, 2), "stride": (2, 2, 2)},
    "stride-beyond-kernel": {
        "kernel": (1, 2, 1),
        "stride": (3, 4, 2),
        "output_padding": (2, 3, 1),
    },
    "doubling": {"kernel": (4, 4, 4), "stride": (2, 2, 2), "padding": (1, 1, 1)},
    "doubling-odd": {
        "stride": (2, 2, 2),
        "padding": (1, 1, 1),
        "output_padding": (1, 1, 1),
    },
    "padding-2": {"padding": (2, 2, 2)},
    "padding-asymmetric": {"kernel": (3, 2, 5), "padding": (1, 0, 2)},
    "output-padding-asymmetric": {"stride": (2, 3, 3), "output_padding": (0, 2, 1)},
    "dilation-2": {"dilation": (2, 2, 2)},
    "dilation-asymmetric": {"dilation": (2, 1, 3), "padding": (1, 1, 0)},
    "dilation-and-stride": {
        "stride": (2, 2, 2),
        "dilation": (2, 2, 2),
        "padding": (1, 1, 1),
        "output_padding": (1, 1, 1),
    },
    "output-padding-below-dilation": {"dilation": (3, 3, 3), "output_padding": (2, 2, 2)},
    "output-padding-mixed": {
        "stride": (1, 1, 2),
        "dilation": (2, 1, 3),
        "output_padding": (1, 0, 2),
    },
    "extent-1": {"extent": (1, 1, 1), "kernel": (4, 4, 4)},
    "extent-1-stride": {"extent": (1, 1, 1), "stride": (3, 3, 3), "output_padding": (2, 1, 2)},
    "one-element-left": {"extent": (3, 3, 3), "padding": (2, 2, 2), "kernel": (3, 3, 3)},
}
# Channels in and out, groups.
CHANNELS = ((4, 6, 1), (4, 6, 2), (4, 4, 4), (3, 6, 3), (1, 1, 1))


@dataclass(frozen=True)
class Layer:
    """A transposed convolution and how it is called."""

    rank: int
    geometry: str = "plain"
    channels: tuple[int, int, int] = (4, 6, 1)
    bias: bool = True
    dtype: torch.dtype = torch.float32
    batched: bool = True
    call: str = "module"
    # The excess of output_size over the output without output padding.
    more: tuple[int, ...] = (0, 0, 0)
    dynamic: tuple[int, ...] = ()
    # Whether an exported program is decomposed before it is imported.
    decompose: bool = True
    options: dict[str, tuple[int, ...]] = field(init=False, hash=False, compare=False)

    def __post_init__(self) -> None:
        defaults = {
            "extent": (3, 4, 5),
            "kernel": (3, 3, 3),
            "stride": (1, 1, 1),
            "padding": (0, 0, 0),
            "output_padding": (0, 0, 0),
            "dilation": (1, 1, 1),
        }
        options = {k: v[-self.rank :] for k, v in (defaults | GEOMETRIES[self.geometry]).items()}
        object.__setattr__(self, "options", options)

    def __str__(self) -> str:
        return (
            f"{self.rank}d-{self.geometry}-{'x'.join(map(str, self.channels))}-bias{self.bias:d}-"
            f"{name_of(self.dtype)}-batched{self.batched:d}-{self.call}-"
            f"more{''.join(map(str, self.more))}-dynamic{''.join(map(str, self.dynamic))}-"
            f"decompose{self.decompose:d}"
        )

    def module(self) -> nn.Module:
        channels, out_channels, groups = self.channels
        options = {k: v for k, v in self.options.items() if k not in ("extent", "kernel")}
        layer = getattr(nn, f"ConvTranspose{self.rank}d")(
            channels, out_channels, self.options["kernel"], groups=groups, bias=self.bias, **options
        )
        called = CalledLike if self.call == "output_size-like" else Called
        return randomize(called(layer, self), self.dtype)

    def inputs(self) -> tuple[torch.Tensor, ...]:
        leading = (2, self.channels[0]) if self.batched else self.channels[:1]
        x = random(*leading, *self.options["extent"], dtype=self.dtype, seed=0)
        if self.call != "output_size-like":
            return (x,)
        return x, torch.zeros(self.out_shape, dtype=self.dtype)

    @property
    def out_shape(self) -> tuple[int, ...]:
        leading = (2, self.channels[1]) if self.batched else self.channels[1:2]
        options = self.options
        return leading + tuple(
            (options["extent"][axis] - 1) * options["stride"][axis]
            - 2 * options["padding"][axis]
            + options["dilation"][axis] * (options["kernel"][axis] - 1)
            + 1
            + self.more[-self.rank :][axis]
            for axis in range(self.rank)
        )


def _functional(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    operator = getattr(F, f"conv_transpose{len(layer.kernel_size)}d")
    return operator(
        x,
        layer.weight,
        layer.bias,
        layer.stride,
        layer.padding,
        layer.output_padding,
        layer.groups,
        layer.dilation,
    )


def _keywords(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    operator = getattr(F, f"conv_transpose{len(layer.kernel_size)}d")
    options = ("bias", "stride", "padding", "output_padding", "groups", "dilation")
    return operator(x, layer.weight, **{name: getattr(layer, name) for name in options})


CALLS: dict[str, Callable[[nn.Module, torch.Tensor, Layer], torch.Tensor]] = {
    "module": lambda layer, x, case: layer(x),
    "functional": lambda layer, x, case: _functional(layer, x),
    "keywords": lambda layer, x, case: _keywords(layer, x),
    "output_size": lambda layer, x, case: layer(x, output_size=list(case.out_shape[-case.rank :])),
    "output_size-all-axes": lambda layer, x, case: layer(x, list(case.out_shape)),
}


class Called(nn.Module):
    """A layer called in one of the ways of ``CALLS``."""

    def __init__(self, layer: nn.Module, case: Layer) -> None:
        super().__init__()
        self.layer = layer
        self.case = case

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CALLS[self.case.call](self.layer, x, self.case)


class CalledLike(Called):
    """A layer with an output of the same size as another tensor."""

    def forward(self, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return self.layer(x, output_size=like.size())


def _grid() -> list[Layer]:
    # Cycle through the channels, so that each is combined with every value of the others.
    channels = itertools.cycle(CHANNELS)
    product = itertools.product((1, 2, 3), GEOMETRIES, FLOATS, (True, False), (True, False))
    return [
        Layer(rank, geometry, next(channels), bias, dtype, batched, decompose=bias == batched)
        for rank, geometry, dtype, bias, batched in product
    ]


def _calls() -> list[Layer]:
    layers = []
    for rank in (1, 2, 3):
        strided: dict[str, Any] = {"rank": rank, "geometry": "stride-asymmetric"}
        layers += [
            Layer(
                **strided,
                call=call,
                batched=batched,
                more=(0, height, width),
                decompose=batched,
            )
            for call in ("output_size", "output_size-all-axes", "output_size-like")
            for batched in (True, False)
            for height, width in ((0, 0), (1, 1), (2, 0))
        ]
        layers += [
            Layer(rank, geometry, channels, bias, call=call, decompose=bias)
            for call in ("functional", "keywords")
            for geometry in ("doubling-odd", "dilation-asymmetric")
            for channels in ((4, 6, 1), (4, 6, 2))
            for bias in (True, False)
        ]
        layers += [
            Layer(rank, geometry, bias=bias, dtype=dtype, dynamic=dynamic, decompose=bias)
            for geometry in ("plain", "doubling", "doubling-odd")
            for bias, dtype in ((True, torch.float32), (False, torch.float16))
            for dynamic in ((0,), (0, *range(2, rank + 2)))
        ]
    return layers


LAYERS = [*_grid(), *_calls()]
