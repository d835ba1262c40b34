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
"""Declarations of the fixes, from which switches, probes, ``doctor`` and docs derive.

A declaration is data and needs neither TVM nor PyTorch.  So all ids are known before an importer is
loaded, and even without TVM's compiler.  The code of a fix imports its id from here.
"""

import pkgutil
from importlib import import_module

from .fix import Fix, Kind, Symptom, declared

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f".{_module}", __name__)

FIXES: tuple[Fix, ...] = tuple(declared.values())
"""All fixes, sorted by the module that declares them, then in the order of declaration."""

__all__ = ["FIXES", "Fix", "Kind", "Symptom"]
