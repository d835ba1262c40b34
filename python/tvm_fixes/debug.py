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
"""The tools that explain a model's outputs and speed, and search for the cause of a problem."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .report.explaining import explain
    from .report.layer_comparison import LayerComparison
    from .report.layers import compare
    from .report.profiling import Profile, profile
    from .report.reporting import ModelReport, report
    from .search.bisection import Bisection, bisect
    from .search.reduction import Reduction, reduce

__all__ = [
    "Bisection",
    "LayerComparison",
    "ModelReport",
    "Profile",
    "Reduction",
    "bisect",
    "compare",
    "explain",
    "profile",
    "reduce",
    "report",
]

_MODULES = {
    "Bisection": "search.bisection",
    "LayerComparison": "report.layer_comparison",
    "ModelReport": "report.reporting",
    "Profile": "report.profiling",
    "Reduction": "search.reduction",
    "bisect": "search.bisection",
    "compare": "report.layers",
    "explain": "report.explaining",
    "profile": "report.profiling",
    "reduce": "search.reduction",
    "report": "report.reporting",
}


def __getattr__(name: str) -> Any:
    """Import a tool on first use: their imports take long."""
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
