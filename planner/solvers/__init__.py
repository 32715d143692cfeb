"""Exact solvers: they read prices and never make them."""
