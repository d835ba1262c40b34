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
"""Views that a graph returns, for PyTorch to make.

A caller sees which results share memory, and their strides.  Both would be lost in a partition,
whose results are tensors of their own::

    before: y = add(x, 1); v = select(y, 0, 0); return y, v, mul(v, 2)
    after:  y = add(x, 1); v = select(y, 0, 0); m = mul(v, 2); w = select(y, 0, 0); return y, w, m
"""

from torch import fx

from .capability import is_view

__all__ = ["separate_returned_views"]


def separate_returned_views(graph: fx.Graph) -> list[str]:
    """Make the views that a graph returns by nodes of their own, which nothing else reads.

    Returns
    -------
    names : list of str
        The names of these nodes.
    """
    output = graph.output_node()
    copies: dict[fx.Node, fx.Node] = {}

    def copy_of(node: fx.Node) -> fx.Node:
        chain = []
        while node not in copies and is_view(node):
            chain.append(node)
            node = node.args[0]
        copy = copies.get(node, node)
        for view in reversed(chain):
            with graph.inserting_before(output):
                copies[view] = copy = graph.node_copy(
                    view, lambda read, view=view, copy=copy: copy if read is view.args[0] else read
                )
        return copy

    output.args = fx.map_arg(output.args, copy_of)
    for node in reversed([*copies]):
        if not node.users:
            graph.erase_node(node)
    return [copy.name for copy in copies.values()]
