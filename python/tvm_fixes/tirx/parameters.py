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
"""Changes of the parameters of a PrimFunc."""

from collections.abc import Mapping
from typing import Any

from tvm import tirx
from tvm_ffi import structural_equal

from .loop_nest import substitute


def redeclared(buffer: tirx.Buffer, **changed: Any) -> tirx.Buffer:
    """A new buffer like `buffer`, with the arguments of ``decl_buffer`` in `changed`."""
    usual = tirx.decl_buffer(buffer.shape, buffer.dtype).layout
    declared = {
        "shape": buffer.shape,
        "dtype": buffer.dtype,
        "name": buffer.name,
        "strides": buffer.strides,
        "elem_offset": buffer.elem_offset,
        "scope": buffer.scope(),
        "data_alignment": buffer.data_alignment,
        "offset_factor": buffer.offset_factor,
        "layout": "default" if structural_equal(buffer.layout, usual) else buffer.layout,
    }
    return tirx.decl_buffer(**declared | changed)


def with_parameters(
    function: tirx.PrimFunc, replaced: Mapping[tirx.Var, tirx.Var]
) -> tirx.PrimFunc:
    """A function with some of its parameters, or of the buffers in its body, replaced."""
    return tirx.PrimFunc(
        [replaced.get(parameter, parameter) for parameter in function.params],
        substitute(function.body, dict(replaced)),
        function.ret_type,
        function.attrs,
        function.span,
    )
