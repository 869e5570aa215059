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
        for place in (*self.devices, "copies"):
            self.queues[place] = SimpleQueue()
            worker = Thread(
                target=self.work, args=(self.queues[place],), name=str(place), daemon=True
            )
            worker.start()

    def submit(self, task: Task) -> None:
        place = "copies" if task.kind == "copy" else task.device
        before = [done for one in task.overwrites for done in self.readers.get(one, ())]
        for one in task.inputs:
            self.readers[one] = [
                *(done for done in self.readers.get(one, ()) if not done.is_set()),
                task.done,
            ]
        self.last[place] = task
        self.queues[place].put((task, before))

    def work(self, queue: SimpleQueue[tuple[Task, list[Event]]]) -> None:
        while True:
            task, before = queue.get()
            for done in (*(one.done for one in task.inputs), *before):
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
