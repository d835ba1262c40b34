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
"""Intermediate values that differ although all outputs are equal: later operators mask it."""

from dataclasses import replace
from typing import Any

from ..errors import CompileError, UsageError
from ..report.layer_comparison import LayerComparison
from ..report.layers import compare
from .problem import Kind, Observed, Problem
from .trial import Settings


def with_masked_value(
    model: Any, settings: Settings, problem: Problem, first: Observed
) -> Settings:
    """Settings with the first value that differs as the output, if all outputs are equal.

    Parameters
    ----------
    model : object
    settings : Settings
        How trials build and run it.
    problem : Problem
    first : Observed
        The first trial.
    """
    is_equal = problem.kind is Kind.WRONG and first.shows is False
    if not is_equal or settings.value or settings.stock:
        return settings
    found = compared(model, settings)
    first_value = None if found is None else found.first
    return settings if first_value is None else replace(settings, value=first_value.name)


def compared(model: Any, settings: Settings) -> LayerComparison | None:
    """The comparison of a model's values; None without any, such as for a Relax module."""
    try:
        return compare(
            settings.open(model),
            inputs=settings.inputs or None,
            sizes=settings.sizes,
            magnitude=settings.magnitude,
            seed=settings.seed,
            rtol=settings.rtol,
            atol=settings.atol,
            target=settings.target,
            layout=settings.layout,
            passes=settings.passes,
            **settings.options,
        )
    except (UsageError, CompileError):
        return None
