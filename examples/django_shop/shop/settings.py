"""The settings of the project."""

from pathlib import Path

SECRET_KEY = "only for the example"
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "shop.urls"
WSGI_APPLICATION = "shop.wsgi.application"
MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
INSTALLED_APPS = ["wakeful.integrations.django", "shop"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parents[1] / "db.sqlite3",
        # Wakeful writes to the same file: begin transactions as writers, so that none has to start again.
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"  # also of the jobs
