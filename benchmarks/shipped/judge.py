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
"""Whether outputs are right, given how much rounding moves the reference's own."""

from collections.abc import Sequence

import numpy as np

SHARE = 1e-4
"""The error that is always right, as a share of the largest value of the output."""
NARROW_SHARES = {"float16": 4e-3, "bfloat16": 3e-2}
"""The share for models in other dtypes; ONNX Runtime computes them in float32 for the most part."""
MULTIPLE = 4
"""The limit of an error, as a multiple of the reference's own differences."""


def problem(
    ours: Sequence[np.ndarray],
    reference: Sequence[np.ndarray],
    others: Sequence[Sequence[np.ndarray]],
    names: Sequence[str],
    share: float = SHARE,
) -> str:
    """Return what is wrong with outputs, in one line; empty if nothing is.

    Parameters
    ----------
    ours, reference : sequence of numpy.ndarray
        The outputs of both.
    others : sequence of sequence of numpy.ndarray
        The reference's outputs when computed in other ways: without its optimizer, and with inputs
        or weights that are moved by rounding errors.
    names : sequence of str
        The names of the outputs.
    share : float
        The error that is always right, as a share of the largest value of an output.
    """
    if len(ours) != len(reference):
        return f"expected {len(reference)} outputs, got {len(ours)}"
    for place, (mine, theirs) in enumerate(zip(ours, reference, strict=True)):
        difference = _problem(mine, theirs, [run[place] for run in others], share)
        if difference:
            return f"output {names[place]!r}: {difference}"
    return ""


def _problem(
    ours: np.ndarray, reference: np.ndarray, others: Sequence[np.ndarray], share: float
) -> str:
    if (ours.shape, ours.dtype) != (reference.shape, reference.dtype):
        return f"expected {reference.dtype} {reference.shape}, got {ours.dtype} {ours.shape}"
    if not is_float(reference):
        wrong = int((ours != reference).sum())
        allowed = max((int((other != reference).sum()) for other in others), default=0)
        if wrong <= MULTIPLE * allowed:
            return ""
        return f"{wrong} of {reference.size} values differ; the reference's own: {allowed}"
    share = max(share, NARROW_SHARES.get(str(reference.dtype), 0.0))
    mine, theirs = ours.astype("float64"), reference.astype("float64")
    if not np.array_equal(_class(mine), _class(theirs)):
        if any(
            not np.array_equal(_class(other.astype("float64")), _class(theirs)) for other in others
        ):
            return ""  # the reference itself does not know
        return "NaN or infinity only in one of the two"
    finite = np.isfinite(theirs)
    if not finite.any():
        return ""
    scale = float(np.abs(theirs[finite]).max())
    error = float(np.abs(mine - theirs)[finite].max())
    own = max(
        (
            float(np.nanmax(np.abs(other.astype("float64") - theirs)[finite], initial=0))
            for other in others
        ),
        default=0.0,
    )
    if error <= max(share * scale, MULTIPLE * own):
        return ""
    return f"error {error:.2g} of {scale:.2g}; the reference's own: {own:.2g}"


def _class(values: np.ndarray) -> np.ndarray:
    """Return 0 for finite values, 1 and -1 for infinities, and 2 for NaN."""
    return np.where(np.isnan(values), 2.0, np.where(np.isinf(values), np.sign(values), 0.0))


def is_float(values: np.ndarray) -> bool:
    """Whether an array holds floats; NumPy takes those of ml_dtypes for structures."""
    return values.dtype.kind == "f" or "float" in values.dtype.name
