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
to it, so that no zeros are put between those of the data. Which these are along one spatial axis is
all in which the two differ, see :class:`SpatialAxis`.

On a CPU the sums are made with the output channels innermost, whatever the layouts are: the kernel
is brought to that order before, which is done at compile time where it is a constant, the data is
copied, padded and channels-last, if its elements are read more than once, and then read one element
at a time for a vector of output channels, and the result is put into its layout tile by tile.

A vector needs channels.  Where a group has few of them, it is made of columns
(:mod:`.cpu_columns`), or, without groups, of what each element of the kernel makes of the data
(:mod:`.gemm`).
"""
