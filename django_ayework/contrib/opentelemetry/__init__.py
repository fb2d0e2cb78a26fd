"""OpenTelemetry spans where works are queued, and of each attempt. It needs the extra opentelemetry."""

from django_ayework.documentation import documented

try:
    from django_ayework.contrib.opentelemetry.instrumentor import AyeworkInstrumentor
except ModuleNotFoundError as missing:
    if not (missing.name or "").startswith("opentelemetry"):
        raise
    raise documented(
        ImportError(
            f"tracing works needs {missing.name}, which is not installed: "
            "pip install django-ayework[opentelemetry]."
        ),
        "package-missing",
    ) from missing

__all__ = ["AyeworkInstrumentor"]
