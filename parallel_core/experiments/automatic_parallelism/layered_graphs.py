"""Task graphs to compute: a diamond, and random ones layer by layer. Every framework computes the same ones.

A node takes the average of the matrices that it depends on, on its own device, and multiplies it by that device's
matrix as often as it says. Averages and products of matrices with a spectral norm of about 1 do not overflow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from backends import Array, Backend, Ops

__all__ = ["Node", "device_matrices", "diamond", "expected", "graph_as_units", "launch_graph", "random_graph"]


@dataclass(frozen=True)
class Node:
    """One task: which device computes it (by number), after which earlier nodes, with how many products."""

    device: int
    after: tuple[int, ...]
    products: int


def diamond(devices: int) -> tuple[Node, ...]:
    """Make two diamonds one after the other: a fork to a branch on every device, a join, a fork again, a join."""
    nodes = [Node(0, (), 1)]
    for _ in range(2):
        fork = len(nodes) - 1
        nodes += [Node(device, (fork,), 4) for device in range(devices)]
        nodes.append(Node(0, tuple(range(fork + 1, len(nodes))), 1))
    return tuple(nodes)


def random_graph(seed: int, devices: int, layers: int = 6) -> tuple[Node, ...]:
    """Draw layers of nodes on random devices; each depends on one to three nodes of the two layers before its own."""
    generator = np.random.default_rng(seed)
    nodes: list[Node] = []
    before: list[range] = [range(0), range(0)]
    for _ in range(layers):
        reachable = [*before[-2], *before[-1]]
        first = len(nodes)
        for _ in range(generator.integers(1, 2 * devices + 1)):
            count = min(len(reachable), int(generator.integers(1, 4)))
            after = sorted(generator.choice(reachable, count, replace=False).tolist()) if count else []
            nodes.append(Node(int(generator.integers(devices)), tuple(after), int(generator.integers(4))))
        before.append(range(first, len(nodes)))
    return tuple(nodes)


def device_matrices(size: int, devices: int) -> list[np.ndarray]:
    """Draw a float32 matrix for each device, of a spectral norm of about 1."""
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal((size, size)) for _ in range(devices)]
    # The norm of a matrix of normal numbers is about 2 √size; computing it would take longer than the experiment.
    return [(matrix / (2 * size**0.5)).astype(np.float32) for matrix in drawn]


def launch_graph(backend: Backend, nodes: Sequence[Node], matrices: Sequence[Array]) -> list[Array]:
    """Launch all nodes in their order, with a copy for each dependency on another device; return their values."""
    values: list[Array] = []
    for node in nodes:
        device = backend.devices[node.device]
        operands = [
            values[earlier] if nodes[earlier].device == node.device else backend.copy_to(values[earlier], device)
            for earlier in node.after
        ]
        values.append(backend.launch(partial(_compute, backend.ops, node.products), matrices[node.device], *operands))
    return values


def graph_as_units(backend: Backend, nodes: Sequence[Node], matrices: Sequence[Array]) -> list[Callable[[], Array]]:
    """Return what launches each device's nodes as one unit. Its matrix stands for the values that nodes depend on."""

    def compute_all(own: Sequence[Node], matrix: Array) -> Array:
        return tuple(_compute(backend.ops, node.products, matrix, *[matrix] * len(node.after)) for node in own)

    shares = [[node for node in nodes if node.device == number] for number in range(len(matrices))]
    return [
        partial(backend.launch, backend.ops.as_unit(partial(compute_all, own)), matrix)
        for own, matrix in zip(shares, matrices, strict=True)
        if own
    ]


def _compute(ops: Ops, products: int, matrix: Array, *operands: Array) -> Array:
    """Average the operands, or take the matrix if there are none, and multiply by the matrix some times."""
    value = ops.multiply(reduce(ops.add, operands or (matrix,)), 1 / max(1, len(operands)))
    for _ in range(products):
        value = ops.matmul(value, matrix)
    return value


def expected(nodes: Sequence[Node], matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the same values with NumPy, one node after the other, in double precision."""
    values: list[np.ndarray] = []
    for node in nodes:
        matrix = matrices[node.device].astype(np.float64)
        value = np.mean([values[earlier] for earlier in node.after], axis=0) if node.after else matrix
        values.append(value @ np.linalg.matrix_power(matrix, node.products))
    return values
