"""Lab 2: two devices that work at the same time. This engine is right, and its devices take
turns.
"""

from queue import SimpleQueue
from threading import Thread

from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """One queue and one worker for all of `self.devices`."""

    def start(self) -> None:
        """Called once. Give each device a queue and a worker."""
        self.queue: SimpleQueue[Task] = SimpleQueue()
        self.last: Task | None = None
        Thread(target=self.work, args=(self.queue,), name="all devices", daemon=True).start()

    def submit(self, task: Task) -> None:
        """Return at once. `task.device` says whose queue it belongs to, and `task.inputs` what it
        reads.
        """
        self.last = task
        self.queue.put(task)

    def work(self, queue: SimpleQueue[Task]) -> None:
        """Compute tasks in order. With two queues an input may still be in the other one: what
        then?
        """
        while True:
            task = queue.get()
            try:
                task.value = task.compute()
            except BaseException as error:
                task.error = error
            task.done.set()

    def wait_for(self, task: Task) -> None:
        """Return when this task is done, and no later."""
        task.done.wait()

    def wait_for_all(self) -> None:
        """Return when every submitted task is done; of one queue, when the last one is."""
        if self.last is not None:
            self.last.done.wait()
