"""What our verbs cost: each experiment's work through them, against the same work written directly
in the framework.

    python -m benchmarks.abstraction

Our synchronous PyTorch is compared with plain eager PyTorch, our MXNet with plain MXNet, which
queues work by itself, and our asynchronous PyTorch with the standard library's way to the same
asynchrony: an executor of one thread a device. Eager PyTorch, which queues nothing, is shown beside
it, with a target for tiny operations alone.

A tiny operation (x + 1) in a queue of Python's threads costs what Python does for it on both
threads, one after the other, because the GIL lets one of them run at a time. The least queue that
there can be, which makes an object and a lock, passes them on and calls, is timed in the same way.
Ours also finds the device, counts readers (a later copy may overwrite what they read), passes on
errors and compares memory.
"""

from itertools import product

from benchmarks.harness.findings import Report, benchmark
from benchmarks.harness.side_by_side import Variant, paired, take_turns, worker
from benchmarks.harness.targets import Finding, Target
from benchmarks.workers.abstraction import BARE, WORKS

SIDES = {
    ("mxnet", "async"): {"plain": "plain MXNet"},
    ("torch", "sync"): {"plain": "plain eager PyTorch"},
    ("torch", "async"): {"executors": "executors of one thread", "plain": "plain eager PyTorch"},
}
TARGET = Target("at most", 1.02)
INCREMENTS_TARGET = Target("at most", 1.05)
QUEUE_TARGET = Target("at most", 1.5)
QUEUES = {
    "torch async: increments, both in a bare queue, threads at the same time": BARE,
    "torch async: increments, executors of one thread": "increments, executors",
}


@benchmark("abstraction", rounds=3)
def main(rounds: int, quick: bool) -> Report:
    """Hold the time of each experiment's work against plain framework code, in turn in the same
    processes.
    """
    amounts = {
        "increments": 1000 if quick else 10_000,
        "batches": 2 if quick else 20,
        "repetitions": 2 if quick else 9,
        "epochs": 1 if quick else 2,
    }
    variants = [
        Variant(" ".join(cell), worker("abstraction", backend=cell[0], engine=cell[1], **amounts))
        for cell in SIDES
    ]
    processes = take_turns(variants, rounds)
    findings = []
    for cell, others in SIDES.items():
        measured = processes[" ".join(cell)]
        for (side, name), work in product(others.items(), WORKS):
            target: Target | None = INCREMENTS_TARGET if work == "increments" else TARGET
            if cell == ("torch", "async") and side == "plain":
                # Plain PyTorch does something else; what queueing costs is seen where operations
                # are tiny.
                target = QUEUE_TARGET if work == "increments" else None
            ratio = paired(measured, f"{work}, ours", f"{work}, {side}")
            findings.append(
                Finding(f"{' '.join(cell)}: {work}, ours / {name}", ratio, target=target)
            )
    findings += [
        Finding(
            f"{name} / plain eager PyTorch",
            paired(processes["torch async"], case, "increments, plain"),
        )
        for name, case in QUEUES.items()
    ]
    return Report("No cost for the abstraction", findings, processes, parameters=amounts)


if __name__ == "__main__":
    main()
