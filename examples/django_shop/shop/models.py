"""What the shop stores."""

from django.db import models


class Order(models.Model):
    email = models.EmailField()
    receipts = models.IntegerField(default=0)
