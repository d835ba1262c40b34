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
"""What a compilation found."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class OutputComparison:
    """One output held against the reference's.

    Attributes
    ----------
    name : str
        The output's name.
    shape : list of int
        The reference's shape.
    dtype : str
        The reference's dtype.
    max_abs_error : float or None
        The largest absolute difference; None where it has no meaning (shapes or dtypes differ,
        or one has a NaN or an infinity that the other has not).
    max_rel_error : float or None
        `max_abs_error` divided by the largest magnitude in the reference; `max_abs_error` itself
        where that is zero.
    rtol, atol : float
        The tolerances used.  By default `atol` is in proportion to the largest magnitude in the
        reference (:data:`tvm_fixes.debug.comparison.TOLERANCES`).
    equal : bool
        Whether shape and dtype agree, and ``|ours - theirs| <= atol + rtol * |theirs|`` in every
        element; a NaN equals a NaN, an infinity itself.
    problem : str
        Why it is not equal, in one line; empty where it is.
    float64_error, reference_float64_error : float or None
        The largest absolute differences of ours and of the reference from the reference in float64,
        which is asked where they differ by more than the default tolerances; None where it was
        not, or cannot run.  Ours is equal if it is at least as close, also in the mean.
    """

    name: str
    shape: list[int]
    dtype: str
    max_abs_error: float | None
    max_rel_error: float | None
    rtol: float
    atol: float
    equal: bool
    problem: str = ""
    float64_error: float | None = None
    reference_float64_error: float | None = None


@dataclass(frozen=True)
class Report:
    """What :func:`tvm_fixes.compile` found.

    Attributes
    ----------
    source : str
        The model.
    layout : str or None
        The layout that was asked for.
    seconds : dict of str to float
        The time that each step took, up to the comparison.
    artifact_bytes, parameter_bytes : int
        The size of the library, and of the model's parameters and constants.
    activation_transforms : int or None
        How many permutes and layout transforms of values that are not constants are left; None
        where they were not counted.
    fixes : list of str
        The fixes that took part.
    reference : str or None
        What the outputs were compared with; None where they were not.
    outputs : list of OutputComparison
        One an output, where they were compared.
    latency_ms, reference_latency_ms : float or None
        The median of a few calls in a row, in the calmest of a few such blocks, on the threads
        that each takes by default.  An indication, not a benchmark.
    constant_bytes : int or None
        The size of the constants in the artifact; None where they were not counted.
    warnings : list of str
        What the importer warned of, and which constants are to blame where these are many times as
        large as the parameters.
    unproved : int or None
        How many obligations, such as equal extents, the verifier could neither prove nor disprove,
        after import and once more on calls of kernels; None where it did not run.
    unfolded : list of str
        What is computed of constants whenever the model runs, since it would make the library
        larger: operator and sizes.
    """

    source: str
    layout: str | None
    seconds: dict[str, float]
    artifact_bytes: int
    parameter_bytes: int
    activation_transforms: int | None = None
    constant_bytes: int | None = None
    fixes: list[str] = field(default_factory=list)
    reference: str | None = None
    outputs: list[OutputComparison] = field(default_factory=list)
    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    warnings: list[str] = field(default_factory=list)
    unproved: int | None = None
    unfolded: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool | None:
        """Whether every output equals the reference's; None where they were not compared."""
        return all(output.equal for output in self.outputs) if self.reference else None

    @property
    def size_ratio(self) -> float | None:
        """The artifact's size over the parameters'; None for a model without parameters."""
        return self.artifact_bytes / self.parameter_bytes if self.parameter_bytes else None

    @property
    def max_abs_error(self) -> float | None:
        """The largest absolute error of all outputs; None where it has no meaning."""
        errors = [output.max_abs_error for output in self.outputs]
        if not errors or None in errors:
            return None
        return max(error for error in errors if error is not None)

    def __str__(self) -> str:
        parts = ["not compared"]
        if self.reference is not None:
            parts = [f"{'equal' if self.equal else 'not equal'} to {self.reference}"]
            if self.max_abs_error is not None:
                parts.append(f"largest error {self.max_abs_error:.2g}")
        if self.latency_ms is not None and self.reference_latency_ms is not None:
            parts.append(f"{self.latency_ms:.3g} ms (reference {self.reference_latency_ms:.3g} ms)")
        parts.append(f"{self.artifact_bytes} bytes")
        parts.append(f"fixes: {', '.join(self.fixes) or 'none'}")
        layout = f" in {self.layout}" if self.layout else ""
        return f"{self.source}{layout}: {', '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, with what is computed from them."""
        return asdict(self) | {"equal": self.equal, "size_ratio": self.size_ratio}

    def to_json(self) -> str:
        """The report as one JSON object, indented."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Report":
        """Read what ``dataclasses.asdict`` or :meth:`to_dict` made, of a later version too."""
        own = _known(cls, values)
        own["outputs"] = [
            OutputComparison(**_known(OutputComparison, output))
            for output in own.get("outputs", [])
        ]
        return cls(**own)


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of `values` that are fields of the dataclass `cls`."""
    names = {known.name for known in fields(cls)}
    return {key: value for key, value in values.items() if key in names}
