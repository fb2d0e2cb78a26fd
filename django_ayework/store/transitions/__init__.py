"""The one writer of ``status``: applying transitions, claiming, staging, releasing, renewing."""

from django_ayework.store.transitions.apply import Won, apply, succeed
from django_ayework.store.transitions.claim import claim, claim_new
from django_ayework.store.transitions.release import release
from django_ayework.store.transitions.renew import renew
from django_ayework.store.transitions.stage import stage

__all__ = ["Won", "apply", "claim", "claim_new", "release", "renew", "stage", "succeed"]
