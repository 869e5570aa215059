"""Lab 3: hide copies under computation. This engine copies on the queue that computes, and
overwrites too early.
"""

from queue import SimpleQueue
from threading import Thread

from backends import Device
from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """A queue and a worker for each device."""

    reuses_memory = True  # a copy with `out` writes to the memory of `out`

    def start(self) -> None:
        """Called once. Copies need a queue as well."""
        self.queues: dict[Device, SimpleQueue[Task]] = {
            device: SimpleQueue() for device in self.devices
        }
        self.last: dict[Device, Task] = {}
        for device, queue in self.queues.items():
            Thread(target=self.work, args=(queue,), name=str(device), daemon=True).start()

    def submit(self, task: Task) -> None:
        """Return at once. `task.kind` is "copy" or "compute"; `task.overwrites` are the tasks whose
        memory it takes.

        Tasks that were submitted before may still have to read that memory.
        """
        self.last[task.device] = task
        self.queues[task.device].put(task)

    def work(self, queue: SimpleQueue[Task]) -> None:
        """Compute tasks in order, each when its inputs are done."""
        while True:
            task = queue.get()
            for one in task.inputs:
                one.done.wait()
            try:
                task.value = task.compute()
            except BaseException as error:
                task.error = error
            task.done.set()

    def wait_for(self, task: Task) -> None:
        """Return when this task is done, and no later."""
        task.done.wait()

    def wait_for_all(self) -> None:
        """Return when every submitted task is done: when the last one of each queue is."""
        for task in list(self.last.values()):
            task.done.wait()
