"""`run EXPERIMENT` as a rank of a job: join the others and measure; rank 0 writes and shows."""

from dataclasses import replace

from backends.devices import parse_devices
from backends.process_groups import Rendezvous
from parallel_core.command_line.options import console_beside
from parallel_core.command_line.run.answer import (
    TOLD,
    refuse_files,
    refuse_invalid,
    show_guess,
    write_result,
)
from parallel_core.experiments import EXPERIMENTS
from parallel_core.jobs.rank import described, joined, share_gpus
from parallel_core.jobs.shared import supplies_of_rank
from parallel_core.measurement.request import Files, Request
from parallel_core.run.arguments import option_values
from parallel_core.run.measure import USUAL, load, measure
from parallel_core.system.errors import RequestError
from parallel_core.terminal.result import show


def run_as_rank(request: Request, where: Rendezvous) -> None:
    """Measure what is asked for together with the other ranks of a job.

    Raises RequestError for what cannot be had, MeasurementError for an invalid result, and
    DisturbedError if times are disturbed.
    """
    if request.files.is_recorded:
        raise RequestError("the profilers see one process: leave out --trace and --timeline")
    if where.rank:
        # The first rank writes the files.
        written = replace(request.files, json=None, plot=None)
        request = replace(request, files=written)
    refuse_files(request)
    devices = request.work.devices or 1
    wanted = parse_devices(str(devices))
    if isinstance(wanted, int):
        share_gpus(where, wanted)
    # Nothing is counted, because a profiler sees only one process.
    request = replace(request, work=replace(request.work, devices=devices, count=0))
    local = load(request.work)
    with joined(local, where, request.work.experiment, _alike_in_all(request)) as backend:
        supplies = supplies_of_rank(backend, where, TOLD, USUAL)
        result = measure(request, backend, supplies)
        if backend.group.rank == 0:
            console = console_beside(request.files.json)
            of_all = described(result, backend)
            judged = None
            try:
                judged = write_result(of_all, request)
            finally:
                show(of_all, console, with_details=request.words.details)
            show_guess(judged, console)
    refuse_invalid(result)


def _alike_in_all(request: Request) -> dict[str, object]:
    """Return what all ranks must be asked for alike; paths may differ from host to host."""
    values = option_values(EXPERIMENTS[request.work.experiment], request.work.parameters)
    asked: Files = request.files
    return {**values, "checkpoint_steps": asked.checkpoint_steps, "resume": asked.resume}
