"""What a rank does: report, watch its own progress, and measure together with the others."""

from parallel_core.jobs.rank.joining import check_job, described, in_a_job, joined, share_gpus
from parallel_core.jobs.rank.reporting import leave

__all__ = ["check_job", "described", "in_a_job", "joined", "leave", "share_gpus"]
