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
"""The base of all passes."""

from collections.abc import Callable, Sequence

from ... import _ffi
from ..module import IRModule


class Pass:
    """A function from module to module with a name.

    Parameters
    ----------
    name : str
        The name.
    apply : callable
        The function.
    """

    def __init__(self, name: str, apply: Callable[[IRModule], IRModule]):
        self.name = name
        self._apply = apply

    def __call__(self, mod: IRModule) -> IRModule:
        return self._apply(mod)

    def __repr__(self) -> str:
        return f"{self.name}()"


def native_pass(name: str, *arguments: object) -> Pass:
    """Return the pass that C++ registers as ``tvm_fixes.relay.transform.<name>``.

    The function takes the module and then the arguments.
    """
    return Pass(name, lambda mod: _ffi.get(f"tvm_fixes.relay.transform.{name}")(mod, *arguments))


class Sequential(Pass):
    """Passes, one after the other.

    Parameters
    ----------
    passes : sequence of Pass
        The passes.
    """

    def __init__(self, passes: Sequence[Pass]):
        super().__init__("Sequential", self._run)
        self.passes = list(passes)

    def _run(self, mod: IRModule) -> IRModule:
        for transform in self.passes:
            mod = transform(mod)
        return mod
