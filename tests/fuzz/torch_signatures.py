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
"""PyTorch programs whose arguments and results are numbers, strings, None and nested containers.

Each program is compiled, called like the module, with other dynamic ints, and with wrong constants.
"""

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tvm_fixes
from tvm_fixes.errors import InputError

_CONSTANTS = (3, 0, -2, 0.5, True, False, "relu", "", None)


class _Module(nn.Module):
    """Combines the leaves of its arguments, and returns a tree of kinds."""

    def __init__(self, results: Any) -> None:
        super().__init__()
        self.results = results
        self.register_buffer("table", torch.arange(4.0))

    def forward(self, first: Any, second: Any = 1, third: Any = None, *, last: Any = 0.5) -> Any:
        leaves = pytree.tree_leaves((first, second, third, last))
        total = self.table
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                total = total + leaf.sum()
            elif isinstance(leaf, str):
                total = total.relu() if leaf == "relu" else total
            elif leaf is not None:
                total = total * leaf + 1
        tensor = next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), self.table)
        number = next((leaf for leaf in leaves if type(leaf) in (int, torch.SymInt)), 2)
        made = {
            "total": total,
            "again": total,
            "input": tensor,
            "buffer": self.table,
            "number": number,
            "computed": number * 2 + 1,
            "half": number * 0.5,
            "extent": tensor.shape[0],
            "constant": 7,
            "float": 0.25,
            "flag": True,
            "text": "text",
            "none": None,
        }
        return pytree.tree_map(made.__getitem__, self.results)


def _tree(rng: np.random.Generator, leaf: Any, depth: int = 0) -> Any:
    """A random container of leaves, or one leaf."""
    kind = rng.integers(6) if depth < 2 else 0
    count = int(rng.integers(1, 4))
    if kind == 1:
        return [_tree(rng, leaf, depth + 1) for _ in range(count)]
    if kind == 2:
        return tuple(_tree(rng, leaf, depth + 1) for _ in range(count))
    if kind == 3:
        return {f"k{i}": _tree(rng, leaf, depth + 1) for i in range(count)}
    return leaf()


def run_case(seed: int) -> str | None:
    """Build, compile and call the program of `seed`: see :class:`tests.fuzz.campaign.Campaign`."""
    torch.set_num_threads(1)
    rng = np.random.default_rng([7, seed])
    results = _results(rng)
    arguments = [_tree(rng, lambda: _leaf(rng)) for _ in range(int(rng.integers(1, 4)))]
    kwargs = {"last": _tree(rng, lambda: _leaf(rng))} if rng.random() < 0.5 else {}
    module = _Module(results).eval()
    dims: Any = torch.export.Dim

    def dynamic(leaf: Any) -> Any:
        if type(leaf) is int and abs(leaf) > 2 and rng.random() < 0.6:
            return dims.AUTO
        return {0: dims.AUTO} if isinstance(leaf, torch.Tensor) and rng.random() < 0.4 else None

    shapes = dict(zip(("first", "second", "third"), arguments, strict=False)) | kwargs
    shapes = pytree.tree_map(dynamic, shapes)
    try:
        program = torch.export.export(module, tuple(arguments), kwargs, dynamic_shapes=shapes)
    except Exception as error:  # limitations of torch.export
        return f"torch.export: {error}"
    model = tvm_fixes.compile(program, compare=False)
    _compare(model, module, arguments, kwargs, results)
    others = [
        leaf + 2 if type(leaf) is int and name in model.manifest.sizes else leaf
        for name, leaf in _named_leaves(model, arguments, kwargs)
    ]
    args, named = pytree.tree_unflatten(others, pytree.tree_structure((tuple(arguments), kwargs)))
    _compare(model, module, list(args), named, results)
    _check_constants(model, arguments, kwargs)
    return None


def _leaf(rng: np.random.Generator) -> Any:
    if rng.random() < 0.5:
        return torch.from_numpy(rng.integers(-3, 4, (int(rng.integers(2, 5)), 2)).astype("float32"))
    return 5 if rng.random() < 0.3 else _CONSTANTS[int(rng.integers(len(_CONSTANTS)))]


_KINDS = (
    "total again input buffer number computed half extent constant float flag text none".split()
)


def _results(rng: np.random.Generator) -> Any:
    tree = _tree(rng, lambda: _KINDS[int(rng.integers(len(_KINDS)))])
    return {"total": "total", "rest": tree}


def _named_leaves(model: Any, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    leaves = pytree.tree_leaves((tuple(args), kwargs))
    names = [argument.name for argument in model.manifest.arguments]
    names = names or [spec.name for spec in model.inputs]
    return list(zip(names, leaves, strict=True))


def _compare(model: Any, module: Any, args: Any, kwargs: Any, results: Any) -> None:
    with torch.no_grad():
        wanted = [
            leaf
            for leaf in pytree.tree_leaves(module(*args, **kwargs))
            if leaf is not None and not isinstance(leaf, str)
        ]
    got = model.run(*args, **kwargs)
    found = list(got) if isinstance(got, tuple) else [got]
    assert len(found) == len(wanted) == len(model.outputs), f"{len(found)} of {len(wanted)} results"
    for spec, ours, theirs in zip(model.outputs, found, wanted, strict=True):
        expected = theirs if isinstance(theirs, torch.Tensor) else torch.tensor(theirs)
        value = torch.as_tensor(ours)
        assert value.shape == expected.shape, f"{spec.name}: {value.shape}, not {expected.shape}"
        same = torch.allclose(value.double(), expected.double(), 1e-5, 1e-5, equal_nan=True)
        assert same, f"{spec.name}: {value}, not {expected} (results {results})"


def _check_constants(model: Any, args: Any, kwargs: Any) -> None:
    """Each constant with another value is an error that names it."""
    structure = pytree.tree_structure((tuple(args), kwargs))
    leaves = pytree.tree_leaves((tuple(args), kwargs))
    for place, argument in enumerate(model.manifest.arguments):
        if argument.is_input:
            continue
        changed = [*leaves[:place], "other", *leaves[place + 1 :]]
        others, named = pytree.tree_unflatten(changed, structure)
        try:
            model.run(*others, **named)
        except InputError as error:
            assert argument.name in str(error), f"unclear message: {error}"
        else:
            raise AssertionError(f"the constant {argument.name!r} is not checked")
