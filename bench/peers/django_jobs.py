"""The job, as Django's own tasks framework describes it."""

from django.tasks import task

from bench.peers import job


@task()
def hit(number: int) -> int:
    """Be the job."""
    job.hit(number)
    return number
