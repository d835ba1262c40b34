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
"""What the lowerings of ``relax.nn.conv*d`` and ``relax.nn.conv*d_transpose`` have in common.

Both gather: each output element sums over exactly the kernel taps and data elements that contribute
to it, so that no zeros are inserted into the data. The two differ only in which elements these are
along one spatial axis, see :class:`SpatialAxis`.

On a CPU, vectors are made of output channels, whatever the layouts are (:mod:`.cpu_channels`):

- The kernel is packed with the channels innermost; at compile time, if it is a constant.
- The data is copied, padded and channels-last, if its elements are read more than once.
- A register tile of output columns and channels is summed: each step multiplies one element of the
  data with a vector of the kernel.
- The tile is written in the layout of the output.

Where a group has too few channels for a vector, vectors are made of columns (:mod:`.cpu_columns`).
Where a convolution without groups has, it becomes a matrix product (:mod:`.gemm`).
"""
