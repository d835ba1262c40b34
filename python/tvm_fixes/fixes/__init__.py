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
"""The fixes: each is declared once, here, and switches, probes, ``doctor`` and docs follow from it.

A declaration is data: it needs neither TVM nor PyTorch, so that every id is known before an
importer is loaded, and where TVM has no compiler. The code of a fix imports its id from here.
"""

import pkgutil
from importlib import import_module

from .fix import Fix, Kind, Symptom, declared

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f".{_module}", __name__)

FIXES: tuple[Fix, ...] = tuple(declared.values())
"""All fixes, by the name of the module that declares them, and in its order."""

__all__ = ["FIXES", "Fix", "Kind", "Symptom"]
