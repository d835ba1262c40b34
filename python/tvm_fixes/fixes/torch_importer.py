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
"""Fixes of the PyTorch importer."""

import re
from collections.abc import Callable

import numpy as np
import tvm

from ._run import run
from .record import Fix, Kind, Probe


def _import_half_linear(from_exported_program: Callable[..., tvm.IRModule]) -> None:
    import torch

    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(shape, "float32") for shape in ((2, 3), (4, 3), (4,)))
    layer = torch.nn.Linear(3, 4).half().eval()
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(weight))
        layer.bias.copy_(torch.from_numpy(bias))
    x = x.astype("float16")
    program = torch.export.export(layer, (torch.from_numpy(x),))
    got = run(from_exported_program(program, unwrap_unit_return_tuple=True), x)
    expected = x.astype("float32") @ weight.astype("float16").T.astype("float32") + bias
    assert got.dtype == np.float16, f"expected a float16 result, got {got.dtype}"
    np.testing.assert_allclose(got, expected, rtol=5e-3, atol=5e-3)


def _stock() -> None:
    from tvm.relax.frontend.torch import from_exported_program

    _import_half_linear(from_exported_program)


def _fixed() -> None:
    from ..frontend.torch import from_exported_program

    _import_half_linear(from_exported_program)


DTYPE = Fix(
    id="torch-dtype",
    family="torch-importer",
    kind=Kind.IMPORTER,
    summary="conv, conv_transpose, linear and addmm keep the dtype that PyTorch gives them",
    upstream=(),
    probe=Probe(
        stock=_stock,
        fixed=_fixed,
        symptom=re.compile(r"TypeError: .*same datatype"),
        modules=("torch",),
    ),
)
