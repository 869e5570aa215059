"""Graphs of tasks on several devices: which task needs which, how a graph is launched, and what it
computes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from backends import Array, Backend, Ops
from parallel_core.experiments.workloads import Program
from parallel_core.measurement.task_graph import Task


@dataclass(frozen=True)
class Node:
    """A task: the device that computes it, the nodes that it needs, and its multiplications.

    It takes the average of the matrices that it depends on, on its own device, and multiplies it by
    that device's matrix. With a spectral norm of about 1 they do not overflow.
    """

    device: int
    after: tuple[int, ...]
    products: int


def diamond(devices: int) -> tuple[Node, ...]:
    """Make two diamonds one after the other.

    Each is a fork to a branch on every device, and a join.
    """
    nodes = [Node(0, (), 1)]
    for _ in range(2):
        fork = len(nodes) - 1
        nodes += [Node(device, (fork,), 4) for device in range(devices)]
        nodes.append(Node(0, tuple(range(fork + 1, len(nodes))), 1))
    return tuple(nodes)


def random_graph(seed: int, devices: int, layers: int = 6) -> tuple[Node, ...]:
    """Draw layers of nodes on random devices.

    Each node depends on one to three nodes of the two layers before its own.
    """
    generator = np.random.default_rng(seed)
    nodes: list[Node] = []
    starts = [0, 0]
    for _ in range(layers):
        reachable = range(starts[-2], len(nodes))
        starts.append(len(nodes))
        for _ in range(generator.integers(1, 2 * devices + 1)):
            count = min(len(reachable), int(generator.integers(1, 4)))
            after: list[int] = []
            if count:
                after = sorted(generator.choice(reachable, count, replace=False).tolist())
            device, products = int(generator.integers(devices)), int(generator.integers(4))
            nodes.append(Node(device, tuple(after), products))
    return tuple(nodes)


def device_matrices(size: int, devices: int) -> list[np.ndarray]:
    """Draw a float32 matrix for each device, of a spectral norm of about 1."""
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal((size, size)) for _ in range(devices)]
    # The norm of a matrix of normal numbers is about 2 √size; computing it would take longer than
    # the experiment.
    return [(matrix / (2 * size**0.5)).astype(np.float32) for matrix in drawn]


def launch_graph(backend: Backend, nodes: Sequence[Node], matrices: Sequence[Array]) -> list[Array]:
    """Launch all nodes in their order, and return their values.

    There is a copy for each dependency on another device.
    """
    values: list[Array] = []
    for node in nodes:
        device = backend.devices[node.device]
        operands = []
        for earlier in node.after:
            value = values[earlier]
            if nodes[earlier].device != node.device:
                value = backend.copy_to(value, device)
            operands.append(value)
        task = partial(compute, backend.ops, node.products)
        values.append(backend.launch(task, matrices[node.device], *operands))
    return values


def program_of(nodes: tuple[Node, ...], size: int) -> Program:
    """Make the program that loads a matrix on every device and computes a graph."""

    def inputs(backend: Backend) -> list[Array]:
        matrices = device_matrices(size, len(backend.devices))
        return [
            backend.asarray(matrix, device)
            for matrix, device in zip(matrices, backend.devices, strict=True)
        ]

    return Program(inputs, lambda backend, matrices: launch_graph(backend, nodes, matrices))


def compute(ops: Ops, products: int, matrix: Array, *operands: Array) -> Array:
    """Average the operands, and multiply by the matrix `products` times.

    Without operands the matrix takes their place.
    """
    terms = operands or (matrix,)
    value = ops.multiply(reduce(ops.add, terms), 1 / len(terms))
    for _ in range(products):
        value = ops.matmul(value, matrix)
    return value


def expected(nodes: Sequence[Node], matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compute the same values with NumPy, one node after the other, in double precision."""
    values: list[np.ndarray] = []
    for node in nodes:
        matrix = matrices[node.device].astype(np.float64)
        value = matrix
        if node.after:
            value = np.mean([values[earlier] for earlier in node.after], axis=0)
        values.append(value @ np.linalg.matrix_power(matrix, node.products))
    return values


def tasks_of(nodes: Sequence[Node]) -> tuple[list[Task], list[int]]:
    """Return the tasks that `launch_graph` launches, and how many operations each has.

    Their devices are numbers.
    """
    tasks: list[Task] = []
    operations: list[int] = []
    position_of: list[int] = []
    for node in nodes:
        after: list[int] = []
        for earlier in node.after:
            if nodes[earlier].device != node.device:
                after.append(len(tasks))
                tasks.append(Task("copy", str(node.device), "copy", (position_of[earlier],)))
                operations.append(1)
            else:
                after.append(position_of[earlier])
        position_of.append(len(tasks))
        tasks.append(Task("compute", str(node.device), "compute", tuple(after)))
        # The operands are added up, the sum is divided by their number, and multiplied.
        additions = max(0, len(node.after) - 1)
        operations.append(additions + 1 + node.products)
    return tasks, operations
