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
"""Which nodes of the model each fix changes."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tvm
import tvm_ffi
from tvm import relax, tirx

from ..fixes import FIXES
from ..fixes.fix import Symptom
from ..relax.analysis import bindings
from ..relax.fusion import unfused
from ..relax.ir import is_kernel_call
from ..relax.kernel_calls import kernel_calls
from ..relax.source_nodes import SourceNode, mark_calls, nodes_in, spread
from ..runtime.explanation import AppliedFix, Explanation
from ..support import ambient
from ..support.ambient import Facts, Place
from ..support.declined import NotDone, decline
from ..support.instruments import ended
from ..support.switches import Asked, Use

Functions = Mapping[str, tvm.ir.BaseFunc]


_SPANS = tvm.ir.Span | tvm.ir.SequentialSpan

# The name of a change by an operator's rule for its layout or type.
_RULE = "operator rule"


class Change(NamedTuple):
    """A change by a pass, an importer or a lowering.

    Attributes
    ----------
    name : str
        The pass, or ``import``, ``lowering`` or ``operator rule``; empty if unknown.
    nodes : tuple of SourceNode
        The nodes of the model; for a pass, those whose values or kernels it changes.
    number : int
        The number of changes; for a pass, of the nodes, or of the kernels if their nodes are
        unknown.
    """

    name: str
    nodes: tuple[SourceNode, ...]
    number: int


class _Running(NamedTuple):
    name: str
    functions: Functions
    number_of_facts: int


class WatchFixes(tvm.ir.instrument.PassInstrument):
    """Adds what a pass changed to the uses of fixes that the pass reports.

    Other uses are reported with their place: the node imported, or the call lowered.
    """

    # Without a __dict__, an object of a TVM class cannot have new attributes.
    __slots__ = ("__dict__",)

    def __init__(self) -> None:
        super().__init__()
        self._running: list[_Running] = []
        self._kernels: dict[str, tuple[SourceNode, ...]] = {}

    def run_before_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Keep the functions, and mark the calls to be lowered with their nodes."""
        name = str(info.name)
        if name in ("ConvertLayout", "LegalizeOps"):
            mark_calls(mod)
        elif name == "RecordKernelCalls":
            self._kernels = _nodes_of_kernels(mod)
        number = len(ambient.current().facts or ())
        # While this reference exists, TVM copies the functions instead of changing them in place.
        self._running.append(_Running(name, _by_name(mod), number))

    def run_after_pass(self, mod: tvm.IRModule, info: tvm.transform.PassInfo) -> None:
        """Complete the uses that the pass has reported."""
        name = str(info.name)
        before = ended(self._running, name)
        if before is None:
            return
        if name == "FuseOps" and name not in [one.name for one in self._running]:
            for nodes, reason in unfused(mod):
                decline("fusion", nodes, reason)
        facts = ambient.current().facts or Facts()
        new = list(enumerate(facts))[before.number_of_facts :]
        uses = [(index, fact) for index, fact in new if isinstance(fact, Use) and not fact.place]
        if uses:
            place = Place(self._change(name, before.functions, mod))
            for index, use in uses:
                facts[index] = use._replace(place=place)

    def _change(self, name: str, before: Functions, mod: tvm.IRModule) -> Change:
        spread(mod)
        after = _by_name(mod)
        changed = [
            one for one, function in after.items() if not _is_same(function, before.get(one))
        ]
        nodes = dict.fromkeys(_changed_nodes(before, after, changed))
        kernels = [one for one in changed if isinstance(after[one], tirx.PrimFunc)]
        if kernels and not nodes:
            known = self._kernels | _nodes_of_kernels(mod)
            for kernel in kernels:
                nodes.update(dict.fromkeys(known.get(kernel, ())))
        return Change(name, tuple(nodes), len(nodes) or len(kernels) or 1)


def explanation_of(facts: Facts) -> Explanation:
    """Explain a compilation that :class:`WatchFixes` watched: its fixes, and what was not done."""
    places: dict[str, list[Place | None]] = defaultdict(list)
    for use in facts.of(Use):
        places[use.fix].append(use.place)
    return Explanation(
        [
            _explain(fix.id, fix.summary, fix.symptoms, places[fix.id])
            for fix in FIXES
            if fix.id in places
        ],
        list(dict.fromkeys(facts.of(NotDone))),
    )


def _explain(
    fix_id: str,
    summary: str,
    symptoms: Mapping[Symptom, str],
    places: Sequence[Place | None],
) -> AppliedFix:
    changes = [_change_at(place) for place in dict.fromkeys(places)]
    # TVM calls an operator's rule several times for one call: count it once.
    distinct = [one for one in dict.fromkeys(changes) if one.name == _RULE]
    distinct += [one for one in changes if one.name != _RULE]
    nodes = dict.fromkeys(node for one in distinct for node in one.nodes)
    by = dict.fromkeys(one.name for one in distinct if one.name)
    plain = {str(symptom): text for symptom, text in symptoms.items()}
    times = sum(one.number for one in distinct)
    return AppliedFix(fix_id, times, list(by), list(map(str, nodes)), summary, plain)


def _change_at(place: Place | None) -> Change:
    what = None if place is None else place.what
    if isinstance(what, Change):
        return what
    if isinstance(what, SourceNode):
        return Change("import", (what,), 1)
    if place is None:
        return Change("", (), 1)
    span = what.span if isinstance(what, Asked) else what
    name = _RULE if isinstance(what, Asked) else "lowering"
    return Change(name, tuple(nodes_in(span)) if isinstance(span, _SPANS) else (), 1)


def _is_same(one: tvm.ir.BaseFunc, other: tvm.ir.BaseFunc | None) -> bool:
    if other is None:
        return False
    return one.same_as(other) or bool(tvm_ffi.structural_equal(one, other, map_free_vars=True))


def _by_name(mod: tvm.IRModule) -> Functions:
    return {str(var.name_hint): function for var, function in mod.functions_items()}


def _changed_nodes(
    before: Functions, after: Functions, changed: Iterable[str]
) -> Iterator[SourceNode]:
    """The nodes whose bindings differ."""
    for name in changed:
        old, new = _signatures(before.get(name)), _signatures(after[name])
        yield from (node for node in {**old, **new} if old.get(node) != new.get(node))


def _signatures(function: tvm.ir.BaseFunc | None) -> dict[SourceNode, Counter[str]]:
    """For each node, what its bindings compute."""
    found: dict[SourceNode, Counter[str]] = defaultdict(Counter)
    if isinstance(function, relax.Function):
        for binding in bindings(function):
            if isinstance(binding.value, relax.Var):
                continue  # another name for the same value
            text = f"{_describe(binding.value)}: {binding.var.ty}"
            for node in nodes_in(binding.var.span):
                found[node][text] += 1
    return found


def _describe(value: relax.Expr) -> str:
    if not isinstance(value, relax.Call):
        return type(value).__name__
    called = value.args[0] if is_kernel_call(value) else value.op
    name = getattr(called, "name_hint", None) or getattr(called, "name", "")
    return f"{name} {value.attrs} of {len(value.args)}"


def _nodes_of_kernels(mod: tvm.IRModule) -> dict[str, tuple[SourceNode, ...]]:
    found: dict[str, dict[SourceNode, None]] = defaultdict(dict)
    calls = kernel_calls(mod)
    for call in calls.calls:
        found[call.kernel].update(dict.fromkeys(calls.nodes[place] for place in call.nodes))
    return {kernel: tuple(nodes) for kernel, nodes in found.items()}
