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
"""The options of a compilation, and their checks before it starts."""

import functools
import inspect
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, fields
from typing import Any, Concatenate, ParamSpec, TypeVar

import tvm

from .. import target as targets
from ..errors import UsageError
from ..relax.constants.growth import MAX_GROWTH, check_growth
from ..relax.constants.size_check import check_ratio
from ..runtime.staging import check_destination
from ..source import Params, Shapes
from ..source.inputs import BOTH_GIVEN, GivenInputs
from ..support import switches
from ..target import cuda
from ..target.linker import linker_for
from ..user_passes import Given, read
from .progress import Progress

WEIGHTS_CHOICES = ("auto", "inside", "outside")
"""The values of `weights` of :func:`tvm_fixes.compile`."""

OUTSIDE_FROM = 128 << 20
"""From this size in bytes, ``weights="auto"`` stores the parameters outside the library."""

FULL_DISK = 1 << 20
"""A disk with fewer free bytes counts as full."""

_SHAPING = {
    *("layout", "shapes", "static", "runtime_checks", "max_growth", "weights", "strip"),
    *("unsafe_indices", "updated_inputs", "passes"),
}

_ALSO_KEYED = {"max_size_ratio", "verify", "sizes", "magnitude"}
"""Options that do not shape the artifact, but decide whether there is one, or a part of its report.

``sizes`` and ``magnitude`` are checked against the model."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of :func:`tvm_fixes.compile`, which describes them."""

    target: str | Mapping[str, object] | tvm.target.Target = "native"
    layout: str | None = None
    shapes: Shapes | None = None
    static: bool = False
    inputs: GivenInputs | None = None
    sizes: Mapping[str, int] | None = None
    magnitude: float | None = None
    output: str | os.PathLike[str] | None = None
    compare: bool = True
    rtol: float | None = None
    atol: float | None = None
    seed: int = 0
    verify: bool = True
    verify_each: bool = False
    runtime_checks: bool = False
    max_growth: float = MAX_GROWTH
    max_size_ratio: float | None = None
    weights: str = "auto"
    strip: bool = False
    unsafe_indices: bool = False
    trust: bool = False
    params: Params | None = None
    updated_inputs: Mapping[str, str] | None = None
    passes: Iterable[Given] = ()
    dump_ir: str | os.PathLike[str] | None = None
    explain: bool = False
    time_passes: bool = False
    cache: bool = False
    progress: Progress | None = None

    def shaping(self) -> dict[str, Any]:
        """The options that shape the artifact, as values of JSON, without defaults."""
        return self._chosen(_SHAPING)

    def keyed(self) -> dict[str, Any]:
        """The options that a key of the cache contains, as values of JSON, without defaults.

        The target has a part of its own, and with user's passes nothing is cached.
        """
        return self._chosen((_SHAPING | _ALSO_KEYED) - {"passes"})

    def _chosen(self, names: Set[str]) -> dict[str, Any]:
        values = {
            option.name: getattr(self, option.name)
            for option in fields(self)
            if option.name in names and getattr(self, option.name) not in (option.default, None, {})
        }
        if "passes" in values:
            values["passes"] = [str(one) for one in read(self.passes)]
        return json.loads(json.dumps(values, default=int))

    def check(self) -> None:
        """Check the values, and the fix ids in ``TVM_FIXES_DISABLE``.

        Raises
        ------
        UsageError
            If a fix id is unknown or the value of an option is invalid.
        """
        try:
            switches.disabled()
        except ValueError as error:
            raise UsageError(str(error)) from error
        check_ratio(self.max_size_ratio)
        check_growth(self.max_growth)
        read(self.passes)
        for name, tolerance in (("rtol", self.rtol), ("atol", self.atol)):
            if tolerance is not None and not 0 <= tolerance < math.inf:
                raise UsageError(f"{name} must be >= 0 and finite, got {tolerance}")
        if self.magnitude is not None and self.inputs is not None:
            raise UsageError(BOTH_GIVEN)
        if self.seed < 0:
            raise UsageError(f"seed must be >= 0, got {self.seed}")
        if self.weights not in WEIGHTS_CHOICES:
            raise UsageError(
                f"unknown weights {self.weights!r}; expected one of {', '.join(WEIGHTS_CHOICES)}"
            )


def takes(
    options: Callable[_P, Options],
) -> Callable[[Callable[[Any, Options], _R]], Callable[Concatenate[Any, _P], _R]]:
    """Let callers of a function of a model and :class:`Options` pass options as keywords.

    Parameters
    ----------
    options : type
        The class, whose signature the function gets.
    """

    def decorate(function: Callable[[Any, Options], _R]) -> Callable[Concatenate[Any, _P], _R]:
        own = inspect.signature(function)
        [source, _] = own.parameters.values()
        signature = own.replace(
            parameters=[source, *inspect.signature(options).parameters.values()]
        )

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> _R:
            try:
                arguments = signature.bind(*args, **kwargs).arguments
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            return function(arguments.pop(source.name), Options(**arguments))

        vars(call)["__signature__"] = signature  # what help() shows
        return call

    return decorate


def check_machine(options: Options, target: tvm.target.Target) -> None:
    """Check that this machine can build, run and save the library.

    Raises
    ------
    UsageError
        If the library cannot run here and is to be compared, or if ``output`` is not writable.
    CompileError
        If a compiler for the target is missing.
    """
    problem = targets.why_not_here(
        targets.to_json(target), targets.triple_of(target), targets.instruction_sets(target)
    )
    if options.compare and problem:
        raise UsageError(
            f"cannot compare: the library does not run here: {problem}; pass compare=False "
            "(--no-compare)"
        )
    if target.kind.name == "cuda":
        cuda.find_compiler(str(target.attrs["arch"]))
    linker_for(target)
    if options.output is not None:
        check_destination(options.output, FULL_DISK)


def are_outside(weights: str, parameter_bytes: int) -> bool:
    """Whether to store the weights outside the library, given one of :data:`WEIGHTS_CHOICES`."""
    return weights == "outside" or (weights == "auto" and parameter_bytes >= OUTSIDE_FROM)
