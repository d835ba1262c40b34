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
"""Recipes of realistic inputs: pictures, sound, tokens and states rather than plain noise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

Recipe = Callable[[np.random.Generator], np.ndarray]
"""Makes one input."""


@dataclass(frozen=True)
class Case:
    """Inputs of one size, for one or several steps.

    Attributes
    ----------
    inputs : mapping of str to Recipe
        The recipe of each input.  Each step makes new data.
    steps : int
        The number of consecutive calls.
    carry : mapping of str to str
        The inputs that hold a state, and the outputs that become their values in the next step.
    """

    inputs: Mapping[str, Recipe]
    steps: int = 1
    carry: Mapping[str, str] = field(default_factory=dict)


def picture(
    *shape: int, low: float = 0.0, high: float = 1.0, channels_last: bool = False
) -> Recipe:
    """Smooth areas with edges and some noise, from `low` to `high`, as in a photograph.

    Parameters
    ----------
    *shape : int
        Batch, channels, height and width.
    low, high : float
        The range of the values.
    channels_last : bool
        Whether the channels are the last axis, in the shape too.
    """

    def make(rng: np.random.Generator) -> np.ndarray:
        batch, height, width, channels = (
            shape if channels_last else (shape[0], shape[2], shape[3], shape[1])
        )
        y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j][..., None]
        frequency, phase = (
            rng.uniform(1, 9, (2, batch, 1, 1, channels)),
            rng.uniform(0, 6, (2, batch, 1, 1, channels)),
        )
        waves = np.sin(frequency[0] * x + phase[0]) + np.cos(frequency[1] * y + phase[1])
        edges = (x + y > rng.uniform(0.5, 1.5, (batch, 1, 1, channels))) * 1.0
        noise = rng.normal(0, 0.05, (batch, height, width, channels))
        value = np.clip(0.25 * waves + 0.3 * edges + 0.35 + noise, 0, 1)
        if not channels_last:
            value = value.transpose(0, 3, 1, 2)
        return np.ascontiguousarray(low + (high - low) * value, "float32")

    return make


def sound(*shape: int, level: float = 0.3, rate: float = 16000.0) -> Recipe:
    """Harmonics of a voice with pauses and noise, along the last axis.

    Parameters
    ----------
    *shape : int
        The shape.
    level : float
        The loudest value.
    rate : float
        Samples per second.
    """

    def make(rng: np.random.Generator) -> np.ndarray:
        time = np.arange(shape[-1]) / rate
        pitch = rng.uniform(90, 250, (*shape[:-1], 1))
        wave = sum(np.sin(2 * np.pi * pitch * k * time) / k for k in range(1, 9))
        envelope = 0.5 + 0.5 * np.sin(2 * np.pi * 3 * time + rng.uniform(0, 6))
        value = level * (0.4 * wave * envelope + rng.normal(0, 0.02, shape))
        return value.reshape(shape).astype("float32")

    return make


def normal(*shape: int, scale: float = 1.0, mean: float = 0.0, dtype: str = "float32") -> Recipe:
    """Normally distributed features."""
    return lambda rng: rng.normal(mean, scale, shape).astype(dtype)


def uniform(*shape: int, low: float = 0.0, high: float = 1.0, dtype: str = "float32") -> Recipe:
    """Uniformly distributed features."""
    return lambda rng: rng.uniform(low, high, shape).astype(dtype)


def integers(*shape: int, below: int, low: int = 0, dtype: str = "int64") -> Recipe:
    """Tokens or classes, from `low` to one less than `below`."""
    return lambda rng: rng.integers(low, below, shape).astype(dtype)


def one_hot(*shape: int) -> Recipe:
    """Rows of zeros with a 1, along the last axis."""
    return lambda rng: np.eye(shape[-1], dtype="float32")[rng.integers(0, shape[-1], shape[:-1])]


def full(*shape: int, value: float, dtype: str = "float32") -> Recipe:
    """The same value everywhere: masks, lengths, sample rates and initial states."""
    return lambda rng: np.full(shape, value, dtype)


def counting(*shape: int, dtype: str = "int64") -> Recipe:
    """0, 1, 2, … along the last axis: positions."""
    return lambda rng: np.broadcast_to(np.arange(shape[-1]), shape).astype(dtype)


def in_bfloat16(recipe: Recipe) -> Recipe:
    """The same data in bfloat16, unless it is not float."""

    def make(rng: np.random.Generator) -> np.ndarray:
        value = recipe(rng)
        return value.astype(ml_dtypes.bfloat16) if value.dtype.kind == "f" else value

    return make


def to_torch(value: np.ndarray) -> Any:
    """Return an array as a tensor of PyTorch."""
    import torch

    if value.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(value.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(value)


def from_torch(value: Any) -> np.ndarray:
    """Return a tensor of PyTorch as an array."""
    import torch

    if value.dtype == torch.bfloat16:
        return np.asarray(value.view(torch.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.asarray(value.numpy())
