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

Upstream
    No thread found.
Versions
    Seen in 0.27.0.post1.
Trigger
    A program that draws random numbers, such as a dropout in training mode.
Symptom
    ``dropout`` and ``bernoulli`` with a probability return their operand and ``exponential``
    zeros; ``randn`` has other numbers in each import; the others are rejected.
Mechanism
    TVM has converters for inference only, and no operator that draws random numbers.
How to remove
    See ``corrections``.
"""

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.export import ExportedProgram
from tvm import relax, tirx

from ...errors import OpNotImplemented
from ...fixes.torch_importer import RANDOM as FIX_ID
from ...support import switches
from ...tirx.loop_kernels import cast
from ..dtypes import dtype_of
from ..random_tensors import computing_dtype, random_tensor
from ..threefry import normal_number, u64, uniform_number
from .corrections import Converters, Corrections
from .symbols import Symbols

__all__ = ["RandomNumbers", "check_recurrent_dropout"]

# Converters of TVM that are wrong in training mode; ``rules`` replaces them.
_IGNORED = ("bernoulli.p", "exponential.default", "native_dropout.default")

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


class RandomNumbers(Corrections):
    """The converters of operators that draw random numbers.

    The numbers of a tensor depend on its place among the random tensors of the program, and each
    run has the same ones.
    """

    _symbols: Symbols
    _random_tensors = 0

    def drawing_converters(self, stock: Converters) -> Converters:
        """Return `stock` with converters of random numbers, by the name of the overload."""
        kept = {name: convert for name, convert in stock.items() if name not in _IGNORED}
        return {
            **kept,
            "dropout.default": self._dropout_call,
            "dropout_.default": self._dropout_call,
            "rand.default": self._uniform_call,
            "rand_like.default": self._uniform_call,
            "randn.default": self._normal_call,
            "randn_like.default": self._normal_call,
            "randint.default": self._integer_call,
            "randint.low": self._integer_call,
            "randint_like.default": self._integer_call,
            "randint_like.low_dtype": self._integer_call,
        }

    def _drawn(
        self,
        sizes: Any,
        dtype: str,
        make: Callable[[list[tirx.Expr]], tirx.Expr],
        words_each: int = 1,
    ) -> relax.Expr:
        """Emit random numbers that `make` computes from 64-bit words."""
        switches.note(FIX_ID)
        self._random_tensors += 1
        shape = self._symbols.shape(sizes)
        size = tirx.const(1, "int64")
        for extent in shape:
            size = size * extent
        key = (self._random_tensors, 0)
        numbers = random_tensor(
            self.block_builder,
            key,
            shape,
            make,
            size=self._symbols.analyzer.simplify(size),
            words_each=words_each,
        )
        return self._astype(numbers, dtype)

    def _uniform_numbers(self, sizes: Any, dtype: str) -> relax.Expr:
        """Emit numbers in [0, 1)."""
        inner = computing_dtype(dtype)

        def make(words: list[tirx.Expr]) -> tirx.Expr:
            number = uniform_number(words[0], inner)
            if dtype not in _DIGITS:
                return number
            scale = tirx.const(2.0 ** _DIGITS[dtype], inner)
            return tirx.floor(number * scale) / scale

        return self._drawn(sizes, dtype, make)

    def _uniform_call(self, node: fx.Node) -> relax.Expr:
        value = node.meta["val"]
        return self._uniform_numbers(value.shape, self._convert_data_type(value.dtype))

    def _normal_call(self, node: fx.Node) -> relax.Expr:
        value = node.meta["val"]
        dtype = self._convert_data_type(value.dtype)
        inner = computing_dtype(dtype)
        return self._drawn(
            value.shape, dtype, lambda words: normal_number(words, inner), words_each=2
        )

    def _integer_call(self, node: fx.Node) -> relax.Expr:
        value = node.meta["val"]
        first = 1 if "like" in node.target.__name__ else 0
        has_low = "low" in node.target.__name__
        given = [self._retrieve_args(bound) for bound in node.args[first : first + 1 + has_low]]
        low, high = given if has_low else (0, *given)

        def make(words: list[tirx.Expr]) -> tirx.Expr:
            span = u64(high - low) if isinstance(high - low, int) else cast(high - low, "uint64")
            return tirx.truncmod(words[0], span).astype("int64") + cast(low, "int64")

        return self._drawn(value.shape, self._convert_data_type(value.dtype), make)

    def _dropout_call(self, node: fx.Node) -> relax.Expr:
        """Convert the ``dropout`` of a program that is not decomposed."""
        x, probability, training = self._arguments(node, input=None, p=0.5, train=True)
        if not training or probability == 0:
            return x
        emit, dtype = self.block_builder.emit, dtype_of(x)
        numbers = self._uniform_numbers(node.meta["val"].shape, "float32")
        is_kept = emit(relax.op.greater_equal(numbers, relax.const(probability, "float32")))
        scale = 1 / (1 - probability) if probability < 1 else 0.0
        return self._scale(emit(relax.op.multiply(x, self._astype(is_kept, dtype))), scale)
