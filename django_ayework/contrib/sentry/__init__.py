"""Sentry: errors of works with their context, breadcrumbs and traces. It needs the extra sentry."""

from django_ayework.documentation import documented

try:
    from django_ayework.contrib.sentry.integration import AyeworkIntegration
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("sentry_sdk"):
        raise
    raise documented(
        ImportError(
            "reporting works to Sentry needs sentry_sdk, which is not installed: "
            "pip install django-ayework[sentry]."
        ),
        "package-missing",
    ) from missing

__all__ = ["AyeworkIntegration"]
