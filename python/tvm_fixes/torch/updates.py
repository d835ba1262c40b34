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
"""The inputs of a partition that its compiled code may update in place.

AOTAutograd computes the new value of an input that a model writes to, and copies it at the end::

    new = index_put(cache, [None, None, position], key)
    ...
    copy_(cache, new)

Compiled code may write to such an input while it runs, if a later run of the same graph, after an
exception, still gives the right result.  The conditions are

1. The new value consists of writes to elements of the old one, which read no old element.
2. Nothing reads the old value, except the first write; the partition reads the new value.

Let a run stop anywhere.  By 1, the elements that it changed are among those that the writes change,
and it gave them the values that they get.  Take the writes of a second run in the order of the
graph: by 2, their indices and values depend on inputs that did not change and on the new values of
earlier writes, which are those of an undisturbed run.  So is the new value that results: it differs
from the old one, changed or not, in the same elements.
"""

import operator
from collections.abc import Mapping

import torch
from torch import fx
from torch.utils import _pytree as pytree

from .arranged import Arranged

__all__ = ["COPY", "updated_inputs"]

COPY = torch.ops.aten.copy_.default
"""AOTAutograd appends these for the inputs that a model writes to."""

_WRITES = {
    torch.ops.aten.index_copy.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten.scatter.src,
    torch.ops.aten.scatter.value,
}


def updated_inputs(arranged: Arranged, call: fx.Node) -> Mapping[int, int]:
    """The inputs that a partition may update in place, each with the output of its new value.

    Parameters
    ----------
    arranged : Arranged
        The partition.
    call : torch.fx.Node
        Its call in the whole graph.
    """
    updates = {}
    graph = arranged.module.graph
    places = dict(zip(graph.find_nodes(op="placeholder"), arranged.arguments, strict=True))
    results = graph.output_node().args[0]
    for index, (place, argument) in enumerate(places.items()):
        output = _new_value(argument, call)
        if output is None or arranged.orders[output] is not None:
            continue
        result = results[output]
        if results.count(result) == 1 and _consists_of_writes(result, place):
            updates[index] = output
    return updates


def _new_value(argument: fx.Node, call: fx.Node) -> int | None:
    """The output that is only the new value of an input of the whole graph, which has no other."""
    others = [user for user in argument.users if user is not call]
    if argument.op != "placeholder" or len(others) != 1 or others[0].target is not COPY:
        return None
    if others[0].users or others[0].args[0] is not argument:
        return None
    item = others[0].args[1]
    if not isinstance(item, fx.Node) or item.target is not operator.getitem:
        return None
    source, output = item.args
    is_read = [user.op != "call_module" for user in item.users if user is not others[0]]
    if source is not call or any(is_read):
        return None
    items = [user for user in call.users if user.args[1] == output]
    return int(output) if len(items) == 1 and call.args.count(argument) == 1 else None


def _consists_of_writes(value: fx.Node, old: fx.Node) -> bool:
    """Whether a value is an input after some writes, and nothing else reads earlier values."""
    is_written = False
    while value.target in _WRITES and not _adds(value):
        before, *others = value.args
        if list(before.users) != [value] or before in pytree.tree_leaves((others, value.kwargs)):
            return False
        value, is_written = before, True
    return is_written and value is old


def _adds(write: fx.Node) -> bool:
    """Whether a write is an ``index_put`` that adds to the old elements."""
    if write.target is not torch.ops.aten.index_put.default:
        return False
    return bool(write.kwargs.get("accumulate", (*write.args, False)[3]))
