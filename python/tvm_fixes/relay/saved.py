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
"""Saved programs and parameters: ``tvm.ir.save_json`` and ``relay.save_param_dict``."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import _ffi
from ..errors import RelayError
from ..support.tensors import array_of, to_tvm
from .module import IRModule


def load_json(text: str) -> IRModule:
    """Read a Relay program that ``tvm.ir.save_json`` of TVM 0.6 to 0.19 wrote.

    Parameters
    ----------
    text : str
        The JSON of a module, a function or an expression; the latter two become "main".

    Returns
    -------
    mod : IRModule
        The program; its types are not inferred. Nodes that the text shares stay shared.

    Raises
    ------
    RelayError
        If the text is malformed; the message has the index of the node, and the expected form.
    """
    try:
        mod: IRModule = _ffi.get("tvm_fixes.relay.ReadModule")(text)
    except UnicodeEncodeError as error:
        raise RelayError(f"the text is not valid Unicode: {error}") from error
    return mod


def save_json(mod: IRModule) -> str:
    """Write a Relay program as ``tvm.ir.save_json`` of TVM 0.19 does.

    Attributes get the types that the operator declares. TVM 0.19 demands a value for each: those
    that a call leaves out are written with their defaults, and marked for :func:`load_json`. An
    attribute None counts as omitted. Inferred types and source positions are not kept.

    Parameters
    ----------
    mod : IRModule
        The program.

    Returns
    -------
    text : str
        What :func:`load_json` and ``tvm.ir.load_json`` of TVM 0.19 read. TVM rejects NaN as an
        attribute.

    Raises
    ------
    RelayError
        If TVM 0.19 has no form for the program, such as for the attributes of an unknown operator;
        the message names operator and attribute.
    """
    return str(_ffi.get("tvm_fixes.relay.WriteModule")(mod))


def load_params(data: bytes | bytearray) -> dict[str, np.ndarray[Any, Any]]:
    """Read parameters that ``relay.save_param_dict`` wrote.

    Parameters
    ----------
    data : bytes
        The contents of the file.

    Returns
    -------
    params : dict of str to numpy.ndarray
        In the order of the file; each array has its own memory.

    Raises
    ------
    RelayError
        If the data are malformed; the message has the offset, and the expected form.
    """
    tensors = _ffi.get("tvm_fixes.relay.ReadParams")(bytes(data))
    params = {}
    for name, tensor in tensors.items():
        try:
            params[str(name)] = array_of(tensor)
        except ValueError as error:
            # Such as extents of 2**60 and 0.
            shape = tuple(map(int, tensor.shape))
            raise RelayError(f"parameter {str(name)!r}: NumPy has no shape {shape}") from error
    return params


def save_params(params: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Write parameters as ``relay.save_param_dict`` does.

    Parameters
    ----------
    params : mapping of str to numpy.ndarray
        The parameters.

    Returns
    -------
    data : bytes
        What :func:`load_params` reads.
    """
    tensors = {name: to_tvm(np.asarray(array)) for name, array in params.items()}
    return bytes(_ffi.get("tvm_fixes.relay.WriteParams")(tensors))
