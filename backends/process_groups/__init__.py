"""Several processes as one backend: the frameworks' own engines between processes, behind the same
verbs.

>>> where = rendezvous(os.environ)
>>> backend = join(backends.load("torch", devices=1), where)
"""

from backends.process_groups.group import (
    DisagreementError,
    Group,
    GroupError,
    agree,
    barrier,
    broadcast,
    gather,
)
from backends.process_groups.grouped_backend import (
    GroupedBackend,
    check_group,
    grouped,
    join,
)
from backends.process_groups.rendezvous import Rendezvous, rendezvous

__all__ = [
    "DisagreementError",
    "Group",
    "GroupError",
    "GroupedBackend",
    "Rendezvous",
    "agree",
    "barrier",
    "broadcast",
    "check_group",
    "gather",
    "grouped",
    "join",
    "rendezvous",
]
