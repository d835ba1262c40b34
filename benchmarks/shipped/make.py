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
"""Makes the file of one export: ``python -m benchmarks.shipped.make NAME PATH LIBRARIES``."""

import sys
from pathlib import Path

from . import find


def main(name: str, path: Path, libraries: str) -> None:
    """Make the file of the export `name`, with libraries from a folder."""
    model = find(name)
    assert model.make is not None, f"{name} is shipped by a package"
    if not model.origin.startswith(("transformers", "diffusers")):
        # transformers imports torchvision wherever it finds it.
        sys.path.append(libraries)
    model.make(path)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
