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
"""The build that nothing stands in front of."""

# TVMScript annotates with calls.
# mypy: disable-error-code="valid-type"

import re

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from .. import compiler
from ..errors import VerifyError
from .record import Fix, Kind, Probe


def _module() -> tvm.IRModule:
    """The result is memory that nobody has written."""

    @I.ir_module(check_well_formed=False)
    class Module:
        @R.function(private=True)
        def first(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor(
            (4,), "float32"
        ):
            return x

        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            cls = Module
            y = R.call_tir(cls.first, (x,), out_ty=R.Tensor((4,), "float32"))
            return y

    return Module


def _stock() -> None:
    relax.build(_module(), "llvm")
    raise AssertionError("a wrong module was built")


def _fixed() -> None:
    try:
        compiler.build(_module(), "llvm")
    except VerifyError:
        return
    raise AssertionError("a wrong module was built")


VERIFIER = Fix(
    id="verifier",
    family="verifier",
    kind=Kind.TOOL,
    summary="tvm_fixes.build and compile verify a module before it is built",
    upstream=(17310,),
    probe=Probe(stock=_stock, fixed=_fixed, symptom=re.compile("a wrong module was built")),
)
