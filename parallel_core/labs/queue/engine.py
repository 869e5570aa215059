"""Lab 1: make NumPy asynchronous. This engine is right, and makes its caller wait for
everything.
"""

from parallel_core.labs import Engine, Task


class MyEngine(Engine):
    """One device, one queue, one worker."""

    def start(self) -> None:
        """Called once, before the first task.

        Make the queue and its thread here: a daemon thread, which ends with the program.
        """

    def submit(self, task: Task) -> None:
        """Return at once, and have the task computed later.

        Another thread computes the tasks, in the order of their submission.
        """
        try:
            task.value = task.compute()
        except BaseException as error:  # whatever a computation raises is its result
            task.error = error
        task.done.set()  # an Event: task.done.wait() returns when somebody has set it

    def wait_for(self, task: Task) -> None:
        """Return when this task is done, and no later."""

    def wait_for_all(self) -> None:
        """Return when every submitted task is done."""
