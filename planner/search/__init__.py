"""Which layout: the legal ones, their bounds, and the best-first search over them."""
