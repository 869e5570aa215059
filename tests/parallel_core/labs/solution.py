"""The labs, solved: a queue for each device and one for copies, and a list of who still reads what
is overwritten.
"""

from queue import SimpleQueue
from threading import Event, Thread
from weakref import WeakKeyDictionary

from backends import Device
from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """A queue and a worker for each device, and one more for copies."""

    reuses_memory = True

    def start(self) -> None:
        self.queues: dict[Device | str, SimpleQueue[tuple[Task, list[Event]]]] = {}
        self.last: dict[Device | str, Task] = {}
        self.readers: WeakKeyDictionary[Task, list[Event]] = WeakKeyDictionary()
        for lane in (*self.devices, "copies"):
            queue: SimpleQueue[tuple[Task, list[Event]]] = SimpleQueue()
            self.queues[lane] = queue
            worker = Thread(target=self.work, args=(queue,), name=str(lane), daemon=True)
            worker.start()

    def submit(self, task: Task) -> None:
        lane = "copies" if task.kind == "copy" else task.device
        # Whoever still reads what is overwritten comes first.
        before: list[Event] = []
        for overwritten in task.overwrites:
            before += self.readers.get(overwritten, [])
        for source in task.inputs:
            readers = [done for done in self.readers.get(source, []) if not done.is_set()]
            self.readers[source] = [*readers, task.done]
        self.last[lane] = task
        self.queues[lane].put((task, before))

    def work(self, queue: SimpleQueue[tuple[Task, list[Event]]]) -> None:
        while True:
            task, before = queue.get()
            inputs = [source.done for source in task.inputs]
            for done in (*inputs, *before):
                done.wait()
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
