"""What layers cost: pure formulas with their sources, and the prices that solvers read."""
