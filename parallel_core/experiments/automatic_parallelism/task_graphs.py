"""Graphs of tasks on several devices: the dependencies, the launches, and the values."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np

from backends import Array, Backend, Ops
from parallel_core.experiments.workloads import Program
from parallel_core.measurement.task_graph import Task


@dataclass(frozen=True)
class Node:
    """A task of a graph.

    It averages the values of the nodes that it depends on, and multiplies the average by its
    device's matrix. The matrices have a spectral norm of about 1, so that no value overflows.
    """

    device: int
    """The number of the device that computes it."""
    after: tuple[int, ...]
    """The positions of the nodes that it depends on."""
    products: int
    """The number of its multiplications."""


def diamond(devices: int) -> tuple[Node, ...]:
    """Make the graph of two diamonds, one after the other.

    A diamond is a fork to a branch on every device, and a join of the branches.
    """
    nodes = [Node(device=0, after=(), products=1)]
    for _ in range(2):
        fork = len(nodes) - 1
        nodes += [Node(device, after=(fork,), products=4) for device in range(devices)]
        branches = range(fork + 1, len(nodes))
        nodes.append(Node(device=0, after=tuple(branches), products=1))
    return tuple(nodes)


def random_graph(seed: int, devices: int, layers: int = 6) -> tuple[Node, ...]:
    """Draw a graph of layers of nodes on random devices.

    Each node depends on one to three nodes of the two layers before its own.
    """
    generator = np.random.default_rng(seed)
    nodes: list[Node] = []
    # The positions at which the last two layers begin; before the first layer they are empty.
    start_before_last = start_of_last = 0
    for _ in range(layers):
        earlier = range(start_before_last, len(nodes))
        start_before_last, start_of_last = start_of_last, len(nodes)
        for _ in range(generator.integers(1, 2 * devices + 1)):
            count = min(len(earlier), int(generator.integers(1, 4)))
            after: list[int] = []
            if count:
                drawn = generator.choice(earlier, count, replace=False)
                after = sorted(drawn.tolist())
            device = int(generator.integers(devices))
            products = int(generator.integers(4))
            nodes.append(Node(device, tuple(after), products))
    return tuple(nodes)


def device_matrices(size: int, devices: int) -> list[np.ndarray]:
    """Draw a float32 matrix for each device, of a spectral norm of about 1."""
    generator = np.random.default_rng(0)
    drawn = [generator.standard_normal((size, size)) for _ in range(devices)]
    # The norm of a matrix of normal numbers is about 2 √size. To compute the exact norm would take
    # longer than the experiment.
    norm = 2 * size**0.5
    return [(matrix / norm).astype(np.float32) for matrix in drawn]


def launch_graph(backend: Backend, nodes: Sequence[Node], matrices: Sequence[Array]) -> list[Array]:
    """Launch all nodes in their order, and return the value of each.

    The value of a node on another device is copied once for each node that depends on it.
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
    """Return a node's value: the average of the operands, times the matrix `products` times.

    Without operands the average is the matrix itself.
    """
    terms = operands or (matrix,)
    total = reduce(ops.add, terms)
    value = ops.multiply(total, 1 / len(terms))
    for _ in range(products):
        value = ops.matmul(value, matrix)
    return value


def expected(nodes: Sequence[Node], matrices: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the values of a graph's nodes, computed with NumPy in double precision."""
    values: list[np.ndarray] = []
    for node in nodes:
        matrix = matrices[node.device].astype(np.float64)
        value = matrix
        if node.after:
            value = np.mean([values[earlier] for earlier in node.after], axis=0)
        values.append(value @ np.linalg.matrix_power(matrix, node.products))
    return values


def tasks_of(nodes: Sequence[Node]) -> tuple[list[Task], list[int]]:
    """Return the tasks that `launch_graph` launches, and the number of operations of each task.

    A task's device is the number of the node's device, as text.
    """
    tasks: list[Task] = []
    operations: list[int] = []
    # By the position of a node in the graph, the position of its task.
    task_of_node: list[int] = []
    for node in nodes:
        device = str(node.device)
        after: list[int] = []
        for earlier in node.after:
            source = task_of_node[earlier]
            if nodes[earlier].device == node.device:
                after.append(source)
            else:
                after.append(len(tasks))
                tasks.append(Task("copy", device, "copy", (source,)))
                operations.append(1)
        task_of_node.append(len(tasks))
        tasks.append(Task("compute", device, "compute", tuple(after)))
        # A node adds up its operands, divides the sum by their number, and multiplies.
        additions = max(0, len(node.after) - 1)
        operations.append(additions + 1 + node.products)
    return tasks, operations
