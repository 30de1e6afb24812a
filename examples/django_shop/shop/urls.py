"""The pages of the shop."""

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path

from shop.models import Order
from shop.wakeful_jobs import send_receipt
from wakeful.integrations.django import app


def orders(request: HttpRequest) -> HttpResponse:
    if request.method != "POST":
        return JsonResponse({"orders": list(Order.objects.values("id", "email", "receipts"))})
    with transaction.atomic():
        order = Order.objects.create(email=request.POST["email"])
        transaction.on_commit(lambda: app.sync.enqueue(send_receipt, order.pk))
    return JsonResponse({"id": order.pk}, status=201)


urlpatterns = [path("orders/", orders)]
