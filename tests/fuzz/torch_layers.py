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
"""The layers of random PyTorch programs."""

from collections.abc import Callable

from .torch_source import FLOATS, Program, Variable

_PAD_MODES = ("reflect", "replicate", "circular")


def _image(p: Program) -> Variable | None:
    v = p.pick(FLOATS, ranks=(3, 4, 5))
    if v is not None and p.chance(0.6):
        return v
    if len(p.inputs) > 4:
        return v
    spatial = [int(e) for e in p.rng.integers(3, 10, p.choose((1, 2, 2, 3)))]
    return p.add_input(p.choose(FLOATS), [1 + p.below(2), p.choose((2, 4, 6)), *spatial], "normal")


def convolve(p: Program) -> None:
    v = _image(p)
    if v is None or v.rank < 3 or 0 in v.shape:
        return
    spatial, channels = v.rank - 2, v.shape[1]
    groups = p.choose([g for g in range(1, channels + 1) if channels % g == 0])
    kernel = [1 + p.below(3) for _ in range(spatial)]
    stride, dilation = 1 + p.below(3), 1 + p.below(2)
    if p.chance(0.4):
        weight = p.weight(v.dtype, [channels, 1 + p.below(3), *kernel])
        extra = f"stride={stride}, padding={p.below(2)}, output_padding={p.below(stride)}"
        name = f"F.conv_transpose{spatial}d"
    else:
        weight = p.weight(v.dtype, [groups * (1 + p.below(3)), channels // groups, *kernel])
        padding = p.choose((0, 1, 2, "'same'")) if stride == 1 else p.below(3)
        extra = f"stride={stride}, padding={padding}, dilation={dilation}"
        name = f"F.conv{spatial}d"
    p.let(f"{name}({v.name}, {weight}, None, {extra}, groups={groups})", [v])


def pool(p: Program) -> None:
    v = _image(p)
    if v is None or v.rank < 3 or 0 in v.shape:
        return
    d, kernel = v.rank - 2, 2 + p.below(2)
    stride, padding, ceil = 1 + p.below(3), p.below(2), p.chance(0.4)
    window = f"{kernel}, {stride}, {padding}"
    form = p.choose(
        (
            f"F.max_pool{d}d({v.name}, {window}, ceil_mode={ceil})",
            f"F.avg_pool{d}d({v.name}, {window}, {ceil}, {p.chance(0.5)})",
            f"F.avg_pool{d}d({v.name}, {window}, divisor_override=3)",
            f"F.adaptive_avg_pool{d}d({v.name}, {1 + p.below(4)})",
            f"F.adaptive_max_pool{d}d({v.name}, {1 + p.below(4)})",
            f"F.interpolate({v.name}, scale_factor=2)",
            f"F.interpolate({v.name}, size={[2 * e for e in v.shape[2:]]}, mode='nearest')",
            f"F.pad({v.name}, ({p.below(3)}, {p.below(3)}), '{p.choose(_PAD_MODES)}')",
            f"F.instance_norm({v.name})",
            f"F.group_norm({v.name}, 2)",
        )
    )
    p.let(form, [v], exact="max_pool" in form or "pad(" in form)


def multiply(p: Program) -> None:
    v = p.pick(FLOATS, ranks=range(1, 5))
    if v is None or v.shape[-1] == 0:
        return
    inner, width = v.shape[-1], 1 + p.below(20)
    kind = "exact" if v.exact else "normal"
    bias = p.weight(v.dtype, [width], kind)
    form = p.choose(
        (
            f"F.linear({v.name}, {p.weight(v.dtype, [width, inner], kind)}, {bias})",
            f"F.linear({v.name}, {p.weight(v.dtype, [width, inner], kind)})",
            f"{v.name} @ {p.weight(v.dtype, [inner, width], kind)}",
            f"{v.name} @ {v.name}.mT",
            f"torch.einsum('...i,ji->...j', {v.name}, {p.weight(v.dtype, [width, inner], kind)})",
            f"torch.matmul({v.name}, {p.weight(v.dtype, [inner], kind)})",
            f"torch.outer({v.name}.flatten(), {p.weight(v.dtype, [3], kind)})",
        )
    )
    p.let(form, [v], exact=True)


def normalize(p: Program) -> None:
    v = p.pick(FLOATS, ranks=range(2, 5))
    if v is None or 0 in v.shape:
        return
    last, channels = v.shape[-1], v.shape[1]
    pair = f"{p.weight(v.dtype, [last])}, {p.weight(v.dtype, [last])}"
    moments = f"{p.weight(v.dtype, [channels])}, {p.weight(v.dtype, [channels], 'positive')}"
    form = p.choose(
        (
            f"F.layer_norm({v.name}, ({last},), {pair})",
            f"F.layer_norm({v.name}, ({last},))",
            f"F.rms_norm({v.name}, ({last},))",
            f"F.batch_norm({v.name}, {moments})",
            f"F.normalize({v.name}, dim=-1)",
            f"F.scaled_dot_product_attention({v.name}, {v.name}, {v.name})",
            f"F.scaled_dot_product_attention({v.name}, {v.name}, {v.name}, is_causal=True)",
            f"F.glu({v.name}, -1)",
        )
    )
    p.let(form, [v])


def recur(p: Program) -> None:
    v = p.pick(("f32",), ranks=(3,))
    if v is None or 0 in v.shape:
        return
    options = f"batch_first={p.chance(0.5)}, bidirectional={p.chance(0.4)}"
    name = p.choose(("LSTM", "GRU", "RNN"))
    module = p.module(f"nn.{name}({v.shape[-1]}, {1 + p.below(4)}, {options})", p.below(1000))
    p.let(f"{module}({v.name})[0]", [v])


def embed(p: Program) -> None:
    v = p.pick(("i64", "i32"), ranks=range(1, 4))
    if v is None:
        return
    dtype = p.choose(FLOATS)
    table = p.weight(dtype, [5, 1 + p.below(6)], "exact")
    p.let(f"F.embedding({v.name} % 5, {table})", [v], exact=True)


STATEMENTS: tuple[tuple[Callable[[Program], None], float], ...] = (
    (convolve, 1),
    (pool, 1),
    (multiply, 1.5),
    (normalize, 1),
    (recur, 0.3),
    (embed, 0.5),
)
