"""Random problems of every operator, on every kernel that takes them.

A case is named by a seed, an operator and a number; everything else follows from these three:

- `problems`: a problem of the operator, made of one that its adapter knows.
- `values`: operands that are hard to get right.
- `layouts`: how they lie in memory.
- `engine`: runs a case on every kernel of some devices that takes it, and compares.
- `tally`: how many cases and elements each kernel had.
"""
