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
"""Sizes and values of the inputs that a model is compared with.

A model may reject the default ones: a network of pools leaves nothing of a small image, a Gather
has fewer rows, a length may not be 0.  Candidates follow, until the reference accepts one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..runtime.manifest import Dim, TensorSpec
from ..support.tensors import numpy_dtype

# A batch other than 1, and an extent that is large enough for several layers of downsampling.
_BATCH, _EXTENT = 2, 32

_IMAGES = (64, 224, 320, 640)
_SEQUENCES = (16, 8, 1, 64, 128, 512, 16_000)

# Sizes for further comparisons: a batch and additional extents that no tile divides, and the
# extents of many deployed models.
_ODD_BATCH, _ODD_IMAGE, _ODD_EXTENT = 7, 13, 5
_USUAL_IMAGE, _USUAL_EXTENT = 224, 128

# The dtypes of inputs with a magnitude, each with the one to multiply in.
_WIDE = {
    **dict.fromkeys(("float16", "bfloat16", "float32", "float64"), "float64"),
    **dict.fromkeys(("complex64", "complex128"), "complex128"),
}

MAGNITUDES = (64.0, 1 / 64)
"""Magnitudes of further inputs, relative to the usual ones: they show overflow and underflow."""

VALUES = ("usual", "ones", "zeros", "positive")


@dataclass(frozen=True)
class Example:
    """How to draw inputs.

    Attributes
    ----------
    batch : int
        The size of symbolic dims that occur first on axis 0.
    image : int
        The size of the symbolic height and width of images.
    extent : int
        The size of other symbolic dims.
    values : str
        One of :data:`VALUES`.  Usually, floats are from N(0, 1), and integers as the source draws
        them.  Otherwise, all integers are 1, or the extent if the name of the input tells that it
        is a length; or all are 0; or floats are from 0 to 1.
    is_further : bool
        Whether the sizes replace those of the example inputs of a PyTorch program.
    has_batches : bool
        Whether dims of different names on axis 0 have different sizes: `batch`, and each one more.
    """

    batch: int = _BATCH
    image: int = _EXTENT
    extent: int = _EXTENT
    values: str = VALUES[0]
    is_further: bool = False
    has_batches: bool = False

    def further(self) -> list[list["Example"]]:
        """Other sizes with the same kind of values: of each list, the first that fits is enough.

        First a size that no tile divides, which differs between the dims on axis 0 if possible,
        then the usual size of a deployed model, or a small one instead of the sizes of a PyTorch
        program's example inputs.
        """
        new = replace(self, is_further=True)
        image, extent = max(self.image, _USUAL_IMAGE), max(self.extent, _USUAL_EXTENT)
        odd = replace(new, image=self.image + _ODD_IMAGE, extent=self.extent + _ODD_EXTENT)
        return [
            [
                replace(odd, batch=_ODD_BATCH, has_batches=True),
                replace(odd, batch=_ODD_BATCH),
                replace(new, batch=_ODD_BATCH),
            ],
            [replace(new, batch=1, image=image, extent=extent), replace(new, batch=1)],
        ]

    def size_of(self, spec: TensorSpec, axis: int, batches: int = 0) -> int:
        """The size of a symbolic dim of an input, of which `batches` earlier ones are on axis 0."""
        if axis == 0:
            return self.batch + (batches if self.has_batches else 0)
        return self.image if axis in image_axes(spec.shape or ()) else self.extent

    def draw(
        self,
        rng: np.random.Generator,
        spec: TensorSpec,
        shape: tuple[int, ...],
        low: int = 0,
        high: int = 1,
    ) -> np.ndarray:
        """Draw a random array of `shape`; usual integers are from `low` to `high`, inclusive."""
        dtype = numpy_dtype(spec.dtype)
        if dtype.kind == "b":
            return rng.integers(0, 2, shape).astype(dtype)
        if dtype.kind in "iu" and self.values in ("ones", "zeros"):
            is_length = "len" in spec.name.lower()
            value = (self.extent if is_length else 1) if self.values == "ones" else 0
            return np.full(shape, value, dtype)
        if dtype.kind in "iu":
            if dtype.itemsize == 1 and len(shape) > 2 and (low, high) == (0, 1):
                low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)  # a picture
            return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
        if self.values == "positive":
            return np.asarray(rng.random(shape)).astype(dtype)
        return np.asarray(rng.standard_normal(shape)).astype(dtype)


def image_axes(shape: Sequence[Dim]) -> tuple[int, ...]:
    """The axes of the height and width if `shape` is that of images."""
    if len(shape) != 4:
        return ()
    is_last = shape[3] in (1, 3, 4) and shape[1] not in (1, 3, 4)
    return (1, 2) if is_last else (2, 3)


def candidates(specs: Sequence[TensorSpec]) -> Iterator[Example]:
    """The ways to draw inputs, in the order in which to try them."""
    symbols = [
        (axis, axis in image_axes(spec.shape or ()))
        for spec in specs
        for axis, dim in enumerate(spec.shape or ())
        if isinstance(dim, str)
    ]
    has_integers = any(numpy_dtype(spec.dtype).kind in "iu" for spec in specs)
    has_floats = any(numpy_dtype(spec.dtype).kind not in "biu" for spec in specs)
    values = [
        name
        for name in VALUES
        if name == "usual" or (has_floats if name == "positive" else has_integers)
    ]
    sizes = [Example()]
    if symbols:
        sizes.append(Example(batch=1))
    if any(axis and is_image for axis, is_image in symbols):
        sizes += [Example(batch=1, image=image) for image in _IMAGES]
    if any(axis and not is_image for axis, is_image in symbols):
        sizes += [Example(batch=1, extent=extent) for extent in _SEQUENCES]
    for first, value in enumerate(values):
        # All sizes with usual values, then the first ones with others.
        for example in sizes if first == 0 else sizes[:2]:
            yield Example(example.batch, example.image, example.extent, value)


@dataclass(frozen=True)
class Drawn:
    """Inputs of a model.

    Attributes
    ----------
    arrays : list of numpy.ndarray
    magnitude : float
        The factor by which floats are multiplied.
    """

    arrays: list[np.ndarray]
    magnitude: float = 1.0


def has_magnitude(inputs: Iterable[np.ndarray]) -> bool:
    """Whether any input has floats."""
    return any(value.dtype.name in _WIDE for value in inputs)


def scaled(inputs: Sequence[np.ndarray], magnitude: float) -> list[np.ndarray]:
    """Multiply the floats of inputs."""
    return [
        (value.astype(wide) * magnitude).astype(value.dtype)
        if (wide := _WIDE.get(value.dtype.name)) and magnitude != 1
        else value
        for value in inputs
    ]


def with_sizes(
    specs: Sequence[TensorSpec],
    candidates: Iterable[Drawn],
    sizes: Mapping[str, int],
    magnitude: float,
) -> list[np.ndarray] | None:
    """The first inputs of a magnitude with certain sizes of symbolic dims, without dims that an
    import removes."""
    for drawn in candidates:
        own = used_sizes(specs, drawn.arrays)
        is_alike = all(own.get(name, size) == size for name, size in sizes.items())
        if is_alike and drawn.magnitude == magnitude:
            return drawn.arrays
    return None


def used_sizes(specs: Sequence[TensorSpec], inputs: Sequence[np.ndarray]) -> dict[str, int]:
    """The sizes of the symbolic dims of inputs."""
    pairs = (zip(s.shape or (), a.shape, strict=False) for s, a in zip(specs, inputs, strict=True))
    return {
        dim: size for each in pairs for dim, size in each if isinstance(dim, str) and dim.strip()
    }
