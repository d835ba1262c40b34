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
"""Comparison of a compiled model with its original, times of its kernels, and a report of both."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .explaining import explain
    from .layers import LayerComparison, compare
    from .profiling import Profile, profile
    from .reporting import ModelReport, report

__all__ = ["LayerComparison", "ModelReport", "Profile", "compare", "explain", "profile", "report"]

_MODULES = {
    "LayerComparison": "layers",
    "ModelReport": "reporting",
    "Profile": "profiling",
    "compare": "layers",
    "explain": "explaining",
    "profile": "profiling",
    "report": "reporting",
}


def __getattr__(name: str) -> Any:
    """Import the tools on first use: the compiler imports modules of this package."""
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
