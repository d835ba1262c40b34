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
"""The campaign of random PyTorch programs: exported, imported, built and compared."""

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import fx, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import tvm_fixes
from tvm_fixes.search.literals import literal
from tvm_fixes.search.minimize import minimize
from tvm_fixes.support.isolate import OutcomeKind, run_forked

from . import torch_layers, torch_statements
from .targets import Compiled, compiled, target_for
from .tolerance import difference
from .torch_arrays import array_of
from .torch_source import DTYPES, FLOATS, NAMES, Program, namespace, random_tensor
from .torch_ways import Way, imported
from .values import KINDS

_STATEMENTS = (*torch_statements.STATEMENTS, *torch_layers.STATEMENTS)
_WEIGHTS = np.array([weight for _, weight in _STATEMENTS])
_PRECISION = ("float64", "float32", "float16", "bfloat16")
_INPUT_DTYPES = (*("f32",) * 7, "f16", "bf16", "f64", "i64", "i64", "i32", "b8", "u8", "i8")


def make_program(seed: int) -> tuple[Program, list[str]]:
    """The program of `seed`, and the names of its results."""
    rng = np.random.default_rng([3, seed])
    p = Program(rng)
    usual = p.choose(_INPUT_DTYPES)
    shape = [p.choose((1, 2, 3, 4, 5)) for _ in range(p.choose((1, 2, 2, 3, 3, 4)))]
    dynamic = p.chance(0.35)
    for _ in range(1 + p.below(3)):
        dtype = usual if p.chance(0.6) else p.choose(_INPUT_DTYPES)
        other = [1 if p.chance(0.2) else extent for extent in shape][p.below(2) :]
        x = p.add_input(dtype, other, p.choose(("exact", "exact", "normal", *KINDS)))
        if dynamic:
            p.dynamic[x.name] = tuple(a for a, e in enumerate(other) if e > 1 and p.chance(0.6))
    goal = 2 + p.below(9)
    for _ in range(80):
        if len(p.lines) >= goal:
            break
        _STATEMENTS[int(rng.choice(len(_STATEMENTS), p=_WEIGHTS / _WEIGHTS.sum()))][0](p)
    return p, p.results()


def run_case(seed: int) -> str | None:
    """Build and compare the program of `seed`; see :class:`tests.fuzz.campaign.Campaign`."""
    p, results = make_program(seed)
    if not results:
        return None
    return check(p, results, target_for(seed), seed, way=Way.of(seed))


def load(p: Program, results: Sequence[str], *, wide: bool = False) -> nn.Module:
    """The program as a module; in float64 if `wide`."""
    scope = namespace(wide=wide)
    exec(p.source(results), scope)
    weights = {name: widened(t) if wide else t.clone() for name, t in p.weights.items()}
    module: nn.Module = scope["Model"](weights).eval()
    return module


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor.clone()


def check(
    p: Program,
    results: Sequence[str],
    target: str,
    seed: int,
    make: Callable[[torch.export.ExportedProgram], Compiled] | None = None,
    *,
    way: Way = Way.EXPORTED,
) -> str | None:
    """Export, build and run the program; compare it with PyTorch.

    Parameters
    ----------
    make : callable, optional
        Imports and builds the exported program, instead of for `target`.
    way : Way
        How to import it otherwise.

    Returns
    -------
    str or None
        The message if it was rejected.

    Raises
    ------
    AssertionError
        If an output differs, if the verifier reports a correct program, or if the message of a
        rejection names neither operator nor node.
    """
    torch.set_num_threads(1)
    module = load(p, results)
    inputs = tuple(p.scope[name].clone() for name in p.inputs)
    program = _export(p, module, inputs)
    if program is None:
        return None
    trace = _trace(module) if way is Way.TRACED else None
    if way is Way.TRACED and trace is None:
        return None
    try:
        run = make(program) if make else build(program, target, way, trace)
    except Exception as error:
        text = " ".join(str(error).split())
        assert _names_a_node(text, program) or (trace and _names_one_of(text, trace.graph)), (
            f"unclear rejection: {type(error).__name__}: {text[:600]}"
        )
        return f"{type(error).__name__}: {text[:300]}"
    for arrays in [inputs, *_other_sizes(p, program, seed)]:
        _compare(p, results, run, arrays)
    return None


def build(
    program: torch.export.ExportedProgram, target: str, way: Way, trace: fx.GraphModule | None
) -> Compiled:
    """Import an exported program, or its `trace`, and build it for `target`."""
    mod = imported(way, program, trace)
    tvm_fixes.verify(mod).raise_if_errors()
    return compiled(mod, target)


def _export(
    p: Program, module: nn.Module, inputs: tuple[torch.Tensor, ...]
) -> torch.export.ExportedProgram | None:
    shapes = None
    if any(p.dynamic.values()):
        auto = torch.export.Dim.AUTO
        shapes = tuple({axis: auto for axis in p.dynamic.get(name, ())} for name in p.inputs)
    try:
        return torch.export.export(module, inputs, dynamic_shapes=shapes)
    except Exception:  # limitations of torch.export
        return None


def _trace(module: nn.Module) -> fx.GraphModule | None:
    try:
        return fx.symbolic_trace(module)
    except Exception:  # a trace has no numbers
        return None


def _other_sizes(
    p: Program, program: torch.export.ExportedProgram, seed: int
) -> list[tuple[torch.Tensor, ...]]:
    """Inputs with another size for each symbolic dim, if PyTorch accepts them."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    sizes: dict[str, int] = {}
    rng = np.random.default_rng([4, seed])
    arrays = []
    for name, (dtype, _, kind) in p.inputs.items():
        shape = []
        for extent in placeholders[name].meta["val"].shape:
            symbol = str(extent)
            shape.append(
                int(extent) if symbol.isdigit() else sizes.setdefault(symbol, 6 + len(sizes))
            )
        arrays.append(random_tensor(rng, dtype, shape, kind))
    if not sizes:
        return []
    try:
        program.module()(*(array.clone() for array in arrays))
    except Exception:  # a size that the program excludes
        return []
    return [tuple(arrays)]


def _compare(
    p: Program, results: Sequence[str], run: Compiled, inputs: tuple[torch.Tensor, ...]
) -> None:
    try:
        with torch.no_grad():
            wanted = [array_of(t) for t in load(p, results)(*(x.clone() for x in inputs))]
    except RuntimeError:  # in unused values, which the generator computes in float64
        return
    shapes = [tuple(x.shape) for x in inputs]
    try:
        got = run([array_of(x) for x in inputs])
    except Exception as error:
        raise AssertionError(
            f"fails at run time, {shapes}: {type(error).__name__}: {error}"
        ) from None

    def again() -> list[np.ndarray]:
        return [array_of(t) for t in load(p, results)(*(x.clone() for x in inputs))]

    if not kernels_agree(p, again, wanted):
        return
    precision = precision_of(p)

    def truths() -> list[list[np.ndarray]]:
        rng = np.random.default_rng(0)
        runs = []
        for is_moved in (False, True, True, True):
            module = load(p, results, wide=True)
            arrays = [widened(x) for x in inputs]
            if is_moved:
                arrays = [moved(x, precision, rng) for x in arrays]
                for parameter in module.parameters():
                    parameter.copy_(moved(parameter, precision, rng))
            with torch.no_grad():
                runs.append([array_of(t) for t in module(*arrays)])
        return runs

    problem = difference(got, wanted, truths, precision)
    assert not problem, f"{problem}, inputs {shapes}"


def kernels_agree(
    p: Program, again: Callable[[], list[np.ndarray]], wanted: Sequence[np.ndarray]
) -> bool:
    """Whether PyTorch's attention kernels agree on where results are NaN.

    Only tensors of rank 4 have several kernels, which `again` runs the program with; of others, NaN
    and infinity are not judged.
    """
    ranks = {
        v.rank
        for v in p.variables
        if any(f"scaled_dot_product_attention({v.name}," in line for line in p.lines)
    }
    if not ranks:
        return True
    if ranks != {4}:
        return all(np.isfinite(array).all() for array in wanted)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        others = again()
    pairs = zip(wanted, others, strict=True)
    return all(np.array_equal(np.isfinite(a), np.isfinite(b)) for a, b in pairs)


def moved(tensor: torch.Tensor, precision: str, rng: np.random.Generator) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    unit = torch.finfo(getattr(torch, precision)).eps / 2
    return tensor * (1 + unit * torch.from_numpy(rng.uniform(-1, 1, tuple(tensor.shape))))


def precision_of(p: Program) -> str:
    dtypes = {v.tensor.dtype for v in p.variables} | {t.dtype for t in p.weights.values()}
    names = [str(d).removeprefix("torch.") for d in dtypes if NAMES.get(d) in FLOATS]
    return max(names, key=_PRECISION.index, default="float64")


def _names_a_node(text: str, program: torch.export.ExportedProgram) -> bool:
    if re.search(r"relax\.[\w.]+ in '\w+': \w+ = ", text):  # a binding of the imported module
        return True
    # PyTorch may reject the program, too, while it decomposes it.
    programs = (lambda: program), program.run_decompositions
    return any(_names_one_of(text, each().graph) for each in programs)


def _names_one_of(text: str, graph: fx.Graph) -> bool:
    nodes = (node for node in graph.nodes if node.op.startswith("call_"))
    return any(node.name in text and _name(node) in text for node in nodes)


def _name(node: torch.fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def reproduce(seed: int) -> str:
    """Return a small program with the fault of the case `seed`, as the source of a test."""
    p, results = make_program(seed)
    target, way = target_for(seed), Way.of(seed)

    def run(candidate: Program, names: Sequence[str]) -> str | None:
        return check(candidate, names, target, seed, way=way)

    inputs = [p.scope[name].clone() for name in p.inputs]
    return f"# target {target!r}, {way}\n{reduced(p, results, run, inputs)}"


def reduced(
    p: Program,
    results: Sequence[str],
    run: Callable[[Program, Sequence[str]], str | None],
    inputs: Sequence[torch.Tensor],
) -> str:
    """A program with as few lines and results as have the fault that `run` finds, as source."""

    def fault(candidate: Program, names: Sequence[str]) -> str | None:
        outcome = run_forked(lambda: run(candidate, names), timeout=120)
        if outcome.kind is OutcomeKind.VALUE:
            return None
        return outcome.message if outcome.name == "AssertionError" else str(outcome)

    wanted = fault(p, results)
    if wanted is None:
        return "the fault does not repeat"
    for name in results:
        if fault(p, [name]) is not None:
            results = [name]
            break

    def with_lines(lines: Sequence[str]) -> Program:
        shorter = replace(p, lines=list(lines))
        shorter.scope = p.scope
        return shorter

    def fails(lines: Sequence[str]) -> bool:
        shorter = with_lines(lines)
        try:
            with torch.no_grad():
                load(shorter, results)(*copy.deepcopy(inputs))
        except Exception:  # a line is missing
            return False
        reproduced = fault(shorter, results)
        return reproduced is not None and _kind(reproduced) == _kind(wanted)

    p = with_lines(minimize(p.lines, fails))
    return f"# {fault(p, results)}\n{_as_test(p, results, inputs)}"


def _kind(message: str) -> str:
    return "output" if message.startswith("output") else re.sub(r"[^A-Za-z ]+", "", message)[:60]


def _as_test(p: Program, results: Sequence[str], given: Sequence[torch.Tensor]) -> str:
    def tensor(value: torch.Tensor) -> str:
        if value.numel() > 64:
            return f"random({str(value.dtype)!r}, {tuple(value.shape)})"
        array = array_of(value.double() if value.is_floating_point() else value)
        return f"torch.tensor({literal(array)[9:].rsplit(', ', 1)[0]}, dtype={value.dtype})"

    source = p.source(results)
    weights = ", ".join(
        f"{n!r}: {tensor(t)}" for n, t in p.weights.items() if f"self.{n} " in source
    )
    inputs = ", ".join(map(tensor, given))
    names = "\n".join(f"{name} = {dtype}" for name, dtype in DTYPES.items() if name in source)
    return (
        f"{names}\n{source}\nweights = {{{weights}}}\ninputs = ({inputs},)\ndynamic = {p.dynamic}"
    )
