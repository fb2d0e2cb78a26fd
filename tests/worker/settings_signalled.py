"""Settings of a worker process that is told to stop before it hears signals, while system checks run."""

import os
import signal

from django.core.checks import register

from tests.worker.settings_patient import *  # noqa: F403


@register()
def stop(app_configs: object, **kwargs: object) -> list[object]:
    os.kill(os.getpid(), signal.SIGTERM)
    return []
