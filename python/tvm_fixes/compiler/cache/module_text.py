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
"""A text of a module that two modules share only if they are the same."""

import hashlib

import numpy as np
import tvm
from tvm_ffi import structural_map

from ...relax.ir import relax_functions, tensor_of, with_functions
from ...support.tensors import raw_bytes


def module_text(mod: tvm.IRModule) -> str:
    """The module as TVM's JSON, with hashes instead of the elements of constants.

    It has everything: attributes, symbolic variables, names, and spans, which name the nodes of the
    model in the manifest.
    """
    constants: dict[tvm.runtime.Tensor, tvm.runtime.Tensor] = {}

    def hashed(constant: tvm.ir.GenericConst) -> tvm.ir.GenericConst:
        tensor = tensor_of(constant)
        if tensor is None:
            return constant
        if tensor not in constants:
            constants[tensor] = _hash_of(tensor)
        return tvm.ir.GenericConst(constants[tensor], constant.ty, constant.span)

    functions = {
        var: structural_map(function, (tvm.ir.GenericConst, hashed))
        for var, function in relax_functions(mod).items()
    }
    return str(tvm.ir.save_json(with_functions(mod, functions)))


def _hash_of(tensor: tvm.runtime.Tensor) -> tvm.runtime.Tensor:
    """A tensor of the hash of the dtype, the shape and the elements of another one."""
    digest = hashlib.sha256(f"{tensor.dtype} {[*map(int, tensor.shape)]} ".encode())
    digest.update(raw_bytes(tensor).data)
    return tvm.runtime.tensor(np.frombuffer(digest.digest(), "uint8"))
