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
"""``scaled_dot_product_attention`` gives what PyTorch gives."""

import pytest
import torch
import torch.nn.functional as F
import tvm
import tvm.testing

from helpers.relax_modules import count
from helpers.torch_programs import Call, check_function, import_exported, random
from tvm_fixes.support import switches

attention = F.scaled_dot_product_attention


def heads(*shape: int, seed: int = 0) -> torch.Tensor:
    return random(*shape, dtype=torch.float32, seed=seed)


Q, K, V = heads(2, 4, 5, 8), heads(2, 4, 7, 8, seed=1), heads(2, 4, 7, 6, seed=2)


def test_masks() -> None:
    """The first query of the boolean mask sees no key."""
    seen = heads(2, 1, 5, 7, seed=3) > -0.5
    seen[:, :, 0] = False
    check_function(
        lambda q, k, v, mask, bias: (
            attention(q, k, v),
            attention(q, k, v, attn_mask=mask),
            attention(q, k, v, attn_mask=bias),
            attention(q, k, v, is_causal=True),
            attention(q, k, v, attn_mask=mask, scale=0.3),
        ),
        Q,
        K,
        V,
        seen,
        heads(5, 7, seed=4),
    )


def test_fewer_heads_of_keys() -> None:
    check_function(
        lambda q, k, v: (attention(q, k, v, enable_gqa=True),),
        Q,
        K[:, :2].clone(),
        V[:, :2].clone(),
    )


def test_ranks() -> None:
    check_function(
        lambda q, k, v: (attention(q[0], k[0], v[0]), attention(q[0, 0], k[0, 0], v[0, 0])), Q, K, V
    )


def test_dynamic_length() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = x.view(x.shape[0], 2, 4).transpose(0, 1)
        return (attention(x, x, x, is_causal=True).transpose(0, 1).reshape(-1, 8),)

    others = [(heads(length, 8, seed=length),) for length in (4, 11)]
    check_function(function, heads(6, 8), dynamic=(0,), others=others)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_16_bits(dtype: torch.dtype) -> None:
    """Sums are of float32; the weights and the result are rounded."""
    check_function(
        lambda q, k, v: (attention(q, k, v),),
        *(x.to(dtype) for x in (Q, K, V)),
        tolerance=4 * torch.finfo(dtype).eps,
    )


def test_dropout_is_rejected() -> None:
    module = Call(lambda q: attention(q, q, q, dropout_p=0.5))
    with pytest.raises(tvm.error.OpAttributeInvalid, match=r"dropout_p is 0\.5; expected 0"):
        import_exported(module, (Q,))


def test_a_view_of_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x.view(2, 3, 2, 4).transpose(1, 2)
        return attention(x, x, x).transpose(1, 2).reshape(2, 3, 8).view(-1, 8)

    x = heads(2, 3, 8)
    with switches.collect() as acted:
        mod = import_exported(Call(function), (x,))
    assert acted == {"torch-attention"}
    assert count(mod, "relax.nn.softmax") == 1
    monkeypatch.setenv(switches.ENVIRONMENT_VARIABLE, "torch-attention")
    with pytest.raises(ValueError, match="Cannot view a tensor"):
        import_exported(Call(function), (x,))


if __name__ == "__main__":
    tvm.testing.main()
