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
"""Comparison of results up to rounding; a float64 run decides unclear cases."""

from collections.abc import Callable, Sequence

import numpy as np

from tvm_fixes.observe.comparison import TOLERANCES

_FLOATS = ("float16", "bfloat16", "float32", "float64")
Outputs = Sequence[np.ndarray]


def difference(
    ours: Outputs,
    theirs: Outputs,
    truths: Callable[[], Sequence[Outputs]],
    precision: str,
) -> str:
    """Describe the difference between two runs of a program; empty if they agree.

    Parameters
    ----------
    ours, theirs : sequence of numpy.ndarray
        The outputs under test, and the oracle's.
    truths : callable
        Runs the program in float64: first on the inputs, then on inputs (for ONNX also with
        intermediate results) that differ by one rounding.  Called only if the outputs differ by
        more than the usual tolerance.
    precision : str
        The lowest-precision float dtype of the program; its tolerance applies to all float outputs.

    Notes
    -----
    Beyond the usual tolerance, an element is correct if its distance from float64 is about the
    oracle's distance, or about the effect of rounding the inputs.
    """
    if len(ours) != len(theirs):
        return f"expected {len(theirs)} outputs, got {len(ours)}"
    doubtful: dict[int, np.ndarray] = {}
    for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return f"output {index}: expected {b.dtype}{b.shape}, got {a.dtype}{a.shape}"
        apart = _apart(a, b, precision)
        if apart.any():
            if b.dtype.name not in _FLOATS:
                return _describe(index, a, b, apart)
            doubtful[index] = apart
    if not doubtful:
        return ""
    exact, *moved = truths()
    for index, apart in doubtful.items():
        a, b = ours[index].astype("float64"), theirs[index].astype("float64")
        still = apart & ~_excused(a, b, exact[index], [run[index] for run in moved], precision)
        if still.any():
            return _describe(index, ours[index], theirs[index], still)
    return ""


def _apart(a: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
    """The elements that differ by more than the usual tolerance."""
    if b.dtype.name not in _FLOATS:
        return np.asarray(a != b)
    worst = max(precision, b.dtype.name, key=lambda name: TOLERANCES[name])
    rtol, atol = TOLERANCES[worst]
    wide_a, wide_b = a.astype("float64"), b.astype("float64")
    finite = np.isfinite(wide_a) & np.isfinite(wide_b)
    largest = np.abs(wide_b).max(initial=0.0, where=np.isfinite(wide_b))
    with np.errstate(invalid="ignore"):
        near = np.abs(wide_a - wide_b) <= atol * largest + rtol * np.abs(wide_b)
    same = (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    return np.asarray(~(same | (finite & near)))


def _excused(
    a: np.ndarray, b: np.ndarray, exact: np.ndarray, moved: Outputs, precision: str
) -> np.ndarray:
    """The elements of `a` about as close to `exact` as those of `b`, or as rounding allows."""
    exact = np.asarray(exact, "float64")
    if exact.shape != a.shape:
        return np.zeros(a.shape, bool)
    rtol, _ = TOLERANCES[precision]
    with np.errstate(invalid="ignore", over="ignore"):
        sensitivity = sum((np.abs(np.asarray(m, "float64") - exact) for m in moved), 0.0 * exact)
        theirs = np.abs(b - exact)
        usual = np.sqrt(np.mean(np.square(theirs), where=np.isfinite(theirs)))
        allowed = 4 * theirs + 4 * np.nan_to_num(usual) + 16 * sensitivity + rtol * np.abs(exact)
        close = np.abs(a - exact) <= allowed
        # Where rounding decides whether a value is finite, e.g. at the edge of a domain or near the
        # largest finite number, both are correct.
        kinds = [np.isfinite(run) for run in (exact, b, *(np.asarray(m, "float64") for m in moved))]
        unstable = np.logical_or.reduce(kinds) & ~np.logical_and.reduce(kinds)
        same = (a == exact) | (np.isnan(a) & np.isnan(exact))
        huge = np.abs(exact) > 0.4 * _largest(precision)
        huge &= np.isinf(a) & (np.sign(a) == np.sign(exact))
    return np.asarray(close | unstable | same | huge)


def _largest(precision: str) -> float:
    return {"float16": 65504.0, "float32": 3.4e38, "bfloat16": 3.3e38}.get(precision, 1.7e308)


def _describe(index: int, a: np.ndarray, b: np.ndarray, apart: np.ndarray) -> str:
    where = tuple(int(i) for i in np.argwhere(apart)[0])
    return (
        f"output {index} {b.dtype}{b.shape}: {int(apart.sum())} of {apart.size} elements differ; "
        f"at {where} expected {b[where]}, got {a[where]}"
    )
