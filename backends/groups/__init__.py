"""Several processes as one backend: the frameworks' own engines between processes, behind the same verbs.

>>> where = rendezvous(os.environ)
>>> backend = join(backends.load("torch", devices=1), where)
"""

from backends.groups.agreement import DisagreementError, agree
from backends.groups.group import Group, GroupError
from backends.groups.grouped_backend import GroupedBackend
from backends.groups.joining import GROUPS, check_group, join
from backends.groups.messages import barrier, broadcast, gather
from backends.groups.rendezvous import TIMEOUT, TIMEOUT_VARIABLE, Rendezvous, rendezvous

__all__ = [
    "GROUPS",
    "TIMEOUT",
    "TIMEOUT_VARIABLE",
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
    "join",
    "rendezvous",
]
