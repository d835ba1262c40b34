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
"""Faults at the border to packages below TVM."""

from .fix import Kind, Symptom, declare

FFI_0_1_15 = declare(
    "ffi-0.1.15",
    family="environment",
    kind=Kind.ENVIRONMENT,
    summary="the hash and equality of data types serve tvm-ffi 0.1.14 and 0.1.15",
    symptoms={
        Symptom.CRASH: (
            "`tvm.ir.save_json`, and ConvertLayout to packed layouts, crash with "
            "apache-tvm-ffi 0.1.15"
        ),
    },
    requirement="apache-tvm-ffi>=0.1.14.post0",
)

NUMPY_DTYPE = declare(
    "numpy-dtype",
    family="environment",
    kind=Kind.BINDING,
    summary="NumPy 2.4 and newer convert TVM's types to dtypes",
    symptoms={
        Symptom.ERROR: (
            "NumPy 2.3 and newer reject a dtype of TVM's: `np.zeros(4, x.dtype)`; with NumPy 2.3, "
            "write `str(x.dtype)`"
        ),
    },
    upstream=(19875, 20051),
)

UNFINISHED_FUNCTIONS = declare(
    "unfinished-functions",
    family="environment",
    kind=Kind.BINDING,
    summary="`BlockBuilder.function` ends its block after an error",
    symptoms={
        Symptom.WRONG: (
            "if an error within `BlockBuilder.function` is caught within another function of the "
            "builder, that function gets the bindings of the failed one; else TVM warns at some "
            "time, `BlockBuilder destroyed with remaining blocks!`"
        ),
    },
)
