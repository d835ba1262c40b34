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
"""The inputs that a model overwrites, by an attribute of its function ``main``."""

from collections.abc import Mapping

import tvm
from tvm import relax

from ..attributes import UPDATES


def updates_of(function: relax.Function) -> dict[str, int]:
    """For each updated parameter, by name, the index of the output that is its new value."""
    indices = (function.attrs or {}).get(UPDATES, {})
    return {str(name): int(index) for name, index in indices.items()}


def with_updates(mod: tvm.IRModule, updates: Mapping[str, int]) -> tvm.IRModule:
    """The module with `updates` added to those of ``main``."""
    main = mod["main"]
    attribute = updates_of(main) | dict(updates)
    functions = dict(mod.functions_items())
    functions[mod.get_global_var("main")] = main.with_attr(UPDATES, attribute)
    return tvm.IRModule(functions, mod.attrs, mod.global_infos)
