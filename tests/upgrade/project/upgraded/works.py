"""Works of each kind. Each handler writes that it runs."""

import os

from django_ayework import BatchItem, Context, batch_work, work


def note(id: str, attempt: int) -> None:
    from upgraded.models import Run

    Run.objects.create(work=id, attempt=attempt, release=os.environ["RELEASE"])


@work
def plain(ctx: Context, number: int):
    note(ctx.id, ctx.attempt)
    return number


@work(atomic=True)
def together(ctx: Context, number: int):
    note(ctx.id, ctx.attempt)
    return number


@work
async def waits(ctx: Context, number: int):
    from asgiref.sync import sync_to_async

    await sync_to_async(note)(ctx.id, ctx.attempt)
    return number


@work
def flaky(ctx: Context, number: int):
    note(ctx.id, ctx.attempt)
    if ctx.attempt == 1:
        raise ConnectionError("The first attempt fails.")
    return number


@work
def fan_out(ctx: Context, number: int):
    note(ctx.id, ctx.attempt)
    return ctx.queue([part(number=each) for each in range(number)]).next(after())


@work
def part(ctx: Context, number: int):
    note(ctx.id, ctx.attempt)
    return ctx.result(number, append=lambda total: (total or 0) + number)


@work
def after(ctx: Context) -> None:
    note(ctx.id, ctx.attempt)


@work
def step(ctx: Context, number: int, left: int = 3):
    note(ctx.id, ctx.attempt)
    return ctx.continue_with(step(number=number, left=left - 1)) if left else number


@batch_work(size=10, max_wait=0.2)
def gathered(items: list[BatchItem[int]]) -> list[int]:
    for item in items:
        note(item.id, item.attempt)
    return [item.input for item in items]
