"""A Django project that shows django_ayework at work: it audits the Python packages beside it."""
