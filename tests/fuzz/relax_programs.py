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
"""Random valid Relax modules with inputs of several sizes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from . import relax_exclusions, relax_oracle_movement, relax_oracle_windows  # noqa: F401  (they register)
from .relax_oracle import (
    FLOATS,
    INTEGERS,
    Interpreter,
    Tensor,
    Undefined,
    Unsupported,
    cast,
    flat,
    from_numpy,
    numpy_dtype,
)

MAX_ELEMENTS = 6000
_MAX_RANK = 5

Dims = tuple[Any, ...]
"""Extents: ints, and integer expressions of symbols."""


class Reject(Exception):
    """The call that a family is about to emit does not fit here."""


@dataclass
class Drawn:
    """How to draw a parameter: ``normal``, ``positive``, or indices below `bound`."""

    dims: Dims
    dtype: str
    kind: str = "normal"
    bound: Any = None


@dataclass
class Item:
    """A usable variable, and its value at the first sizes."""

    var: relax.Expr
    value: Tensor

    @property
    def dtype(self) -> str:
        return self.value.dtype

    @property
    def dims(self) -> Dims:
        return tuple(self.var.ty.shape.values)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def rank(self) -> int:
        return len(self.value.shape)

    def is_static(self, axis: int) -> bool:
        return isinstance(self.dims[axis], tirx.IntImm)


@dataclass
class Program:
    """A module and how to draw its inputs."""

    mod: tvm.IRModule
    drawn: list[Drawn]
    symbols: dict[tirx.Var, int]
    special: bool

    def inputs(self, rng: np.random.Generator, sizes: dict[tirx.Var, int]) -> list[np.ndarray]:
        return [draw(rng, tensor, sizes, self.special) for tensor in self.drawn]

    def sizes(self, rng: np.random.Generator, count: int) -> list[dict[tirx.Var, int]]:
        """Sizes of the symbols: first those at construction, then others, including 0 and 1."""
        choices = [self.symbols]
        if self.symbols:
            for _ in range(count - 1):
                choices.append(
                    {s: int(rng.choice([0, 1, 1, 2, 3, 5, 8, 17])) for s in self.symbols}
                )
        return choices


def _symbols_in(extent: Any) -> set[tirx.Var]:
    return set() if isinstance(extent, int) else set(tirx.analysis.undefined_vars(extent))


def size_of(extent: Any, sizes: dict[tirx.Var, int]) -> int:
    inter = Interpreter(tvm.IRModule({}))
    inter.symbols = dict(sizes)
    return inter.extent(extent)


def draw(
    rng: np.random.Generator, one: Drawn, sizes: dict[tirx.Var, int], special: bool
) -> np.ndarray:
    """Values of one parameter or constant.

    Raises
    ------
    Undefined
        If an extent is negative at these sizes.
    """
    shape = [size_of(extent, sizes) for extent in one.dims]
    if min(shape, default=0) < 0:
        raise Undefined(f"a parameter of shape {shape}")
    if one.kind == "index":
        return rng.integers(0, max(size_of(one.bound, sizes), 1), shape).astype(one.dtype)
    if one.kind == "permutation":
        order = np.argsort(rng.random([*shape[:-1], size_of(one.bound, sizes)]), -1)
        return order[..., : shape[-1]].astype(one.dtype)
    if one.dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if one.dtype in INTEGERS:
        limits = np.iinfo(one.dtype)
        low, high = (1 if one.kind == "positive" else max(-9, limits.min)), 10
        data = rng.integers(low, high, shape)
        extremes = [limits.min, limits.max, limits.max - 1, 0]
        if special and one.kind == "normal":
            data = np.where(rng.random(shape) < 0.1, rng.choice(extremes, shape), data)
        return data.astype(one.dtype)
    data = rng.normal(size=shape) * rng.choice([0.5, 1.0, 3.0])
    if rng.random() < 0.3:
        data = np.round(data * 2) / 2
    if one.kind == "positive":
        data = np.abs(data) + 0.25
    elif special:
        odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, 300.0, -300.0]
        data = np.where(rng.random(shape) < 0.08, rng.choice(odd, shape), data)
    return cast(data, one.dtype)


@dataclass
class Maker:
    """A function under construction.

    Attributes
    ----------
    special : bool
        Whether inputs contain special values such as NaN and infinities.
    """

    rng: np.random.Generator
    special: bool
    bb: relax.BlockBuilder
    symbols: dict[tirx.Var, int]
    params: list[relax.Var] = field(default_factory=list)
    drawn: list[Drawn] = field(default_factory=list)
    weights: list[tuple[relax.Var, Drawn]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    blocks: list[relax.BindingBlock] = field(default_factory=list)
    bindings: list[relax.Binding] = field(default_factory=list)
    inter: Interpreter = None  # type: ignore[assignment]
    is_dataflow: bool = True
    outer: "Maker | None" = None

    def __post_init__(self) -> None:
        if self.inter is None:
            self.inter = Interpreter(self.bb.get())
            self.inter.symbols = dict(self.symbols)

    # --- choices ---------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choice(self, options: Sequence[Any]) -> Any:
        if not len(options):
            raise Reject("nothing to choose from")
        return options[int(self.rng.integers(len(options)))]

    def between(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, inclusive."""
        if high < low:
            raise Reject("nothing in between")
        return int(self.rng.integers(low, high + 1))

    def pick(self, fits: Callable[[Item], bool] = lambda item: True) -> Item:
        """A value that fits, preferably a recent one."""
        fitting = [item for item in self.items if fits(item)]
        if not fitting:
            raise Reject("no value that fits")
        return fitting[-1 - min(int(self.rng.exponential(2.0)), len(fitting) - 1)]

    def pick_float(self, low: int = 0, high: int = _MAX_RANK) -> Item:
        return self.pick(lambda item: item.dtype in FLOATS and low <= item.rank <= high)

    def pick_number(self, low: int = 0, high: int = _MAX_RANK) -> Item:
        return self.pick(lambda item: item.dtype != "bool" and low <= item.rank <= high)

    # --- values ----------------------------------------------------------------------------

    def given(
        self, dims: Sequence[Any], dtype: str, kind: str = "normal", bound: Any = None
    ) -> Item:
        """A new parameter, weight or constant."""
        one = Drawn(tuple(dims), dtype, kind, bound)
        is_static = all(isinstance(extent, int | tirx.IntImm) for extent in dims)
        extents = [*dims, *([] if bound is None else [bound])]
        if not set().union(*(_symbols_in(extent) for extent in extents)) <= set(self.symbols):
            raise Reject("a parameter with a computed extent")
        try:
            array = draw(self.rng, one, self.symbols, self.special)
        except Undefined as error:
            raise Reject(str(error)) from error
        # TVM cannot load an empty constant.
        if is_static and (self.outer is not None or self.chance(0.4)) and array.size:
            expr: relax.Expr = relax.const(array, dtype)
            return Item(expr, from_numpy(array))
        if self.outer is not None:
            raise Reject("no parameters in a branch")
        var = relax.Var(f"p{len(self.params) + len(self.weights)}", relax.TensorType(dims, dtype))
        self.inter.values[var] = from_numpy(array)
        if is_static and self.chance(0.5):
            self.weights.append((var, one))
        else:
            self.params.append(var)
            self.drawn.append(one)
        item = Item(var, from_numpy(array))
        if kind == "normal":
            self.items.append(item)
        return item

    def emit(self, expr: relax.Expr, unchecked: bool = False) -> list[Item]:
        """Bind a value, and make its tensors available.

        Raises
        ------
        Reject
            If TVM rejects it, if it is undefined, or if its values are not usable.
        """
        try:
            expr = self.bb.normalize(expr)
            self._check_extents(expr.ty)
            value = self.inter.evaluate(expr)
        except (Undefined, Unsupported) as error:
            raise Reject(str(error)) from error
        except Exception as error:
            raise Reject(f"TVM: {error}") from error
        for leaf in flat(value):
            self._check(leaf)
            # A convolution of empty data is a compile-time error.
            if leaf.data.size == 0 and "nn.conv" in str(getattr(expr, "op", "")):
                raise Reject("a convolution with an empty result")
        var = self.bind(expr, value)
        return self._use(var, value)

    def bind(self, expr: relax.Expr, value: Any) -> relax.Var:
        make = relax.DataflowVar if self.is_dataflow and self.chance(0.8) else relax.Var
        var = make(f"v{len(self.inter.values)}", expr.ty)
        self.bindings.append(relax.VarBinding(var, expr))
        self.inter.values[var] = value
        return var

    def _use(self, var: relax.Expr, value: Any) -> list[Item]:
        if isinstance(value, Tensor):
            if not isinstance(var.ty.shape, relax.ShapeExpr):
                var, value = self._with_shape(var, value)
            self.items.append(Item(var, value))
            return [self.items[-1]]
        items: list[Item] = []
        for index, part in enumerate(value):
            got = self.bb.normalize(relax.TupleGetItem(var, index))
            items += self._use(self.bind(got, part), part)
        return items

    def _with_shape(self, var: relax.Expr, value: Tensor) -> tuple[relax.Var, Tensor]:
        """Cast a value of unknown extents to new symbols."""
        symbols = [tirx.Var(f"s{len(self.inter.symbols) + i}", "int64") for i in range(var.ty.ndim)]
        ty = relax.TensorType(symbols, value.dtype)
        new = relax.Var(f"v{len(self.inter.values)}", ty)
        self.bindings.append(relax.MatchCast(new, var, ty))
        self.inter.values[new] = value
        for symbol, size in zip(symbols, value.shape, strict=True):
            self.inter.symbols[symbol] = size
        return new, value

    def _check_extents(self, ty: tvm.ir.Type) -> None:
        """Reject negative extents, which TVM infers for some slices."""
        for part in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
            shape = getattr(part, "shape", None)
            if isinstance(shape, relax.ShapeExpr):
                if any(self.inter.extent(extent) < 0 for extent in shape.values):
                    raise Undefined("a negative extent")

    def _check(self, leaf: Tensor) -> None:
        if leaf.data.size > MAX_ELEMENTS or leaf.data.ndim > _MAX_RANK:
            raise Reject("too many elements")
        if leaf.dtype in FLOATS and not self.special and leaf.data.size:
            largest = float(np.max(np.abs(leaf.data)))
            limit = 200.0 if numpy_dtype(leaf.dtype).itemsize == 2 else 1e5
            if not largest <= limit:
                raise Reject("number too large")

    # --- blocks ----------------------------------------------------------------------------

    def end_block(self) -> None:
        if self.bindings:
            make = relax.DataflowBlock if self.is_dataflow else relax.BindingBlock
            self.blocks.append(make(self.bindings))
        self.bindings = []
        self.items = [item for item in self.items if not isinstance(item.var, relax.DataflowVar)]
        self.is_dataflow = self.chance(0.75)

    def next_block(self, dataflow: bool) -> None:
        self.end_block()
        self.is_dataflow = dataflow

    def finish(self, outputs: Sequence[Item], name: str, private: bool = False) -> relax.Function:
        """The function that returns `outputs`."""
        results: list[relax.Expr] = [item.var for item in outputs]
        if len(results) > 1 or self.chance(0.2):
            body: relax.Expr = self.bb.normalize(relax.Tuple(results))
            bound = relax.Var("result", body.ty)
            self.bindings.append(relax.VarBinding(bound, body))
            body = bound
        else:
            body = results[0]
        if isinstance(body, relax.DataflowVar) or not isinstance(body, relax.Var):
            bound = relax.Var("result", body.ty)
            self.bindings.append(relax.VarBinding(bound, body))
            body = bound
        self.end_block()
        params = [*self.params, *(var for var, _ in self.weights)]
        seq = self.bb.normalize(relax.SeqExpr(self.blocks, body))
        function = relax.Function(params, seq)
        if not private:
            function = function.with_attr("global_symbol", name)
        if self.weights and self.chance(0.8):
            function = function.with_attr("num_input", len(self.params))
        return function


def make_program(
    rng: np.random.Generator,
    steps: int | None = None,
    only: Sequence[str] | None = None,
    dtype: str | None = None,
) -> Program:
    """A random valid module.

    Parameters
    ----------
    rng : numpy.random.Generator
        Determines the program.
    steps : int, optional
        The approximate number of operators.
    only : sequence of str, optional
        The families of operators to draw from; by default all.
    dtype : str, optional
        The dtype of the first parameter; by default random.
    """
    from .relax_families import FAMILIES

    special, dynamic = bool(rng.random() < 0.2), bool(rng.random() < 0.5)
    bb = relax.BlockBuilder()
    symbols = {}
    if dynamic:
        symbols = {
            tirx.Var(name, "int64"): int(rng.integers(2, 7)) for name in "nm"[: rng.integers(1, 3)]
        }
    maker = Maker(rng, special, bb, symbols)
    dims = [int(rng.choice([1, 2, 3, 4, 5, 7, 8])) for _ in range(int(rng.integers(1, 5)))]
    dtype = dtype or maker.choice([*FLOATS, *["float32"] * 6, *INTEGERS])
    extents: list[Any] = list(dims)
    for i, symbol in enumerate(symbols):
        extents[min(i, len(extents) - 1)] = symbol
    # Each symbol gets its own parameter that binds it.
    for symbol in symbols:
        if not any(extent is symbol for extent in extents):
            maker.params.append(
                relax.Var(f"size_{symbol.name}", relax.TensorType([symbol], "float32"))
            )
            maker.drawn.append(Drawn((symbol,), "float32"))
            sized = draw(rng, maker.drawn[-1], symbols, special)
            maker.inter.values[maker.params[-1]] = from_numpy(sized)
    first = Drawn(tuple(extents), dtype)
    var = relax.Var("x", relax.TensorType(extents, dtype))
    value = from_numpy(draw(rng, first, symbols, special))
    maker.params.append(var)
    maker.drawn.append(first)
    maker.inter.values[var] = value
    maker.items.append(Item(var, value))
    families = {name: one for name, one in FAMILIES.items() if only is None or name in only}
    names = list(families)
    weights = np.array([families[name][0] for name in names], float)
    for _ in range(int(rng.integers(2, 13)) if steps is None else steps):
        for _attempt in range(8):
            name = names[int(rng.choice(len(names), p=weights / weights.sum()))]
            try:
                families[name][1](maker)
                break
            except Reject:
                continue
        if rng.random() < 0.08:
            maker.end_block()
    return _finished(maker, symbols)


def _finished(maker: Maker, symbols: dict[tirx.Var, int]) -> Program:
    # Return all unread values, and one value that is read.
    read = set()
    for block in [*maker.blocks, relax.BindingBlock(maker.bindings)]:
        for binding in block.bindings:
            read.update(relax.analysis.free_vars(binding.value))
    live = [item for item in maker.items if isinstance(item.var, relax.Var)]
    outputs = [item for item in live if item.var not in read] or live[-1:]
    outputs = outputs[-6:]
    if maker.chance(0.3):
        outputs.append(maker.choice(live))
    function = maker.finish(outputs, "main")
    mod = maker.bb.get()
    mod["main"] = function
    drawn = [*maker.drawn, *(one for _, one in maker.weights)]
    return Program(mod, drawn, symbols, maker.special)
