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
"""The backend ``tvm_fixes`` of ``torch.compile``, for inference on a CPU.

``backend`` makes graphs functional with AOTAutograd.  ``graphs`` splits each into partitions that
can be compiled (``capability``) and nodes that PyTorch runs; ``arranged`` prepares a partition for
the importer, and ``partition`` runs it with its ``kernels``, which the cache finds by the text of
the graph (``graph_text``).  ``cached_graph`` finds the whole, by the text of the graph before
AOTAutograd (``dynamo_text``), and ``stored_graph`` writes it.  Nothing below this package knows
Dynamo.
"""

from .backend import backend, explain
from .explanation import Explanation, Graph

__all__ = ["Explanation", "Graph", "backend", "explain"]
