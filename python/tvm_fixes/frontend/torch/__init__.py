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
"""Import of PyTorch programs into Relax: TVM's importer with corrected converters.

``exported_program`` is the entry point, ``importer`` the walk over the nodes, and ``call`` what
converters get, with the list of what wraps them.  Converters stand in ``ops``, one file per
operator family; ``stock`` is the adapter for TVM's.  ``graph`` reads programs, ``values`` knows
sizes and operands.  ``fx`` and ``dynamo`` import traced modules, which are exported first.
"""

from ..dtypes import accumulation_dtype
from .dynamo import dynamo_capture_subgraphs, relax_dynamo
from .exported_program import from_exported_program
from .fx import from_fx
from .graph.recurrent_shapes import recurrent_shapes
from .importer import ExportedProgramImporter

__all__ = [
    "ExportedProgramImporter",
    "accumulation_dtype",
    "dynamo_capture_subgraphs",
    "from_exported_program",
    "from_fx",
    "recurrent_shapes",
    "relax_dynamo",
]
