"""The works most tests run; a test that needs a special one declares it beside itself."""

from django_ayework import Context, work
from tests.app.models import Order


@work
def add(ctx: Context, a: int, b: int):
    return ctx.result(a + b)


@work
def fail(message: str = "no luck"):
    raise RuntimeError(message)


@work
def pay(order_id: int) -> None:
    Order.objects.filter(pk=order_id).update(paid=True)


@work(queue="mail")
async def notify(order_id: int) -> str:
    await Order.objects.filter(pk=order_id).aupdate(notified=True)
    return f"order {order_id}"


def expire_carts() -> None:
    """Be scheduled; queue nothing."""
