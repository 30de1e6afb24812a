"""Several processes that serve one port: `wakeful serve --processes`.

`supervisor` starts and restarts the processes, `child` is their connection to it, and `metrics` adds up what
they count.
"""
