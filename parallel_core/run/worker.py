"""A process that measures for the one that started it: a `Request` as a line of JSON in, a `Result`
as a line of JSON out.

`python -m parallel_core.run.worker [DESCRIPTOR]` reads requests from standard input until one line
says that nothing more is asked for. If there is a descriptor on which it is to end its turns, it
loads the backend of the first request in its first turn, and is then asked to measure
(`parallel_core.measurement.starter`). A trace that is asked for is written if there can be one.
"""

import json
import sys

from parallel_core.measurement.request import Request
from parallel_core.measurement.starter import NOTHING_MORE, Starter
from parallel_core.run.measure import load, measure
from parallel_core.run.recording import record_if_possible
from parallel_core.system.errors import message_and_status
from parallel_core.system.signals import end_soon_on_interrupt


def main() -> None:
    """Answer the starter; after an error end with a line on standard error and a status."""
    end_soon_on_interrupt()
    try:
        _answer(Starter(*map(int, sys.argv[1:])))
    except (Exception, SystemExit) as error:
        message, status = message_and_status(error)
        print(f"parallel-core: {message}", file=sys.stderr)
        sys.exit(status)


def _answer(starter: Starter) -> None:
    """Measure what the starter asks for, until it asks for nothing more."""
    requests = map(Request.from_line, iter(starter.next_asked, NOTHING_MORE))
    if starter.are_given:
        load(next(requests).work)
        starter.end_turn()
    for request in requests:
        backend = load(request.work)
        result = measure(request, backend, turns=starter)
        if request.files.trace is not None:
            record_if_possible(backend, result, request.files.trace)
        # The output of a library may lack a newline at its end.
        print(f"\n{json.dumps(result.as_json())}", flush=True)
        starter.end_experiment()


if __name__ == "__main__":
    main()
