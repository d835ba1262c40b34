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
"""The text format of Relay."""

from .. import _ffi
from .module import IRModule


def parse(text: str, *, constants_as_inputs: bool = False) -> IRModule:
    """Read a Relay program from text.

    Parameters
    ----------
    text : str
        Text of version 0.0.4 or 0.0.5: definitions, or one expression, which becomes "main".
    constants_as_inputs : bool
        Whether each ``meta[relay.Constant][N]`` becomes a parameter ``constant_N`` of "main" if
        the text has no metadata section. Otherwise such a text is an error.

    Returns
    -------
    mod : IRModule
        The program; its types are not inferred.

    Raises
    ------
    RelayError
        If the text is malformed; the message has line, column and the expected form.
    """
    mod: IRModule = _ffi.get("tvm_fixes.relay.Parse")(text, constants_as_inputs)
    return mod
