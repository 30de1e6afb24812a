"""A Django project whose jobs Wakeful runs, in the same database.

python manage.py migrate --run-syncdb
python manage.py wakeful serve      # the scheduler, the HTTP API and the dashboard
python manage.py runserver          # in another terminal
curl -X POST -d email=ada@example.com http://127.0.0.1:8000/orders/
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")

if __name__ == "__main__":
    execute_from_command_line(sys.argv)
