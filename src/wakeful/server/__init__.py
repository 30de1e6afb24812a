"""The server: API, dashboard and engine in one process or several, and how it is started and watched."""
