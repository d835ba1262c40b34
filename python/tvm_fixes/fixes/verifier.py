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
"""The verifier and run-time checks."""

from .fix import Kind, Symptom, declare

CALL_TIR = declare(
    "verify-call-tir",
    family="verifier",
    kind=Kind.PASS,
    summary="checks a call of a PrimFunc against its buffers, and memory that it overwrites",
    symptoms={
        Symptom.WRONG: (
            "call_tir of a Relax function, of a replaced PrimFunc, or with two "
            "values for one symbol is accepted, and so is the use of an input "
            "that was overwritten in place: uninitialized or wrong results"
        ),
    },
    upstream=(17310, 17285),
)

TYPES = declare(
    "verify-types",
    family="verifier",
    kind=Kind.PASS,
    summary="infers the types of values again, bottom-up, and compares them symbolically",
    symptoms={
        Symptom.WRONG: (
            "types of tuples, fields, constants, branches and results that differ "
            "from their values are accepted; so are casts that never succeed, "
            "conditions that are not boolean, and negative extents"
        ),
    },
    upstream=(17211, 16833),
)

FUNCTIONS = declare(
    "verify-functions",
    family="verifier",
    kind=Kind.PASS,
    summary="checks a call of a function against that function, and that names are unique",
    symptoms={
        Symptom.WRONG: (
            "a call is checked against a replaced function; two functions of a "
            "library may share a name"
        ),
    },
    upstream=(17446,),
)

OPERATORS = declare(
    "verify-operators",
    family="verifier",
    kind=Kind.PASS,
    summary=(
        "proves or disproves what an operator requires of extents, sizes and constant indices"
    ),
    symptoms={
        Symptom.CRASH: (
            "a constant index out of range, and extents such as n and n + 1 that "
            "are never equal, are accepted and crash when the model runs"
        ),
    },
    upstream=(18834,),
)

RUNTIME_CHECKS = declare(
    "runtime-checks",
    family="verifier",
    kind=Kind.PASS,
    summary="checks symbolic extents and computed indices when a model runs",
    symptoms={
        Symptom.CRASH: (
            "symbolic extents that do not match, and computed indices out of "
            "range, crash when the model runs"
        ),
        Symptom.WRONG: (
            "symbolic extents that do not match, and computed indices out of range, give garbage"
        ),
    },
)

ATTRIBUTES = declare(
    "verify-attributes",
    family="verifier",
    kind=Kind.PASS,
    summary="reports attributes that are missing, or belong to another operator, as an error",
    symptoms={
        Symptom.CRASH: (
            "`well_formed` crashes on attributes that are null or belong to another operator"
        ),
    },
)

PRIM_FUNC = declare(
    "verify-prim-func",
    family="verifier",
    kind=Kind.PASS,
    summary="checks that the indices of a PrimFunc stay within its buffers",
    symptoms={
        Symptom.CRASH: (
            "a PrimFunc that reads or writes outside its buffers is accepted, and "
            "crashes when the model runs"
        ),
    },
)

VERIFIER = declare(
    "verifier",
    family="verifier",
    kind=Kind.TOOL,
    summary="verifies a module before tvm_fixes.build and compile build it",
    symptoms={
        Symptom.WRONG: (
            "`relax.build` verifies nothing: an ill-formed module is built, and "
            "returns uninitialized memory or crashes"
        ),
    },
    upstream=(17310,),
)
