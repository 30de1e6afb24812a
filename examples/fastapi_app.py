"""A FastAPI application with a scheduler, and its dashboard at /wakeful for the users of the application.

    uvicorn --app-dir examples fastapi_app:host

Open http://127.0.0.1:8000/login/ada, then http://127.0.0.1:8000/wakeful/.
"""

from fastapi import FastAPI, HTTPException, Response
from starlette.requests import HTTPConnection

from wakeful import Wakeful
from wakeful.integrations.fastapi import User, WebApp

app = Wakeful("sqlite:///wakeful.db")
ROLES = {"ada": "admin", "bob": "member"}


@app.cron("*/5 * * * *")
async def clean_up() -> str:
    return "nothing to clean up"


@app.function()
async def send_receipt(email: str) -> str:
    return f"sent to {email}"


def user_of(request: HTTPConnection) -> User | None:
    # An application checks a signature or looks the session up. It may use request.user or request.session.
    name = request.cookies.get("user", "")
    return User(name, ROLES[name]) if name in ROLES else None


web = WebApp(app, authenticate=user_of)
host = FastAPI(lifespan=web.lifespan)
host.mount("/wakeful", web)


@host.get("/login/{name}")
async def log_in(name: str, response: Response) -> str:
    if name not in ROLES:
        raise HTTPException(404, "nobody has this name")
    response.set_cookie("user", name, httponly=True, samesite="lax")
    return f"hello, {name}"


@host.post("/orders", status_code=201)
async def order(email: str) -> dict[str, str]:
    run = await app.enqueue(send_receipt, email)
    return {"run": run.id}
