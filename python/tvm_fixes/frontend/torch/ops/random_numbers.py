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
"""Random numbers: ``rand``, ``randn``, ``randint``, and what ``rules`` derives from them.

Mechanism
    TVM has converters for inference only, and no operator that draws random numbers.
"""

from collections.abc import Callable

from torch.export import ExportedProgram
from tvm import relax, tirx

from ....errors import OpNotImplemented
from ....fixes.torch_importer import RANDOM as FIX_ID
from ....support import switches
from ....tirx.loop_kernels import cast
from ...dtypes import dtype_of
from ...random_tensors import computing_dtype, random_tensor
from ...threefry import normal_number, u64, uniform_number
from ..call import Call, converts

__all__ = ["check_recurrent_dropout"]


# The digits of a number in [0.5, 1): with more, rounding could give 1.
_DIGITS = {"float16": 11, "bfloat16": 8}

_RECURRENT = ("gru", "lstm", "rnn_relu", "rnn_tanh")


def check_recurrent_dropout(program: ExportedProgram) -> None:
    """Check that no recurrent operator drops elements, which PyTorch's decomposition ignores.

    Raises
    ------
    tvm.error.OpNotImplemented
        If one does; the message names its node.
    """
    for node in program.graph.nodes:
        name, _, overload = getattr(node.target, "__name__", "").partition(".")
        if name not in _RECURRENT or overload not in ("data", "input"):
            continue
        dropout, training = node.args[5:7] if overload == "input" else node.args[6:8]
        if dropout and training:
            raise OpNotImplemented(
                f"{node.target} {node.name!r}: attribute dropout is {dropout} in training mode; "
                "expected 0; export the model after eval()"
            )


def _drawn(
    call: Call,
    dtype: str,
    make: Callable[[list[tirx.Expr]], tirx.Expr],
    words_each: int = 1,
) -> relax.Expr:
    """Emit random numbers that `make` computes from 64-bit words."""
    switches.note(FIX_ID)
    call.context.random_tensors += 1
    shape, size = call.shape, tirx.const(1, "int64")
    for extent in shape:
        size = size * extent
    key = (call.context.random_tensors, 0)
    numbers = random_tensor(
        call.builder,
        key,
        shape,
        make,
        size=call.symbols.analyzer.simplify(size),
        words_each=words_each,
    )
    return call.astype(numbers, dtype)


def _uniform_numbers(call: Call, dtype: str) -> relax.Expr:
    """Emit numbers in [0, 1)."""
    inner = computing_dtype(dtype)

    def make(words: list[tirx.Expr]) -> tirx.Expr:
        number = uniform_number(words[0], inner)
        if dtype not in _DIGITS:
            return number
        scale = tirx.const(2.0 ** _DIGITS[dtype], inner)
        return tirx.floor(number * scale) / scale

    return _drawn(call, dtype, make)


@converts("rand.default", "rand_like.default", fix=FIX_ID)
def convert_uniform(call: Call) -> relax.Expr:
    """Convert the draw of numbers in [0, 1)."""
    return _uniform_numbers(call, call.dtype)


@converts("randn.default", "randn_like.default", fix=FIX_ID)
def convert_normal(call: Call) -> relax.Expr:
    """Convert the draw of normal numbers."""
    inner = computing_dtype(call.dtype)
    return _drawn(call, call.dtype, lambda words: normal_number(words, inner), words_each=2)


@converts(
    "randint.default", "randint.low", "randint_like.default", "randint_like.low_dtype", fix=FIX_ID
)
def convert_integers(call: Call) -> relax.Expr:
    """Convert the draw of integers in a range."""
    first = 1 if "like" in call.operator else 0
    has_low = "low" in call.operator
    bounds = call.operands[first : first + 1 + has_low]
    low, high = bounds if has_low else (0, *bounds)

    def make(words: list[tirx.Expr]) -> tirx.Expr:
        span = u64(high - low) if isinstance(high - low, int) else cast(high - low, "uint64")
        return tirx.truncmod(words[0], span).astype("int64") + cast(low, "int64")

    return _drawn(call, call.dtype, make)


@converts("dropout.default", "dropout_.default", fix=FIX_ID)
def convert_dropout(call: Call) -> relax.Expr:
    """Convert the ``dropout`` of a program that is not decomposed."""
    x, probability, training = call.arguments(input=None, p=0.5, train=True)
    if not training or probability == 0:
        return x
    emit, dtype = call.emit, dtype_of(x)
    numbers = _uniform_numbers(call, "float32")
    is_kept = emit(relax.op.greater_equal(numbers, relax.const(probability, "float32")))
    scale = 1 / (1 - probability) if probability < 1 else 0.0
    return call.scale(emit(relax.op.multiply(x, call.astype(is_kept, dtype))), scale)
