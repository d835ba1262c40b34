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
"""The probe of GPU schedules; it does not need a GPU."""

import re

import numpy as np
import tvm
from tvm import relax

from ..fixes.gpu import GPU_SCHEDULE
from ..lowering import pipeline
from ..target import cuda
from .probe import Probe, register


def _build_grouped(relax_pipeline: str | tvm.transform.Pass) -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4, 9, 9), "float32"))
    kernel = relax.const(np.ones((8, 2, 3, 3), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.nn.conv2d(x, kernel, groups=2)))
    target = tvm.target.Target({"kind": "cuda", "arch": "sm_90"}, host={"kind": "llvm"})
    with cuda.placeholders():
        relax.build(builder.get(), target, relax_pipeline=relax_pipeline)


register(
    GPU_SCHEDULE,
    Probe(
        stock=lambda: _build_grouped("default"),
        fixed=lambda: _build_grouped(pipeline()),
        symptom=re.compile("Cross-thread reduction requires"),
    ),
)
