"""Data orders: which tokens are sample g of a blend, a pure function of the blend and the number.

`contract` is what every order answers. `treering1` is our own closed form, over `weyl` (which corpus) and `component`
(which sample of a corpus, shuffled by `feistel`). `spans` and `batch` ask any order.
"""
