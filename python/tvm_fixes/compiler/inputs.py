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
"""The inputs that a model, or an artifact, is examined with."""

from collections.abc import Mapping

import numpy as np

from ..errors import UsageError
from ..runtime.manifest import Dim, Manifest
from ..source import Shapes, Source
from ..source.examples import Example
from ..source.inputs import BOTH_GIVEN, GivenInputs, fitting
from .reference import choose_inputs


def load_inputs(source: Source, given: GivenInputs | None, seed: int) -> list[np.ndarray]:
    """The inputs of a model, in order: the given ones, or random ones that its reference accepts.

    Parameters
    ----------
    source : Source
    given : path or mapping of str to numpy.ndarray, optional
    seed : int

    Raises
    ------
    UsageError
        If the inputs do not fit the model, or the source has a magnitude of random ones.
    """
    if given is None:
        return choose_inputs(source, seed)
    if source.magnitude is not None:
        raise UsageError(BOTH_GIVEN)
    return fitting(source.chosen_inputs(), given)


def inputs_of_artifact(
    manifest: Manifest,
    shapes: Shapes | None,
    given: GivenInputs | None,
    seed: int,
    sizes: Mapping[str, int] | None = None,
) -> list[np.ndarray]:
    """The inputs of an artifact, in order: the given ones, or random ones.

    Parameters
    ----------
    manifest : Manifest
    shapes : mapping of str to sequence of int and str, optional
        The shapes of inputs with symbolic dims.
    given, seed
        As for :func:`load_inputs`.
    sizes : mapping of str to int, optional
        The sizes of symbolic dims.

    Raises
    ------
    UsageError
        As for :func:`load_inputs`, or if the size of a symbolic dim is unknown.
    """
    known: dict[Dim, Dim] = {}
    for spec in manifest.inputs:
        known.update(zip(spec.shape or (), (shapes or {}).get(spec.name, ()), strict=False))
    symbols = dict.fromkeys(d for spec in manifest.inputs for d in spec.shape or ())
    for name, size in (sizes or {}).items():
        if name not in symbols:
            names = ", ".join(dim for dim in symbols if isinstance(dim, str))
            raise UsageError(
                f"size given for unknown dim {name!r}; symbolic dims: {names or 'none'}"
            )
        known[name] = size
    if given is not None:
        return fitting(manifest.inputs, given)
    rng = np.random.default_rng(seed)
    arrays = []
    for spec in manifest.inputs:
        dims = [dim if isinstance(dim, int) else known.get(dim) for dim in spec.shape or ()]
        if spec.shape is None or not all(isinstance(dim, int) for dim in dims):
            raise UsageError(
                f"input {spec}: give the size of its dims (--size), its shape (--shape) or the "
                "inputs (--inputs)"
            )
        shape = tuple(int(dim) for dim in dims if dim is not None)
        arrays.append(Example().draw(rng, spec, shape))
    return arrays
