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
"""Removal of the blocks of a PrimFunc that nothing reads."""

from collections import Counter

from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_walk

from .util import contains, with_parts


def without_dead_blocks(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """Remove each statement that computes only intermediate results that no other one reads.

    Fusion leaves them if a step does not depend on the one before, such as a product with 0.

    Parameters
    ----------
    function : tirx.PrimFunc
        One before its schedule: the root block has a loop nest per step.
    """
    realize = function.body
    root = realize.block if isinstance(realize, SBlockRealize) else None
    if root is None or not isinstance(root.body, tirx.SeqStmt):
        return function
    buffers = set(root.alloc_buffers)
    used = [_variables(stmt) & buffers for stmt in root.body.seq]
    counts = Counter(buffer for each in used for buffer in each)
    kept: list[tirx.Stmt] = []
    # From the last step on, because what it reads may be dead without it.
    for stmt, own in reversed([*zip(root.body.seq, used, strict=True)]):
        unread = {buffer for buffer in own if counts[buffer] == 1}
        if unread and not _has_effects(stmt, unread):
            counts.subtract(own)
        else:
            kept.insert(0, stmt)
    if len(kept) == len(root.body.seq):
        return function
    body = kept[0] if len(kept) == 1 else tirx.SeqStmt(kept)
    left = [buffer for buffer in root.alloc_buffers if counts[buffer]]
    root = with_parts(root, body=body, alloc_buffers=left)
    return function.with_body(SBlockRealize(realize.iter_values, realize.predicate, root))


def _variables(stmt: tirx.Stmt) -> set[tirx.Var]:
    variables: set[tirx.Var] = set()
    structural_walk(stmt, (tirx.Var, lambda var: variables.add(var)))
    return variables


def _has_effects(stmt: tirx.Stmt, own: set[tirx.Var]) -> bool:
    """Whether a statement checks something, or writes to buffers not in `own`."""
    written: list[tirx.Var] = []
    structural_walk(stmt, (tirx.BufferStore, lambda store: written.append(store.buffer)))
    has_calls = contains(stmt, (tirx.Evaluate, tirx.AssertStmt))
    return has_calls or not written or not own.issuperset(written)
