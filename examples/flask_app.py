"""A Flask application that enqueues work, and runs it in the processes of gunicorn.

cd examples
gunicorn --config gunicorn_hooks.py --workers 2 --preload flask_app:web
curl -X POST http://127.0.0.1:8000/orders/7
"""

from flask import Flask, current_app

from wakeful import Wakeful

web = Flask(__name__)
web.config["SENDER"] = "shop@example.com"
app = Wakeful("sqlite:///wakeful.db", handler_context=web.app_context, connect_on_use=True)


@app.function()
def send_receipt(order: int) -> str:
    return f"order {order}, from {current_app.config['SENDER']}"


@app.every("1h")
def clean_up() -> str:
    return f"{current_app.name} is clean"


@web.post("/orders/<int:order>")
def create_order(order: int):
    call = app.sync.enqueue(send_receipt, order)
    return {"run": call.run.id}, 201


@web.get("/runs/<run_id>")
def show_run(run_id: str):
    run = app.sync.runs.get(run_id)
    return {"state": run.state, "output": run.output}
