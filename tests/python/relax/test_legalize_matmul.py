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
"""``relax.matmul`` on a CPU compared with NumPy, for shapes that are multiples of tiles or not."""

from dataclasses import dataclass, field
from itertools import product

import ml_dtypes
import numpy as np
import pytest
import tvm
import tvm.testing
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax, tirx
from tvm.relax.transform import LegalizeOps
from tvm.target.codegen import target_has_features

from helpers.conv_checks import loops
from helpers.grids import batched, few, is_full, sample
from helpers.relax_modules import build, call, merge, run, tensor
from tvm_fixes.lowering import pipeline
from tvm_fixes.relax.legalize.matmul.lower import packing_of
from tvm_fixes.target import resolve

CPU = tvm.target.Target("llvm")
GPU = tvm.target.Target({"kind": "cuda", "arch": "sm_80"})
TARGETS = {
    "sse": CPU,
    "avx": tvm.target.Target({"kind": "llvm", "mcpu": "haswell"}),
    "avx512": tvm.target.Target({"kind": "llvm", "mcpu": "skylake-avx512"}),
}
UNIT = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}


@dataclass(frozen=True)
class Case:
    """One product; a symbolic axis is given by operand and position."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    dtype: str = "float32"
    out_dtype: str | None = None
    constant: bool = False
    symbolic: frozenset[tuple[str, int]] = field(default_factory=frozenset)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(sum(self.lhs + self.rhs))
        kind = ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype
        lhs, rhs = (rng.standard_normal(shape).astype(kind) for shape in (self.lhs, self.rhs))
        return lhs, rhs

    def module(self) -> tvm.IRModule:
        names: dict[int, tirx.Var] = {}

        def operand(name: str) -> relax.TensorType:
            extents = [
                names.setdefault(extent, tirx.Var(f"n{extent}", "int64"))
                if (name, axis) in self.symbolic
                else extent
                for axis, extent in enumerate(getattr(self, name))
            ]
            return tensor(*extents, dtype=self.dtype)

        def emit(_builder: relax.BlockBuilder, lhs: relax.Expr, *rhs: relax.Expr) -> relax.Expr:
            (other,) = rhs or [relax.const(self.arrays()[1], self.dtype)]
            return relax.op.matmul(lhs, other, out_dtype=self.out_dtype)

        inputs = {"lhs": operand("lhs")}
        return build(inputs if self.constant else inputs | {"rhs": operand("rhs")}, emit)

    def arguments(self) -> tuple[np.ndarray, ...]:
        return self.arrays()[:1] if self.constant else self.arrays()

    def check(self, got: np.ndarray) -> None:
        """Compare within the error of sums in float32 or wider and one rounding at the end."""
        lhs, rhs = (array.astype("float64") for array in self.arrays())
        out_dtype = self.out_dtype or self.dtype
        assert str(got.dtype) == out_dtype
        sums = min(UNIT[out_dtype], UNIT["float32"]) * (self.lhs[-1] + 1)
        expected = np.matmul(lhs, rhs)
        bound = sums * np.matmul(abs(lhs), abs(rhs)) + UNIT[out_dtype] * abs(expected)
        assert got.shape == expected.shape, self
        assert (abs(got.astype("float64") - expected) <= bound + 1e-30).all(), self


def legalized(mod: tvm.IRModule, target: tvm.target.Target | None = CPU) -> tvm.IRModule:
    if target is None:
        return LegalizeOps()(mod)
    with target:
        return LegalizeOps()(mod)


def is_ours(case: Case, target: tvm.target.Target = CPU) -> bool:
    """Whether the product is tiled: TVM's lowering has a single block."""
    mod = legalized(case.module(), target)
    (func,) = (f for v, f in mod.functions.items() if v.name_hint.startswith("matmul"))
    return '"out"' in func.script()


def check(cases: list[Case], target: tvm.target.Target = CPU) -> None:
    assert all(is_ours(case) for case in cases)
    mods = {f"case{i}": case.module() for i, case in enumerate(cases)}
    vm = relax.VirtualMachine(relax.build(merge(mods), target), tvm.cpu())
    for name, case in zip(mods, cases, strict=True):
        case.check(call(vm, name, *case.arguments()))


SHAPES = [
    Case((rows, depth), (depth, columns), constant=constant)
    for rows in (1, 2, 5, 6, 7, 13, 31)
    for depth in (1, 3, 64)
    for columns in (1, 3, 4, 7, 8, 9, 16, 31, 47, 64, 65, 130)
    for constant in (False, True)
]
BATCHES = [
    Case((4, 5), (3, 5, 9)),
    Case((3, 4, 5), (5, 9)),
    Case((2, 3, 4, 5), (5, 9), constant=True),
    Case((2, 3, 4, 5), (2, 3, 5, 17)),
    Case((2, 3, 4, 5), (3, 5, 17)),
    Case((2, 1, 4, 5), (1, 3, 5, 17)),
    Case((1, 4, 5), (3, 5, 17)),
    Case((3, 4, 5), (1, 5, 17), constant=True),
    Case((5,), (5, 19)),
    Case((5,), (5, 19), constant=True),
    Case((5,), (5,)),
    Case((4, 5), (5,)),
    Case((2, 3, 4, 5), (5,), constant=True),
    Case((5,), (2, 5, 7)),
    Case((2, 3, 4, 5), (5, 17), symbolic=frozenset([("lhs", 0)])),
    Case((2, 3, 4, 5), (5, 17), symbolic=frozenset([("lhs", 0), ("lhs", 2)]), constant=True),
    Case((2, 7, 5), (2, 5, 7), symbolic=frozenset([("lhs", 1), ("rhs", 2)])),
    Case((2, 7, 7), (2, 7, 9), symbolic=frozenset([("lhs", 1), ("lhs", 2), ("rhs", 1)])),
    Case((2, 7, 5), (2, 5, 8), symbolic=frozenset([("lhs", 0), ("rhs", 0)])),
    Case((0, 5), (5, 8), symbolic=frozenset([("lhs", 0)]), constant=True),
    Case((3, 5), (5, 0), symbolic=frozenset([("rhs", 1)])),
    Case((3, 0), (0, 8), symbolic=frozenset([("lhs", 1), ("rhs", 0)])),
]


@few(1)
@pytest.mark.parametrize("target", TARGETS)
def test_tiles(target: str) -> None:
    if target != "sse" and not _runs_here(TARGETS[target]):
        pytest.skip(f"this CPU has no {target}")
    check(sample(SHAPES, 8, seed=len(target)), TARGETS[target])


def _runs_here(target: tvm.target.Target) -> bool:
    feature = {"haswell": "avx2", "skylake-avx512": "avx512f"}[str(target.attrs["mcpu"])]
    return bool(target_has_features(feature, resolve("native")))


PARTS = [(17, "float32"), ("n", "float16"), (401, "float32")]
PARTS += [(17, "float16"), ("n", "float32"), (401, "float16")] if is_full() else []


@few(1)
@pytest.mark.parametrize(("rows", "dtype"), PARTS)
def test_sums_in_parts(rows: int | str, dtype: str) -> None:
    """A long reduction processes all rows with one part of a constant matrix at a time.

    Many rows are processed in blocks; with 401 rows the last block is partial.
    """
    symbolic = frozenset({("lhs", 0)} if rows == "n" else set())
    count = 17 if rows == "n" else rows
    case = Case((count, 768), (768, 200), dtype=dtype, constant=True, symbolic=symbolic)
    mod = legalized(case.module())
    (func,) = (f for v, f in mod.functions.items() if v.name_hint == "matmul")
    assert "sum_of_parts" in func.script()
    check([case])


def test_batches() -> None:
    check(BATCHES if is_full() else BATCHES[::3])


@few(3)
@pytest.mark.parametrize(
    ("dtype", "out_dtype"),
    [
        ("float64", None),
        ("float16", None),
        ("bfloat16", None),
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float16"),
    ],
)
def test_dtypes(dtype: str, out_dtype: str | None) -> None:
    shapes = [((7, 33), (33, 16)), ((3, 33), (33, 31)), ((2, 7, 33), (2, 33, 20))]
    check(
        [
            Case(*shape, dtype, out_dtype, constant=constant)
            for constant in (False, True)
            for shape in (shapes if is_full() else shapes[:1] if constant else shapes[1:])
        ]
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_of_16_bit_do_not_stop_growing(dtype: str) -> None:
    """With 11 bits of significand 2048 + 1 is 2048, with 8 bits 256 + 1 is 256."""
    case = Case((1, 4096), (4096, 8), dtype)
    got = run(case.module(), *map(np.ones_like, case.arrays()))
    assert (got.astype("float32") == 4096).all()


@pytest.mark.parametrize("constant", [False, True])
def test_infinities_and_nan_stay_where_they_are(constant: bool) -> None:
    """Rows and columns that pad a tile do not affect the output."""
    case = Case((7, 5), (5, 19), constant=constant)
    lhs, _ = case.arrays()
    lhs[-1, 2], lhs[3, 4] = np.inf, np.nan
    got = run(case.module(), lhs, *case.arguments()[1:])
    np.testing.assert_allclose(got, np.matmul(lhs, case.arrays()[1]), rtol=1e-5, atol=1e-5)


@st.composite
def random_cases(draw: st.DrawFn) -> Case:
    """Random ranks, broadcast batch axes on either side, and symbolic axes."""
    rows, depth, columns = (draw(st.integers(1, 20)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    sides = []
    for _ in range(2):
        own = batch[draw(st.integers(0, len(batch))) :]
        sides.append([draw(st.sampled_from([extent, extent, 1])) for extent in own])
    lhs, rhs = (*sides[0], rows, depth), (*sides[1], depth, columns)
    constant = draw(st.booleans())
    symbolic = set()
    if draw(st.booleans()):
        symbolic.add(("lhs", len(lhs) - 2))
    if not constant and draw(st.booleans()):
        symbolic.add(("rhs", len(rhs) - 1))
    if not constant and draw(st.booleans()):
        symbolic |= {("lhs", len(lhs) - 1), ("rhs", len(rhs) - 2)}
    dtype = draw(st.sampled_from(["float32", "float32", "float64", "float16"]))
    return Case(lhs, rhs, dtype, constant=constant, symbolic=frozenset(symbolic))


_BATCH = 8 if is_full() else 3


@batched(8)
@given(st.lists(random_cases(), min_size=_BATCH, max_size=_BATCH))
def test_random_products(cases: list[Case]) -> None:
    check(cases)


def test_vectors_in_parallel() -> None:
    mod = legalized(Case((64, 64), (64, 64), constant=True).module())
    (func,) = (f for v, f in mod.functions.items() if v.name_hint.startswith("matmul"))
    kinds = {loop.kind for loop in loops(func)}
    assert {tirx.ForKind.PARALLEL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED} <= kinds


EXTENTS = list(product(TARGETS, [True, False], [(1, 45), (4, 96), (5, 200), (6, 144), (64, 432)]))


@pytest.mark.parametrize("target, constant, extents", EXTENTS if is_full() else EXTENTS[::3])
def test_lanes_are_a_power_of_two(target: str, constant: bool, extents: tuple[int, int]) -> None:
    """LLVM computes other vectors element by element."""
    rows, columns = extents
    mod = Case((rows, 512), (512, columns), constant=constant).module()
    for variable, function in legalized(mod, TARGETS[target]).functions_items():
        if variable.name_hint.startswith("matmul"):
            nest = loops(function)
            lanes = [int(x.extent) for x in nest if x.kind == tirx.ForKind.VECTORIZED]
            assert all(extent & (extent - 1) == 0 for extent in lanes), lanes


EXPRESSIONS = list(
    product(
        ("rows", "columns", "depth", "batch rows columns"),
        (lambda n: tirx.min(n, 1), lambda n: n % 4, lambda n: n // 2),
    )
)


@pytest.mark.parametrize(("axes", "extent"), EXPRESSIONS if is_full() else EXPRESSIONS[::5])
def test_extents_that_are_expressions(axes, extent):
    """Extents with an upper bound that TVM knows."""
    n = tirx.Var("n", "int64")
    extents = {"batch": 1, "rows": 8, "depth": 17, "columns": 16}
    extents |= {axis: n if axis == "batch" else extent(n) for axis in axes.split()}
    batch, rows, depth, columns = extents.values()
    leading = [batch] if "batch" in axes else []
    inputs = {"lhs": tensor(*leading, rows, depth), "rhs": tensor(*leading, depth, columns)}
    inputs["n"] = tensor(n)
    mod = build(inputs, lambda _, lhs, rhs, __: relax.op.matmul(lhs, rhs))
    vm = relax.VirtualMachine(
        relax.build(mod, TARGETS["avx"], relax_pipeline=pipeline()), tvm.cpu()
    )
    for size in (0, 1, 6, 7):
        analyzer = tvm.sym.Analyzer()
        analyzer.bind(n, tirx.const(size, "int64"))
        known = {
            name: int(analyzer.simplify(tirx.const(0, "int64") + e)) for name, e in extents.items()
        }
        lhs, rhs = (
            np.random.default_rng(0)
            .standard_normal([known[axis] for axis in ("batch", *matrix)][not leading :])
            .astype("float32")
            for matrix in (("rows", "depth"), ("depth", "columns"))
        )
        got = vm["main"](*map(tvm.runtime.tensor, (lhs, rhs, np.zeros(size, "float32")))).numpy()
        np.testing.assert_allclose(got, lhs @ rhs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("batch", "rows"), [((), 32), ((2,), 256)])
def test_a_matrix_is_laid_out_for_many_rows(batch: tuple[int, ...], rows: int) -> None:
    few, many = (Case((*batch, count, 64), (*batch, 64, 128)) for count in (rows - 1, rows))
    for case, is_tiled in ((few, False), (many, True)):
        assert ('T.sblock("in_tiles")' in legalized(case.module()).script()) == is_tiled
    check([few, many])


PANELS = [
    ((3, 13, 50), 70),  # the last tile is partial
    ((35, 512), 136),  # chunks of the depth
    ((401, 512), 264),  # blocks of rows
    ((400, 50), 24),  # few tiles of columns
    (("n", 33), 40),
]


@pytest.mark.parametrize("transposed", [False, True])
def test_panels(transposed: bool) -> None:
    """A matrix of many rows' products is packed tile by tile, within the kernel."""
    rng, mods, arrays = np.random.default_rng(0), {}, {}

    def emit(builder: relax.BlockBuilder, lhs: relax.Expr, rhs: relax.Expr) -> relax.Expr:
        matrix = builder.emit(relax.op.permute_dims(rhs)) if transposed else rhs
        return relax.op.matmul(lhs, matrix)

    for number, (shape, columns) in enumerate(PANELS):
        if "n" in shape and not transposed:
            continue  # whether to pack depends on the rows
        n = tirx.Var("n", "int64")
        rhs = (columns, shape[-1]) if transposed else (shape[-1], columns)
        extents = [n if extent == "n" else extent for extent in shape]
        mods[f"case{number}"] = build({"lhs": tensor(*extents), "rhs": tensor(*rhs)}, emit)
        known = [37 if extent == "n" else extent for extent in shape]
        arrays[f"case{number}"] = [rng.standard_normal(of).astype("float32") for of in (known, rhs)]
    assert len(mods) >= 4
    target = TARGETS["avx"] if _runs_here(TARGETS["avx"]) else CPU
    with target:
        lowered = pipeline()(merge(mods))
    script = lowered.script()
    assert script.count('T.sblock("in_tiles")') >= len(mods)
    assert "transpose" not in script
    assert ("T.Shuffle" in script) == transposed
    vm = relax.VirtualMachine(relax.build(lowered, target, relax_pipeline=None), tvm.cpu())
    for name, (lhs, rhs) in arrays.items():
        matrix = rhs.T if transposed else rhs
        bound = UNIT["float32"] * lhs.shape[-1] * (abs(lhs) @ abs(matrix))
        got = call(vm, name, lhs, rhs)
        assert (abs(got - lhs.astype("float64") @ matrix.astype("float64")) <= bound).all(), name


def test_small_products_start_no_threads() -> None:
    mod = legalized(Case((4, 8), (8, 8)).module())
    (func,) = (f for v, f in mod.functions.items() if v.name_hint.startswith("matmul"))
    assert tirx.ForKind.PARALLEL not in {loop.kind for loop in loops(func)}


@pytest.mark.parametrize(
    ("case", "target"),
    [
        (Case((4, 5), (5, 8)), GPU),
        (Case((4, 5), (5, 8)), None),
        (Case((4, 5), (5, 8), "int8"), CPU),
        (Case((4, 5), (5, 8), "int8", "int32"), CPU),
        (Case((0, 5), (5, 8)), CPU),
        (Case((4, 0), (0, 8)), CPU),
        (Case((2, 4, 5), (3, 5, 8), symbolic=frozenset([("lhs", 0), ("rhs", 0)])), CPU),
    ],
    ids=["gpu", "no target", "int8", "int8 to int32", "no rows", "no depth", "unlike batches"],
)
def test_left_to_tvm(
    case: Case, target: tvm.target.Target | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = legalized(case.module(), target)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "matmul-legalize")
    tvm.ir.assert_structural_equal(ours, legalized(case.module(), target))


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case((4, 5), (5, 8))
    assert is_ours(case)
    monkeypatch.setenv("TVM_FIXES_DISABLE", "matmul-legalize")
    assert not is_ours(case)


@few(3)
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("rows", "columns", "streams"), [(1, 200, 4), (1, 40, 1), (2, 200, 1)])
def test_a_single_row_reads_several_tiles_at_once(
    rows: int, columns: int, streams: int, dtype: str
) -> None:
    lhs, rhs = (
        relax.Var(name, relax.TensorType(shape, dtype))
        for name, shape in (("lhs", (rows, 48)), ("rhs", (48, columns)))
    )
    call = relax.BlockBuilder().normalize(relax.op.matmul(lhs, rhs))
    with TARGETS["avx"]:
        packing = packing_of(call)
    assert packing is not None and packing.streams == streams
    assert streams == 1 or packing.columns == 16


if __name__ == "__main__":
    tvm.testing.main()
