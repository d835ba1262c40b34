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
"""A Relax interpreter in NumPy: the expected results of a module, and their uncertainty.

The interpreter stores floats as float64 and rounds them to their dtype after each operator.  A
noisy run adds a rounding error to each result.  The difference between noisy runs is the tolerance
for an implementation; it grows where a program cancels or amplifies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax, tirx

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")

# The unit in the last place of 1.
EPSILON = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
# The smallest nonzero number: a kernel's rounding error for subnormal numbers.
TINY = {"float64": 1e-300, "float32": 2.0**-126, "float16": 2.0**-24, "bfloat16": 2.0**-126}


class Undefined(Exception):
    """The program has no defined result for these inputs."""


class Unsupported(Exception):
    """The interpreter does not support this."""


@dataclass
class Tensor:
    """A value and its dtype: floats as float64, integers as int64 (no uint64)."""

    data: np.ndarray
    dtype: str

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape


Value = Any
"""A :class:`Tensor`, a tuple of values, or a list of ints for a shape."""


def numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def from_numpy(array: np.ndarray) -> Tensor:
    name = array.dtype.name
    if name in FLOATS:
        return Tensor(array.astype(np.float64), name)
    return Tensor(array if name == "bool" else array.astype(np.int64), name)


def to_numpy(value: Value) -> Any:
    """Convert to the arrays that the virtual machine takes and returns."""
    if isinstance(value, Tensor):
        return cast(value.data, value.dtype)
    return [to_numpy(part) for part in value]


def cast(data: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        return data.astype(numpy_dtype(dtype))


@dataclass
class Numerics:
    """Rounds results to their dtype, plus noise of `amplitude` times the rounding error.

    With `to_zero`, results no larger than their noise become 0, as terms that cancel may do.  With
    a `direction` of 1 or -1, the noise is maximal, upward or downward.
    """

    amplitude: float = 0.0
    rng: np.random.Generator = field(default_factory=np.random.default_rng)
    to_zero: bool = False
    direction: float = 0.0

    def rounded(self, data: Any, dtype: str, error: Any = None) -> Tensor:
        """Round a result to `dtype`.

        Parameters
        ----------
        data : array
            The result before rounding.
        dtype : str
            The dtype of the result.
        error : array, optional
            The rounding errors an implementation may make, in units of the dtype's epsilon; by
            default the magnitude of the result.
        """
        data = np.asarray(data)
        if dtype == "bool":
            return Tensor(data.astype(bool), dtype)
        if dtype in INTEGERS:
            return Tensor(np.asarray(data.astype(np.int64).astype(dtype)).astype(np.int64), dtype)
        data = data.astype(np.float64)
        if self.amplitude:
            error = np.abs(data) if error is None else error
            size = EPSILON[dtype] * self.amplitude * np.where(np.isfinite(error), error, 0.0)
            # An exact 0 stays 0.
            size = size + np.where(error != 0, TINY[dtype], 0.0)
            is_zero = (np.abs(data) < size) & self.to_zero
            noise = self.direction or self.rng.uniform(-1, 1, data.shape)
            data = np.where(is_zero, 0.0, data + size * noise)
        return Tensor(cast(data, dtype).astype(np.float64), dtype)


Operator = Callable[["Interpreter", relax.Call, Sequence[Value]], Value]
OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Register the evaluator of the operators `names`."""

    def register(function: Operator) -> Operator:
        for name in names:
            OPERATORS[f"relax.{name}"] = function
        return function

    return register


EXCLUDED: list[Callable[[relax.Call, Sequence[Value]], bool]] = []
"""Predicates of a call and its arguments; calls that match are not compared."""


class Interpreter:
    """Evaluates the functions of a module.

    Parameters
    ----------
    mod : tvm.IRModule
        Relax functions of high-level operators.
    numerics : Numerics
        How results are rounded.
    """

    def __init__(self, mod: tvm.IRModule, numerics: Numerics | None = None) -> None:
        self.mod = mod
        self.numerics = numerics or Numerics()
        self.values: dict[relax.Var, Value] = {}
        self.symbols: dict[tirx.Var, int] = {}

    def run(self, name: str, arguments: Sequence[Value]) -> Value:
        """Call a function of the module."""
        return self.call(self.mod[name], arguments)

    def call(self, function: relax.Function, arguments: Sequence[Value]) -> Value:
        inner = Interpreter(self.mod, self.numerics)
        if len(arguments) != len(function.params):
            raise Undefined(f"{len(arguments)} arguments for {len(function.params)} parameters")
        for param, value in zip(function.params, arguments, strict=True):
            inner.values[param] = value
        # The extent of one parameter may depend on a symbol that another one binds.
        for check in (False, True):
            for param, value in zip(function.params, arguments, strict=True):
                inner.bind_type(param.ty, value, check)
        result = inner.evaluate(function.body)
        inner.bind_type(function.ret_ty, result, True)
        return result

    def evaluate(self, expr: relax.Expr) -> Value:
        if isinstance(expr, relax.SeqExpr):
            for block in expr.blocks:
                for binding in block.bindings:
                    value = self.evaluate(binding.value)
                    if isinstance(binding, relax.MatchCast):
                        self.bind_type(binding.ty, value, False)
                        self.bind_type(binding.ty, value, True)
                    self.values[binding.var] = value
            return self.evaluate(expr.body)
        if isinstance(expr, relax.Var) and expr in self.values:
            return self.values[expr]
        if isinstance(expr, tvm.ir.GenericConst):
            return from_numpy(expr.value.numpy())
        if isinstance(expr, relax.Tuple):
            return tuple(self.evaluate(part) for part in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self.evaluate(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return [self.extent(extent) for extent in expr.values]
        if isinstance(expr, relax.If):
            taken = bool(self.evaluate(expr.cond).data)
            return self.evaluate(expr.true_branch if taken else expr.false_branch)
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.GlobalVar):
            return self.call(self.mod[expr.op], [self.evaluate(arg) for arg in expr.args])
        if isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op):
            return self.apply(expr)
        if isinstance(expr, tirx.IntImm | tirx.FloatImm):
            return expr.value
        if isinstance(expr.ty, tvm.ir.PrimType):
            return self.extent(expr)
        raise Unsupported(type(expr).__name__)

    def apply(self, call: relax.Call) -> Value:
        evaluate = OPERATORS.get(call.op.name)
        if evaluate is None:
            raise Unsupported(call.op.name)
        arguments = [self.evaluate(arg) for arg in call.args]
        if any(is_excluded(call, arguments) for is_excluded in EXCLUDED):
            raise Undefined(f"{call.op.name} is excluded for these arguments")
        with np.errstate(all="ignore"):
            return evaluate(self, call, arguments)

    def extent(self, expr: Any) -> int:
        """The value of an integer expression of symbols."""
        if isinstance(expr, int):
            return expr
        if isinstance(expr, tirx.IntImm):
            return int(expr.value)
        analyzer = tvm.sym.Analyzer()
        for var, value in self.symbols.items():
            analyzer.bind(var, tirx.IntImm("int64", value))
        result = analyzer.simplify(expr)
        if not isinstance(result, tirx.IntImm):
            raise Unsupported(f"unbound extent {expr}")
        return int(result.value)

    def bind_type(self, ty: tvm.ir.Type, value: Value, check: bool) -> None:
        """Bind the symbols that are extents of a type, or check its other extents."""
        if isinstance(ty, relax.TupleType):
            if len(ty.fields) != len(value):
                raise Undefined("a tuple of a different length")
            for part, one in zip(ty.fields, value, strict=True):
                self.bind_type(part, one, check)
        elif isinstance(ty, relax.TensorType):
            if ty.dtype and str(ty.dtype) != value.dtype:
                raise Undefined(f"{value.dtype} is not {ty.dtype}")
            if ty.ndim >= 0 and ty.ndim != len(value.shape):
                raise Undefined(f"a rank of {len(value.shape)} is not {ty.ndim}")
            if isinstance(ty.shape, relax.ShapeExpr):
                self._bind(ty.shape.values, value.shape, check)
        elif isinstance(ty, relax.ShapeType) and ty.values is not None:
            self._bind(ty.values, value, check)

    def _bind(self, extents: Sequence[Any], sizes: Sequence[int], check: bool) -> None:
        for extent, size in zip(extents, sizes, strict=True):
            if check:
                if self.extent(extent) != size:
                    raise Undefined(f"an extent of {size} is not {extent}")
            elif isinstance(extent, tirx.Var):
                self.symbols.setdefault(extent, int(size))


# --- comparison ---------------------------------------------------------------------------------

NOISE = 2.0
# Two elements that rounding makes equal keep their order in all runs with a chance of 2**-RUNS.
RUNS = 16
_MARGIN = 4.0


@dataclass
class Expected:
    """The exact results of a program, and the results of noisy runs."""

    exact: list[Tensor]
    noisy: list[list[Tensor]]

    def difference(self, ours: Sequence[np.ndarray]) -> str | None:
        """Describe how an implementation's outputs are wrong; None if they are right."""
        if len(ours) != len(self.exact):
            return f"{len(ours)} outputs instead of {len(self.exact)}"
        for index, (got, want) in enumerate(zip(ours, self.exact, strict=True)):
            difference = _difference(got, want, [run[index] for run in self.noisy])
            if difference:
                return f"output {index} ({want.dtype}{list(want.shape)}): {difference}"
        return None


def flat(value: Value) -> list[Tensor]:
    """The tensors of a nested tuple."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, list):
        return [Tensor(np.array(value, np.int64), "int64")]
    return [leaf for part in value for leaf in flat(part)]


def expected(mod: tvm.IRModule, inputs: Sequence[Any], seed: int, name: str = "main") -> Expected:
    """Evaluate a function, exactly rounded and with noise.

    Raises
    ------
    Undefined
        If the function has no defined result for these inputs.
    """
    values = [from_numpy(array) for array in inputs]
    exact = flat(Interpreter(mod).run(name, values))
    rng = np.random.default_rng(seed)
    numerics = [Numerics(NOISE, rng, to_zero=run == 0) for run in range(RUNS)]
    # Move numbers near a jump to either side of it.
    numerics += [Numerics(NOISE, rng, direction=direction) for direction in (-1.0, 1.0)]
    return Expected(exact, [flat(Interpreter(mod, one).run(name, values)) for one in numerics])


def _difference(got: np.ndarray, want: Tensor, noisy: list[Tensor]) -> str | None:
    if got.dtype.name != want.dtype or got.shape != want.shape:
        return f"is {got.dtype.name}{list(got.shape)}"
    ours = from_numpy(got).data
    # If noise changes the shape of an output, it cannot be compared.
    if any(run.shape != want.shape for run in noisy):
        return None
    with np.errstate(all="ignore"):
        if want.dtype in FLOATS:
            wrong, room = _wrong_floats(ours, want, noisy)
        else:
            sure = np.all([run.data == want.data for run in noisy], axis=0)
            wrong, room = sure & (ours != want.data), np.zeros(want.shape)
    if not np.any(wrong):
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(np.sum(wrong))} of {wrong.size} elements are wrong, at {list(at)}: "
        f"{ours[at]!r} instead of {want.data[at]!r} (tolerance {float(room[at]):.2g})"
    )


def _wrong_floats(
    ours: np.ndarray, want: Tensor, noisy: list[Tensor]
) -> tuple[np.ndarray, np.ndarray]:
    runs = np.stack([run.data for run in noisy])
    spread = np.max(np.abs(runs - want.data), axis=0)
    room = _MARGIN * spread + 4 * EPSILON[want.dtype] * np.abs(want.data) + 4 * TINY[want.dtype]
    kind = np.where(np.isnan(want.data), 2, np.where(np.isinf(want.data), np.sign(want.data), 0))
    kinds = np.where(np.isnan(runs), 2, np.where(np.isinf(runs), np.sign(runs), 0))
    ours_kind = np.where(np.isnan(ours), 2, np.where(np.isinf(ours), np.sign(ours), 0))
    sure = np.all(kinds == kind, axis=0)
    # Rounding a number at the edge of its dtype's range may overflow.
    largest = float(ml_dtypes.finfo(numpy_dtype(want.dtype)).max)
    sure &= ~((kind == 0) & (np.abs(want.data) > 0.5 * largest))
    finite = (kind == 0) & (ours_kind == 0)
    wrong = np.where(finite, np.abs(ours - want.data) > room, kind != ours_kind)
    return sure & wrong, room
