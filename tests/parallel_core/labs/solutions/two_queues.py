"""Lab 2, solved: a queue and a worker for each device; a worker waits for inputs of the other queue."""

from queue import SimpleQueue
from threading import Thread

from backends import Device
from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """A queue and a worker for each device."""

    def start(self) -> None:
        self.queues: dict[Device, SimpleQueue[Task]] = {device: SimpleQueue() for device in self.devices}
        self.last: dict[Device, Task] = {}
        for device, queue in self.queues.items():
            Thread(target=self.work, args=(queue,), name=str(device), daemon=True).start()

    def submit(self, task: Task) -> None:
        self.last[task.device] = task
        self.queues[task.device].put(task)

    def work(self, queue: SimpleQueue[Task]) -> None:
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
        task.done.wait()

    def wait_for_all(self) -> None:
        for task in list(self.last.values()):
            task.done.wait()
