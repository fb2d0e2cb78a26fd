"""The suite's settings for the worker processes of the scenarios; every settlement is noted in a file."""

import os
from pathlib import Path

from tests.settings_process import *  # noqa: F403
from tests.settings_process import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "tests.scenarios"]


def note_event(event) -> None:
    with (Path(os.environ["SCENARIO_PLACE"]) / f"events-{os.getpid()}").open("a") as file:
        file.write(f"{event.kind} {event.id or event.group_id}\n")


AYEWORK = {"LEASE": 2.0, "POLL_INTERVAL": 0.1, "CONCURRENCY": 4, "ON_EVENT": note_event}
