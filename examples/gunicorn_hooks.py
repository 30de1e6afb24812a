"""Hooks of gunicorn: a scheduler starts in each worker, after the fork. See flask_app.py."""


def post_worker_init(worker):
    from flask_app import app

    app.start()


def worker_exit(server, worker):
    from flask_app import app

    app.stop()
