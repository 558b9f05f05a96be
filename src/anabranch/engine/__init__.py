"""The continuous engine: a program resident in one process, its rows on their way at all times.

`core` has the operators and what lies between them, and decides nothing about time; `threads` runs
it. After Prasaad, Ramalingam, Rajan 2018, "Scaling Ordered Stream Processing on Shared-Memory
Multicores".
"""
