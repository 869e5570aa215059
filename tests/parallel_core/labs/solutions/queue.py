"""Lab 1, solved: one queue, one worker."""

from queue import SimpleQueue
from threading import Thread

from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """One device, one queue, one worker."""

    def start(self) -> None:
        self.queue: SimpleQueue[Task] = SimpleQueue()
        self.last: Task | None = None
        Thread(target=self.work, daemon=True).start()

    def submit(self, task: Task) -> None:
        self.last = task
        self.queue.put(task)

    def work(self) -> None:
        while True:
            task = self.queue.get()
            try:
                task.value = task.compute()
            except BaseException as error:
                task.error = error
            task.done.set()

    def wait_for(self, task: Task) -> None:
        task.done.wait()

    def wait_for_all(self) -> None:
        if self.last is not None:
            self.last.done.wait()
