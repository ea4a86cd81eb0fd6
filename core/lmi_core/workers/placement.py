"""The devices of a model's replicas."""

from collections.abc import Sequence
from typing import NamedTuple

from lmi_core.errors import ConfigurationError
from lmi_core.host.devices import CPU
from lmi_core.workers.replicas import ONE, ReplicaCount


class Placement(NamedTuple):
    """Groups of devices, each of which holds the whole model, and the number of replicas on all of them."""

    groups: Sequence[Sequence[str]] = ((CPU,),)
    replicas: ReplicaCount = ONE
    idle: Sequence[str] = ()  # devices left over because they are too few for another group
    ray_address: str | None = None  # the cluster that chooses the devices; None: they are on this host
    ray_shared: bool = False  # whether other servers that use the cluster share the replicas

    def devices(self, number: int) -> Sequence[str]:
        """Return the devices of a replica, by number from 0."""
        return self.groups[number % len(self.groups)]

    def part(self, number: int, count: int) -> "Placement":
        """Return the replicas of one server, by number from 0, if `count` servers divide the groups of GPUs or, without
        GPUs, the replicas.

        Raise ConfigurationError if there are too few.
        """
        (least, most), groups = self.replicas, self.groups
        if count == 1:
            return self
        if groups[0][0] == CPU:
            _check_enough(count, least, "engines, and there are {}: set minWorkers")
            part = ReplicaCount(len(range(number, least, count)), len(range(number, most, count)))
            return self._replace(replicas=part)
        what = "groups of GPUs, and there are {}: set option.tensor_parallel_degree, as an engine takes {} GPUs"
        _check_enough(count, len(groups), what.format("{}", len(groups[0])))
        own = groups[number::count]
        on_each = ReplicaCount(least // len(groups), most // len(groups))
        return self._replace(groups=own, replicas=self._replace(groups=own).total(on_each), idle=())

    def __str__(self) -> str:
        least, most = self.replicas
        count = "1 engine" if most == 1 else f"{most} engines" if least == most else f"{least} to {most} engines"
        if self.groups[0][0] == CPU:
            return count
        groups = "; ".join(", ".join(group) for group in self.groups)
        size = len(self.groups[0])
        idle = f"; GPU {', '.join(self.idle)} stays idle: an engine takes {size} GPUs" if self.idle else ""
        return f"{count}, on GPU {groups}{idle}"

    def total(self, of_group: ReplicaCount) -> ReplicaCount:
        """Return the number of replicas, given the number in each group; a minimum of 0 there means one in all."""
        return ReplicaCount(max(1, of_group.minimum * len(self.groups)), of_group.maximum * len(self.groups))


ANYWHERE = Placement()


def placement(of_group: ReplicaCount, devices: Sequence[str], gpus: int, degree: int) -> Placement:
    """Return where replicas run that need `degree` GPUs each: on the named GPUs or, as in DJLServing, on all.

    `of_group` is the number of replicas on each group of devices.
    """
    chosen = devices or [str(number) for number in range(gpus)] or [CPU]
    size = min(max(degree, 1), len(chosen))
    groups = [chosen[start : start + size] for start in range(0, len(chosen) - size + 1, size)]
    return Placement(groups, Placement(groups).total(of_group), chosen[len(groups) * size :])


def _check_enough(servers: int, found: int, needed: str) -> None:
    if found < servers:
        raise ConfigurationError(
            f"--servers {servers} needs at least as many {needed.format(found)}. Front ends cannot share the engines "
            "of this backend"
        )
