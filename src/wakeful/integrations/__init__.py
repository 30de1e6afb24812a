"""Wakeful in the applications of web frameworks, where a few lines of the application are not enough.

`wakeful.integrations.fastapi` serves the API and the dashboard below a path of an ASGI application;
`wakeful.integrations.django` is an app for `INSTALLED_APPS`. Each imports its framework only when it is
imported itself. Flask and other WSGI applications need none: see the page in `docs/how-to`.
"""
