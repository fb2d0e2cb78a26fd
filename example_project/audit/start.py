"""Starting an audit."""

from __future__ import annotations

from django.db import transaction

from django_ayework import enqueue
from example_project.audit.models import Audit
from example_project.audit.works import audit_installation


@transaction.atomic
def start_audit() -> Audit:
    """Create an audit and enqueue its root work: both are committed, or neither is."""
    audit = Audit.objects.create()
    handle = enqueue(audit_installation(audit_id=audit.pk), about=audit)
    audit.work_id = handle.id
    audit.save(update_fields=["work_id"])
    return audit
