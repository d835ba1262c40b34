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
"""Whether an output differs from a reference by more than rounding does.

Runs of the reference with different rounding errors show how sensitive a model is.  The error of a
correct program is of their kind: it is compared with theirs as a norm over the output, element by
element, and by the number of elements with errors of each size.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np

MAX_NORM, MAX_PEAK = 3.0, 2.0
"""Limits of the norm and of the largest scaled error, as multiples of the largest figure of a run.

On models that compile correctly, the norm is at most 1.5 and the largest error 1.4.
"""

# The largest scaled error that a run has at least: that of normal errors in 10^4 elements.
_MIN_PEAK = 4.0

# Programs approximate functions such as tanh to a few units in the last place.
_UNITS = 4

# How many times as many elements as in a run may have errors of a size, and how many in any case.
_MAX_COUNT, _FREE_COUNT = 4, 4

# Sizes are classes of a factor of 2: from 2**_FIRST_CLASS scales on.
_FIRST_CLASS, _CLASSES = -1, 40

# The number of elements to examine at once; it limits the memory.
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Rounding:
    """The error of an output compared with errors of rounding.

    Attributes
    ----------
    norm : float
        The root mean square of the errors, as a multiple of the largest of a run.
    peak : float
        The largest scaled error, as a multiple of that of a run.  The scale of an element is the
        root mean square of the errors of the runs in that element and in all elements.
    excess : int
        The number of elements beyond those that may have an error of some size; positive if there
        are too many.
    unlike : int
        The number of elements that are not finite although they are in each run, or the reverse.
    max_error : float
        The largest error of a run.
    """

    norm: float
    peak: float
    excess: int
    unlike: int
    max_error: float

    @property
    def is_within(self) -> bool:
        """Whether rounding explains the error."""
        is_usual = self.norm <= MAX_NORM and self.peak <= MAX_PEAK
        return is_usual and self.excess <= 0 and self.unlike == 0

    def describe(self) -> str:
        """The reason why rounding does not explain the error, in a few words."""
        if self.unlike:
            return f"{self.unlike} elements are not finite, unlike those of the reference"
        if self.norm > MAX_NORM or self.peak > MAX_PEAK:
            return f"{max(self.norm, self.peak):.2g} times the error that rounding causes"
        return f"rounding explains the errors of {self.excess} elements fewer"


class _Part(NamedTuple):
    """The elements of a part of an output.

    Attributes
    ----------
    errors : numpy.ndarray
        Their errors: first ours, then those of each run.
    resolution : numpy.ndarray
        What an approximation of a function may be off by.
    unlike : int
        As for :class:`Rounding`.
    """

    errors: np.ndarray
    resolution: np.ndarray
    unlike: int


def examine(
    ours: np.ndarray, runs: Sequence[np.ndarray], center: np.ndarray | None = None
) -> Rounding:
    """Compare the error of `ours` with the errors of `runs`.

    Parameters
    ----------
    ours : numpy.ndarray
        The output to judge.
    runs : sequence of numpy.ndarray
        The same output of at least three runs of the reference with different rounding errors.
    center : numpy.ndarray, optional
        The exact output, from which the error of `ours` is the distance; by default, the median of
        the runs, as for the runs themselves.
    """
    squares = np.zeros(len(runs) + 1)
    count, unlike, max_error, resolution = 0, 0, 0.0, 0.0
    for part in _parts(ours, runs, center):
        squares += np.square(part.errors).sum(1)
        count += part.resolution.size
        unlike += part.unlike
        max_error = max(max_error, float(np.abs(part.errors[1:]).max(initial=0.0)))
        resolution += float(np.square(part.resolution).sum())
    # The variance of the errors of a run, over all elements.
    pool = float(squares[1:].sum()) / max(count * len(runs), 1)
    peaks = np.zeros(len(runs) + 1)
    counts = np.zeros((len(runs) + 1, _CLASSES), "int64")
    for part in _parts(ours, runs, center):
        for row, values in enumerate(_scaled(part, pool)):
            peaks[row] = max(peaks[row], float(values.max(initial=0.0)))
            counts[row] += _counts(values)
    usual = max(float(squares[1:].max()), resolution)
    # An error in the next smaller class counts as one of this size.
    most = np.concatenate([[count], counts[1:].max(0)[:-1]])
    return Rounding(
        norm=_ratio(math.sqrt(squares[0]), math.sqrt(usual)),
        peak=_ratio(float(peaks[0]), max(float(peaks[1:].max()), _MIN_PEAK)),
        excess=int((counts[0] - _MAX_COUNT * most - _FREE_COUNT).max()),
        unlike=unlike,
        max_error=max_error,
    )


def _parts(
    ours: np.ndarray, runs: Sequence[np.ndarray], center: np.ndarray | None
) -> Iterator[_Part]:
    flat = [_as_reals(array) for array in (ours, *runs)]
    middle = None if center is None else _as_reals(center)
    step = _UNITS * _resolution(ours.dtype)
    for begin in range(0, flat[0].size, _CHUNK):
        chunk = slice(begin, begin + _CHUNK)
        values = np.stack([array[chunk].astype("float64") for array in flat])
        is_finite = np.isfinite(values)
        always, never = is_finite[1:].all(0), ~is_finite[1:].any(0)
        with np.errstate(invalid="ignore"):
            same = (values[1:] == values[1]) | (np.isnan(values[1:]) & np.isnan(values[1]))
            alike = (values[0] == values[1]) | (np.isnan(values[0]) & np.isnan(values[1]))
        unlike = (always & ~is_finite[0]) | (never & same.all(0) & ~alike)
        kept = always & is_finite[0]
        if middle is not None:
            exact = middle[chunk].astype("float64")
            kept &= np.isfinite(exact)
        values = values[:, kept]
        medians = np.median(values[1:], 0)
        errors = values - medians
        if middle is not None:
            errors[0] = values[0] - exact[kept]
        yield _Part(errors, step * np.abs(medians), int(np.count_nonzero(unlike)))


def _as_reals(array: np.ndarray) -> np.ndarray:
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _resolution(dtype: np.dtype) -> float:
    """The distance from a number to the next one, relative to it; 0 for integers."""
    if dtype.kind in "biu":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps)


def _scaled(part: _Part, pool: float) -> Iterator[np.ndarray]:
    """The errors of ours and of each run, divided by the scale of each element.

    The error of a run takes no part in its own scale.
    """
    squares = np.square(part.errors)
    total = squares[1:].sum(0)
    common = pool + np.square(part.resolution)
    runs = len(squares) - 1
    for row, own in enumerate(squares):
        others = total / runs if row == 0 else (total - own) / (runs - 1)
        scale = np.maximum(others, 0) + common
        with np.errstate(divide="ignore", invalid="ignore"):
            yield np.where(own > 0, np.sqrt(own / scale), 0.0)


def _counts(values: np.ndarray) -> np.ndarray:
    """For each class, the number of values of its size or larger."""
    _, exponents = np.frexp(np.minimum(values, np.ldexp(1.0, _CLASSES)))
    classes = np.clip(exponents - 1 - _FIRST_CLASS, -1, _CLASSES - 1)
    found = np.bincount(classes[classes >= 0], minlength=_CLASSES)
    return np.asarray(found[::-1].cumsum()[::-1])


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else (math.inf if numerator else 0.0)
