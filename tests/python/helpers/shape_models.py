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
"""Small models that compute shapes from the extents of their inputs, in several forms."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from torch import nn

from examples._random import seeded
from helpers.onnx_graphs import text_model
from helpers.torch_programs import Call

Sizes = Mapping[str, int]
Shape = tuple[int | str, ...]


class Form(StrEnum):
    """The form in which a model is imported."""

    BY_HAND = "ONNX by hand"
    TORCHSCRIPT = "ONNX by TorchScript"
    DYNAMO = "ONNX by dynamo"
    EXPORTED = "exported program"
    NOT_DECOMPOSED = "exported program, not decomposed"
    TRACED = "traced module"


FORMS_OF_TORCH = (Form.TORCHSCRIPT, Form.DYNAMO, Form.EXPORTED)


@dataclass(frozen=True)
class Model:
    """A model and the sizes to run it with.

    Attributes
    ----------
    subject : str
        The subject of the model.
    source : str or callable
        A graph in ONNX's text form, or a function of tensors, which may be a module.
    shapes : tuple
        Input shapes; a string is a symbol or its multiple, ``2*n``.
    sizes : sequence of mapping
        Values of the symbols to run with; the static form uses the first.
    dtypes : tuple of str
        Dtypes of the first inputs; the others are float32.
    forms : tuple of Form
        The available forms.
    """

    subject: str
    source: str | Callable[..., Any]
    shapes: tuple[Shape, ...]
    sizes: Sequence[Sizes]
    dtypes: tuple[str, ...] = ()
    forms: tuple[Form, ...] = FORMS_OF_TORCH

    def inputs(self, sizes: Sizes) -> list[np.ndarray]:
        """Integers from -4 to 4 as floats, or from 0 to 4 for integer dtypes."""
        rng = np.random.default_rng(sum(sizes.values()))
        dtypes = [*self.dtypes, *["float32"] * len(self.shapes)]
        return [
            rng.integers(
                -4 if dtype == "float32" else 0,
                2 if dtype == "bool" else 5,
                [_extent(dim, sizes) for dim in shape],
            ).astype(dtype)
            for shape, dtype in zip(self.shapes, dtypes, strict=False)
        ]

    @property
    def symbols(self) -> list[str]:
        dims = {dim for shape in self.shapes for dim in shape if isinstance(dim, str)}
        return sorted({dim.rpartition("*")[2] for dim in dims})

    @property
    def module(self) -> nn.Module:
        """The module of a model that is not handwritten."""
        assert not isinstance(self.source, str)
        return self.source if isinstance(self.source, nn.Module) else Call(self.source).eval()

    def exported(self, is_symbolic: bool) -> torch.export.ExportedProgram:
        inputs = tuple(map(torch.from_numpy, self.inputs(self.sizes[0])))
        dims = {name: torch.export.Dim(name, min=3, max=64) for name in self.symbols}
        shapes: Any = tuple(
            {axis: _extent(dim, dims) for axis, dim in enumerate(shape) if isinstance(dim, str)}
            for shape in self.shapes
        )
        if not isinstance(self.source, nn.Module):
            shapes = (shapes,)
        return torch.export.export(
            self.module, inputs, dynamic_shapes=shapes if is_symbolic else None
        )

    def onnx(self, form: Form, is_symbolic: bool) -> onnx.ModelProto:
        """The model as ONNX, in one of the ONNX forms."""
        if isinstance(self.source, str):
            model = text_model(self.source)
            return model if is_symbolic else _with_sizes(model, self.sizes[0])
        names = [f"x{index}" for index in range(len(self.shapes))]
        if form is Form.DYNAMO:
            program = torch.onnx.export(
                self.exported(is_symbolic), dynamo=True, input_names=names, verbose=False
            )
            return program.model_proto
        axes = {
            name: {axis: dim for axis, dim in enumerate(shape) if isinstance(dim, str)}
            for name, shape in zip(names, self.shapes, strict=True)
        }
        file = io.BytesIO()
        torch.onnx.export(
            self.module,
            tuple(map(torch.from_numpy, self.inputs(self.sizes[0]))),
            file,
            input_names=names,
            dynamic_axes=axes if is_symbolic else None,
            dynamo=False,
        )
        return onnx.load_from_string(file.getvalue())


def _extent(dim: int | str, sizes: Mapping[str, Any]) -> Any:
    """The value of a dim for given values of the symbols."""
    if isinstance(dim, int):
        return dim
    factor, _, name = dim.rpartition("*")
    return int(factor) * sizes[name] if factor else sizes[name]


def _with_sizes(model: onnx.ModelProto, sizes: Sizes) -> onnx.ModelProto:
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return model


def named(**extents: Sequence[int]) -> list[Sizes]:
    """Sizes from the values of each symbol: ``named(n=(2, 3))`` is {n: 2} and {n: 3}."""
    return [
        dict(zip(extents, values, strict=True)) for values in zip(*extents.values(), strict=True)
    ]


def _made(kind: Callable[..., nn.Module], *arguments: Any) -> nn.Module:
    with seeded(0):
        return kind(*arguments).eval()


class SqueezeOfPad(nn.Module):
    """Computed pads and, in the TorchScript export, an If with branches of two ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.pad = nn.ReflectionPad3d(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pad(x).squeeze(1)


class Positions(nn.Module):
    """Embeddings of tokens and of their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(5, 4), nn.Embedding(64, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        return self.tokens(tokens) + self.positions(positions).unsqueeze(0)


class Recurrent(nn.Module):
    """The outputs of an LSTM or GRU."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layer = kind(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Attention(nn.Module):
    """Multi-head attention with a causal mask and padding."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length = x.shape[:2]
        heads = x.view(batch, length, 2, 4).transpose(1, 2)
        scores = heads @ heads.transpose(-1, -2) / 2
        future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
        weights = scores.masked_fill(future, -1e9).softmax(-1)
        return (weights @ heads).transpose(1, 2).reshape(batch, length, -1)


@torch.jit.script
def _looped(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(x[0])
    for row in range(x.shape[0]):
        total = total + x[row] * row
    return total


class Looped(nn.Module):
    """A loop over the rows, which only TorchScript exports."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _looped(x)


def _window_partition(x: torch.Tensor) -> torch.Tensor:
    batch, height, width, channels = x.shape
    windows = x.view(batch, height // 2, 2, width // 2, 2, channels)
    return windows.permute(0, 1, 3, 2, 4, 5).reshape(-1, 2, 2, channels)


def _pad_to_multiple(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, -x.shape[-1] % 4))


def _sinusoidal(x: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[1], dtype=torch.float32).unsqueeze(1)
    scales = torch.exp(torch.arange(0, 4, 2, dtype=torch.float32) * -0.5)
    return x + torch.cat([torch.sin(places * scales), torch.cos(places * scales)], 1)


def _meshgrid(x: torch.Tensor) -> torch.Tensor:
    rows, columns = torch.meshgrid(
        torch.arange(x.shape[0]), torch.arange(x.shape[1]), indexing="ij"
    )
    return x + rows - 2 * columns


def _cond(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


_MATRIX: tuple[Shape, ...] = (("n", "m"),)
_CUBE: tuple[Shape, ...] = (("n", "m", 4),)
_IMAGE: tuple[Shape, ...] = (("n", 3, "h", "w"),)
_TWO: tuple[Shape, ...] = (("n", "m"), ("n", "k"))
_EVEN: tuple[Shape, ...] = (("n", "2*m"),)
_OF_MATRIX = named(n=(3, 4, 6), m=(5, 7, 3))
_OF_ROWS = named(n=(3, 4))
_OF_IMAGE = named(n=(3, 4), h=(4, 6), w=(6, 3))
_OF_TWO = named(n=(3, 4), m=(5, 8), k=(4, 3))

_FUNCTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "If over two ranks": {
        "pad_squeeze": (_made(SqueezeOfPad), (("n", 1, 1, 1, 1),), named(n=(13, 3))),
        "squeeze": (lambda x: x.squeeze(1), (("n", 1, "m"),), _OF_MATRIX),
        "squeeze_symbolic": (lambda x: x.squeeze(1), (("n", "m", 4),), _OF_MATRIX),
        "squeeze_unsqueeze": (lambda x: x.squeeze(1).unsqueeze(0), (("n", 1, "m"),), _OF_MATRIX),
    },
    "Squeeze": {
        "squeeze_all": (lambda x: x.squeeze(), (("n", 1, "m", 1),), _OF_MATRIX),
        "unsqueeze": (lambda x: x.unsqueeze(-1) * x.unsqueeze(1), _MATRIX, _OF_MATRIX),
    },
    "Slice by extents": {
        "slice_other": (lambda x, y: x[:, : y.shape[1]] + 1, _TWO, _OF_TWO),
        "slice_beyond": (lambda x: x[:, :100] * 2, _MATRIX, _OF_MATRIX),
        "slice_half": (lambda x: x[:, : x.shape[1] // 2] * 2, _EVEN, _OF_MATRIX),
        "slice_last": (lambda x: x[:, -1] * 2, _MATRIX, _OF_MATRIX),
        "slice_last_two": (lambda x: x[:, -2:] * 2, _MATRIX, _OF_MATRIX),
        "slice_step": (lambda x: x[::2, 1:] * 2, _MATRIX, _OF_MATRIX),
        "chunk": (lambda x: x.chunk(2, 2)[1] * 2, _CUBE, _OF_MATRIX),
        "roll": (lambda x: torch.roll(x, 1, 1), _MATRIX, _OF_MATRIX),
        "flip": (lambda x: x.flip(1), _MATRIX, _OF_MATRIX),
    },
    "Expand": {
        "expand": (lambda x, y: y.expand(x.shape[0], -1) + 1, (("n", "m"), (1, 4)), _OF_MATRIX),
        "expand_as": (lambda x, y: y.expand_as(x) + 1, (("n", "m"), (1, "m")), _OF_MATRIX),
        "broadcast": (lambda x, y: x[:, :, None] + y[:, None, :], _TWO, _OF_TWO),
        "new_axis": (lambda x: x[:, None].expand(-1, 3, -1) + 1, _MATRIX, _OF_MATRIX),
    },
    "Reshape by extents": {
        "flatten": (lambda x: x.flatten(1) * 2, _CUBE, _OF_MATRIX),
        "view": (lambda x: x.view(x.shape[0], -1, 2, 2) * 2, _CUBE, _OF_MATRIX),
        "view_merge": (lambda x: x.view(x.shape[0] * x.shape[1], 4) * 2, _CUBE, _OF_MATRIX),
        "view_quotient": (
            lambda x: x.view(x.shape[0], x.shape[1] // 2, 8) * 2,
            (("n", "2*m", 4),),
            _OF_MATRIX,
        ),
        "view_numel": (lambda x: x.reshape(x.numel() // 4, 4) * 2, _CUBE, _OF_MATRIX),
        "heads": (lambda x: x.view(*x.shape[:-1], 2, 2).transpose(1, 2) * 2, _CUBE, _OF_MATRIX),
        "windows": (_window_partition, (("n", 4, 6, 2),), _OF_ROWS),
        "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), (("n", 4, "h", "w"),), _OF_IMAGE),
        "channel_shuffle": (
            lambda x: x.view(x.shape[0], 2, 2, *x.shape[2:]).transpose(1, 2).flatten(1, 2) * 2,
            (("n", 4, "h", "w"),),
            _OF_IMAGE,
        ),
    },
    "Range of an extent": {
        "positions": (_made(Positions), (("n", "m"),), _OF_MATRIX, ("int64",)),
        "sinusoidal": (_sinusoidal, _CUBE, _OF_MATRIX),
        "meshgrid": (_meshgrid, _MATRIX, _OF_MATRIX),
    },
    "Parameters from extents": {
        "pad_to_multiple": (_pad_to_multiple, _MATRIX, _OF_MATRIX),
        "pad_by_extent": (lambda x, y: F.pad(x, (y.shape[1], 0)), _TWO, _OF_TWO),
        "split": (lambda x: torch.cat(x.split(2, 2)[::-1], 1), _CUBE, _OF_MATRIX),
        "top_k": (lambda x: torch.topk(x, x.shape[1] // 2, 1)[0], _EVEN, _OF_MATRIX),
        "one_hot": (lambda x: F.one_hot(x, 5) * 2, _MATRIX, _OF_MATRIX, ("int64",)),
        "repeat": (lambda x: x.repeat(x.shape[0], 2), _MATRIX, _OF_MATRIX),
        "zeros": (lambda x: torch.zeros(x.shape[0], 4) + x[:, :1], _MATRIX, _OF_MATRIX),
        "full_like": (lambda x: torch.full_like(x, 3) * x, _MATRIX, _OF_MATRIX),
        "eye": (lambda x: torch.eye(x.shape[1]) * x[:1], _MATRIX, _OF_MATRIX),
        "scaled": (lambda x: x / x.shape[1] ** 0.5, _MATRIX, _OF_MATRIX),
        "mean": (lambda x: x.sum(1) / x.shape[1], _MATRIX, _OF_MATRIX),
        "max": (lambda x, y: torch.ones(max(x.shape[1], y.shape[1])) * 2, _TWO, _OF_TWO),
        "cat": (lambda x, y: torch.cat([x, y], 1)[:, 1:], _TWO, _OF_TWO),
        "cumsum": (lambda x: x.cumsum(1), _MATRIX, _OF_MATRIX),
        "adaptive_pool": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), _IMAGE, _OF_IMAGE),
    },
    "Resize to extents": {
        "interpolate_scale": (lambda x: F.interpolate(x, scale_factor=2.0), _IMAGE, _OF_IMAGE),
        "interpolate_like": (
            lambda x, y: F.interpolate(x, y.shape[2:], mode="bilinear"),
            (("n", 3, "h", "w"), ("n", 1, "a", "b")),
            named(n=(3, 4), h=(4, 5), w=(6, 3), a=(8, 3), b=(5, 8)),
        ),
        "interpolate_doubled": (
            lambda x: F.interpolate(x, (2 * x.shape[2], 2 * x.shape[3]), mode="nearest"),
            _IMAGE,
            _OF_IMAGE,
        ),
    },
    "Loop and Scan": {
        "loop": (_made(Looped), _MATRIX, _OF_MATRIX, (), (Form.TORCHSCRIPT,)),
        "lstm": (_made(Recurrent, nn.LSTM), (("n", 5, 3),), _OF_ROWS),
        "gru": (_made(Recurrent, nn.GRU), (("n", 5, 3),), _OF_ROWS),
        # torch.export treats the length as a constant.
        "lstm_of_length": (
            _made(Recurrent, nn.LSTM),
            (("n", "m", 3),),
            _OF_MATRIX,
            (),
            (Form.TORCHSCRIPT,),
        ),
    },
    "From elements": {
        "non_zero": (lambda x: x.nonzero(), _MATRIX, _OF_MATRIX),
        "boolean_mask": (lambda x: x[x > 0] * 2, _MATRIX, _OF_MATRIX),
        "index_pairs": (
            lambda x, i: x[i, i],
            (("n", "n"), (3,)),
            named(n=(5, 6)),
            ("float32", "int64"),
        ),
        "masked_fill": (lambda x: x.masked_fill(x > 0, 0.5), _MATRIX, _OF_MATRIX),
        "tril": (lambda x: torch.tril(x) * 2, _MATRIX, _OF_MATRIX),
        "attention": (_made(Attention), (("n", "m", 8),), _OF_MATRIX),
        "scaled_dot_product": (
            lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
            (("n", 2, "m", 4),),
            _OF_MATRIX,
        ),
        "cond": (_cond, _MATRIX, _OF_MATRIX, (), (Form.DYNAMO, Form.EXPORTED)),
    },
}


def torch_models() -> Iterator[tuple[str, Model]]:
    """The models that PyTorch exports, by name."""
    for subject, models in _FUNCTIONS.items():
        for name, (source, *options) in models.items():
            yield f"torch_{name}", Model(subject, source, *options)
