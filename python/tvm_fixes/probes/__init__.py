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
"""The probes: for each fix, the smallest program that fails on stock TVM.

They run pipelines and importers, so only ``tvm_fixes.doctor`` and tests import this package.
"""

import pkgutil
from importlib import import_module

from .probe import Probe, registered

for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    import_module(f".{_module}", __name__)

PROBES: dict[str, Probe] = registered
"""The probes by the ids of their fixes."""

__all__ = ["PROBES", "Probe"]
