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
"""The functions of PyTorch that docs/pytorch.md lists as rejected are rejected by name."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import tvm.testing

from helpers import grids
from helpers.torch_programs import Call
from tvm_fixes.frontend.torch import from_exported_program

pytestmark = pytest.mark.filterwarnings("ignore")

PAGE = Path(__file__).parents[3] / "docs" / "pytorch.md"

X = torch.rand(3, 3)

Function = Callable[[torch.Tensor], torch.Tensor]

OF_MATRICES: dict[str, tuple[Function, str]] = {
    "linalg.svd": (lambda x: torch.linalg.svd(x)[0], "_linalg_svd.default"),
    "linalg.svdvals": (torch.linalg.svdvals, "_linalg_svd.default"),
    "linalg.eig": (lambda x: torch.linalg.eig(x)[0].real, "linalg_eig.default"),
    "linalg.eigvals": (lambda x: torch.linalg.eigvals(x).real, "linalg_eig.default"),
    "linalg.eigh": (lambda x: torch.linalg.eigh(x)[0], "_linalg_eigh.default"),
    "linalg.eigvalsh": (torch.linalg.eigvalsh, "_linalg_eigh.default"),
    "linalg.pinv": (torch.linalg.pinv, "linalg_pinv.atol_rtol_tensor"),
    "linalg.matrix_rank": (torch.linalg.matrix_rank, "_linalg_svd.default"),
    "linalg.cond": (torch.linalg.cond, "_linalg_svd.default"),
    "svd_lowrank": (lambda x: torch.svd_lowrank(x)[0], "_linalg_svd.default"),
    "pca_lowrank": (lambda x: torch.pca_lowrank(x, q=2)[0], "_linalg_svd.default"),
    "linalg.ldl_factor": (lambda x: torch.linalg.ldl_factor(x)[0], "linalg_ldl_factor_ex.default"),
    "linalg.ldl_solve": (
        lambda x: torch.linalg.ldl_solve(x, torch.ones(3, dtype=torch.int32), x),
        "linalg_ldl_solve.default",
    ),
}

POLYNOMIALS = [
    *(
        f"{kind}chebyshev_polynomial_{letter}"
        for kind in ("", "shifted_")
        for letter in ("t", "u", "v", "w")
    ),
    *("hermite_polynomial_h", "hermite_polynomial_he"),
    *("laguerre_polynomial_l", "legendre_polynomial_p"),
]
SPECIAL = [
    *("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "spherical_bessel_j0"),
    *(f"modified_bessel_{letter}{order}" for letter in "ik" for order in (0, 1)),
    *(f"scaled_modified_bessel_k{order}" for order in (0, 1)),
    *("ndtri", "erfcx"),
]

SPECIAL_FUNCTIONS: dict[str, tuple[Function, str]] = {
    "igamma": (lambda x: torch.igamma(x, x), "igamma.default"),
    "igammac": (lambda x: torch.igammac(x, x), "igammac.default"),
    "polygamma": (lambda x: torch.polygamma(2, x), "polygamma.default"),
    "special.zeta": (lambda x: torch.special.zeta(x, x), "special_zeta.default"),
    "special.log_ndtr": (torch.special.log_ndtr, "special_erfcx.default"),
    **{
        f"special.{name}": (getattr(torch.special, name), f"special_{name}.default")
        for name in SPECIAL
    },
    **{
        f"special.{name}": (
            lambda x, name=name: getattr(torch.special, name)(x, torch.tensor(2)),
            f"special_{name}.default",
        )
        for name in POLYNOMIALS
    },
}

OTHERS: dict[str, tuple[Function, str]] = {
    "poisson": (torch.poisson, "poisson.default"),
    "binomial": (lambda x: torch.binomial(3 * x, x), "binomial.default"),
    "_sample_dirichlet": (torch._sample_dirichlet, "_sample_dirichlet.default"),
    "histogram": (lambda x: torch.histogram(x, 4)[0], "histogram.bin_ct"),
    "histogramdd": (lambda x: torch.histogramdd(x, [2, 2, 2])[0], "_histogramdd_from_bin_cts"),
    "unique(dim=0)": (lambda x: torch.unique(x, dim=0), "unique_dim.default"),
    "to_sparse": (lambda x: x.to_sparse().to_dense(), "_to_sparse.default"),
}

WITHOUT_CONVERTER = OF_MATRICES | SPECIAL_FUNCTIONS | OTHERS
"""Functions by their names in the docs, and the operators that the error must name."""

FORMS: dict[str, tuple[Function, str]] = {
    "nextafter": (
        lambda x: torch.nextafter(x.half(), x.half()),
        r"nextafter.default 'nextafter': the dtype is float16; expected one of float32, float64",
    ),
    "avg_pool2d": (
        lambda x: F.avg_pool2d((9 * x).long()[None], 2, divisor_override=3),
        r"avg_pool2d.default 'avg_pool2d': attribute divisor_override is 3 for int64",
    ),
    "scaled_dot_product_attention": (
        lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.5),
        r"'scaled_dot_product_attention': attribute dropout_p is 0.5; expected 0",
    ),
}
"""Functions of which one form is rejected, and the messages."""


def message_about(*functions: Function) -> str:
    """The message of the import of a program that calls all these functions."""
    call = Call(lambda x: tuple(function(x) for function in functions))
    program = torch.export.export(call, (X,))
    with pytest.raises((tvm.error.OpNotImplemented, tvm.error.OpAttributeInvalid)) as error:
        from_exported_program(program)
    return str(error.value)


def test_one_import_names_all() -> None:
    chosen = grids.sample(list(WITHOUT_CONVERTER), 12)
    message = message_about(*(WITHOUT_CONVERTER[name][0] for name in chosen))
    for name in chosen:
        assert f"aten.{WITHOUT_CONVERTER[name][1]}" in message, name


@pytest.mark.parametrize("name", [*FORMS, *(WITHOUT_CONVERTER if grids.is_full() else ())])
def test_each_is_rejected(name: str) -> None:
    function, expected = (FORMS | WITHOUT_CONVERTER)[name]
    assert re.search(expected, message_about(function))


def test_the_page_lists_exactly_these() -> None:
    section = PAGE.read_text().partition("## Rejected operators\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    cells = [row.split(" | ")[1] for row in rows]
    listed = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert listed == {*WITHOUT_CONVERTER, *FORMS}


if __name__ == "__main__":
    tvm.testing.main()
