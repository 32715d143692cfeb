"""Order and cycles of named nodes, for readers that check a graph before it is a model."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

__all__ = ["find_cycle", "topological_order"]


def topological_order(
    inputs: Sequence[Sequence[int]], priority: Sequence[int] | None = None
) -> list[int]:
    """Node indices so that each comes after its inputs; the least ready node goes first.

    Kahn's algorithm with a heap, O((V + E) log V). Nodes on or behind a cycle are left out, so
    the order is complete exactly when the graph has no cycle.

    Parameters
    ----------
    inputs
        For each node, the indices of the nodes it reads.
    priority
        Rank of each node among ready nodes (default: its index).

    Examples
    --------
    >>> topological_order([[2], [0], []])
    [2, 0, 1]
    >>> topological_order([[1], [0]])
    []
    """
    rank = range(len(inputs)) if priority is None else priority
    consumers: list[list[int]] = [[] for _ in inputs]
    waiting = [len(sources) for sources in inputs]
    for node, sources in enumerate(inputs):
        for source in sources:
            consumers[source].append(node)
    ready = [(rank[node], node) for node, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, node = heapq.heappop(ready)
        order.append(node)
        for consumer in consumers[node]:
            waiting[consumer] -= 1
            if waiting[consumer] == 0:
                heapq.heappush(ready, (rank[consumer], consumer))
    return order


def find_cycle(inputs: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Nodes of one cycle in data-flow order, or ``()`` where there is none. O(V + E).

    Examples
    --------
    >>> find_cycle([[], [0, 3], [1], [2]])
    (1, 2, 3)
    >>> find_cycle([[], [0]])
    ()
    """
    done = set(topological_order(inputs))
    left = next((node for node in range(len(inputs)) if node not in done), None)
    if left is None:
        return ()
    # Every node left over has an input left over, so walking back must meet itself.
    trail: list[int] = []
    place: dict[int, int] = {}
    while left not in place:
        place[left] = len(trail)
        trail.append(left)
        left = next(source for source in inputs[left] if source not in done)
    cycle = trail[place[left] :][::-1]
    first = cycle.index(min(cycle))
    return tuple(cycle[first:] + cycle[:first])
