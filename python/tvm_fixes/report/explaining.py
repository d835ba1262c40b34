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
"""Explanation of a compilation: what each fix changed, and which optimizations were not made."""

from contextlib import ExitStack, suppress
from typing import Any

from ..compiler import compile as compile_model
from ..compiler import steps
from ..compiler.options import Options
from ..observe.watch_fixes import explanation_of
from ..runtime.explanation import Explanation
from ..support.serial import in_turn


def explain(source: Any, **options: Any) -> Explanation:
    """Compile a model; explain which fixes changed it, and which optimizations were not made.

    Parameters
    ----------
    source : str, path or object
        As for :func:`tvm_fixes.compile`.
    **options
        Further options of :func:`tvm_fixes.compile`, such as ``target`` and ``layout``.

    Returns
    -------
    explanation : Explanation
        The ``report.explanation`` of ``tvm_fixes.compile(source, explain=True)``.

    Raises
    ------
    UsageError, CompileError
        As for :func:`tvm_fixes.compile`.
    """
    report = compile_model(source, **{"compare": False, **options}, explain=True).report
    assert report is not None and report.explanation is not None
    return report.explanation


@in_turn
def explain_until_error(source: Any, **options: Any) -> Explanation:
    """Compile a model, and explain which fixes changed it until an error, if there is one.

    Parameters
    ----------
    source, **options
        As for :func:`explain`.

    Returns
    -------
    explanation : Explanation
    """
    chosen = Options(**{**options, "compare": False, "explain": True})
    with ExitStack() as ended:
        compilation = steps.load(source, chosen, ended)
        # The caller reports the error.
        with suppress(Exception):
            steps.import_model(compilation)
            steps.watch(compilation)
            steps.verify(compilation)
            steps.lower(compilation)
        return explanation_of(compilation.facts)
