"""What a rank does: report, keep its own deadline, and measure together with the other ranks."""

from parallel_core.jobs.rank.ending import leave
from parallel_core.jobs.rank.joining import check_job, described, in_a_job, joined, share_gpus

__all__ = ["check_job", "described", "in_a_job", "joined", "leave", "share_gpus"]
