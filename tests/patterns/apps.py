from django.apps import AppConfig


class PatternsConfig(AppConfig):
    name = "tests.patterns"
    label = "patterns"
    default_auto_field = "django.db.models.BigAutoField"
