"""The jobs of the shop. Django imports this module at its start."""

from django.db.models import F

from shop.models import Order
from wakeful.integrations.django import app


@app.function(max_attempts=3)
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(pk=order_id)
    Order.objects.filter(pk=order_id).update(receipts=F("receipts") + 1)
    return f"sent to {order.email}"


@app.cron("0 7 * * *")
async def report() -> str:
    return f"{await Order.objects.acount()} orders"
