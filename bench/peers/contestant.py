"""Who is measured, with which settings, in which phases."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.databases import SERVICES


@dataclass(frozen=True)
class Setting:
    """One way of using a contestant: what the table calls it, and what its driver does."""

    title: str = ""
    value: str = ""


ONE_WAY = (Setting(),)


@dataclass(frozen=True, eq=False)
class Contestant:
    """A queue on a database. Whoever has no settings for a phase is not in it."""

    name: str
    database: str  # a key of tests.databases.SERVICES
    driver: str  # a module of bench.peers.drivers
    settings: Mapping[str, tuple[Setting, ...]]  # by phase
    arguments: tuple[str, ...] = ()  # of the driver
    needs: tuple[str, ...] = ()  # modules it cannot do without
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name with the database."""
        return f"{self.name} ({self.database})"

    @property
    def is_peer(self) -> bool:
        """Whether it is somebody else's queue, rather than ours or a limit of the machine."""
        return self.name not in ("ours", "raw loop", "bare Django shell")

    def obstacle(self) -> str:
        """Return why it cannot be measured here, or nothing."""
        service = SERVICES[self.database]
        if not service.answer:
            return f"{service.title}: {service.silence or 'not asked'}"
        missing = [name for name in self.needs if not is_installed(name)]
        return f"{', '.join(missing)} not installed" if missing else ""


def is_installed(module: str) -> bool:
    """Tell whether a module can be imported; its packages are, it is not."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
