"""A tiny simulator of explicit operation orders: the oracle of the recurrences."""

from __future__ import annotations


def gpipe_order(num_microbatches: int, _rank: int, _ranks: int) -> list[tuple[str, int]]:
    forwards = [("F", j) for j in range(num_microbatches)]
    return forwards + [("B", j) for j in range(num_microbatches)]


def one_f_one_b_order(num_microbatches: int, rank: int, ranks: int) -> list[tuple[str, int]]:
    warm_up = min(num_microbatches, ranks - 1 - rank)
    order = [("F", j) for j in range(warm_up)]
    for j in range(num_microbatches - warm_up):
        order += [("F", warm_up + j), ("B", j)]
    return order + [("B", j) for j in range(num_microbatches - warm_up, num_microbatches)]


def run_orders(orders, f, b, ef, eb, blocking):
    """Finish of each rank; every rank runs its list in order as soon as inputs are there."""
    ranks = len(orders)
    arrived: dict[tuple[str, int, int], int] = {}
    free = [0] * ranks
    position = [0] * ranks
    while any(position[s] < len(orders[s]) for s in range(ranks)):
        progressed = False
        for s in range(ranks):
            while position[s] < len(orders[s]):
                kind, j = orders[s][position[s]]
                if kind == "F":
                    ready = 0 if s == 0 else arrived.get(("F", s, j))
                    length, target, edge = f[s], ("F", s + 1, j), ef[s] if s < ranks - 1 else 0
                else:
                    ready = arrived.get(("B", s, j))
                    length, target, edge = b[s], ("B", s - 1, j), eb[s - 1] if s else 0
                if ready is None:
                    break
                end = max(free[s], ready) + length
                free[s] = end + edge if blocking else end
                arrived[target] = end + edge
                if kind == "F" and s == ranks - 1:
                    arrived[("B", s, j)] = end
                position[s] += 1
                progressed = True
        assert progressed, "deadlock"
    return free
