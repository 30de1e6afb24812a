"""The request of a page: the caller, the workspace, and how a page is rendered.

A page is a GET route of `page_router()` that takes a `PageDep`. It reads services and returns
`page.render(...)`. Errors of the services become HTML pages; a request without a session goes to `/sign-in`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Final, cast
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.responses import RedirectResponse, Response

from wakeful.api.http.compression import may_compress
from wakeful.api.http.dependencies import current_principal, services_of
from wakeful.api.http.problems import status_of
from wakeful.api.http.responses import PAGE_HEADERS
from wakeful.api.http.root_path import href
from wakeful.api.http.session_cookie import masked, session_token
from wakeful.dashboard import formats
from wakeful.dashboard.regions import RegionCache, region_key, region_names, wanted_position
from wakeful.dashboard.render import render_page
from wakeful.errors import Unauthenticated, WakefulError
from wakeful.job.job import JobRecord
from wakeful.service.auth.access import MAY, Action, Principal
from wakeful.service.rights import Rights
from wakeful.service.services import Services

#: The cookie with the theme; without it, the browser decides.
THEME: Final = "wakeful_theme"
THEMES: Final = ("light", "dark")
#: The cookie with the time zone of the browser (time.js).
ZONE: Final = "wakeful_tz"
#: The header that asks for regions of a page instead of the whole page, with commas.
REGION: Final = "x-wakeful-region"
#: The header with the number of the last event that the page has received, or `now` after its own change.
AFTER: Final = "x-wakeful-after"
HOME: Final = "/"
#: Browsers read `//host` and `/\\host` as another host, and drop tabs and line breaks.
_LOCAL: Final = re.compile(r"/(?![/\\])[!-\[\]-~]*")
#: an authorization request of an assistant is long
_LONGEST_PATH: Final = 8_000


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page of a workspace."""

    request: Request
    services: Services
    principal: Principal
    workspace: str
    #: the current time of the database
    now_ms: int
    #: the token that unsafe requests of this session send
    csrf: str = field(default="", repr=False)
    #: the number of the last event before the page was read; the page receives those after it
    position: int = 0

    @property
    def by_session(self) -> bool:
        """Whether the caller has signed in here, and not at the host application."""
        return self.principal.actor.startswith(("key:", "person:"))

    @property
    def theme(self) -> str | None:
        """The theme that the user chose; None: that of the browser."""
        return chosen_theme(self.request)

    @property
    def tz(self) -> str:
        """The time zone of the viewer; UTC before the browser has named it."""
        return formats.known_zone(self.request.cookies.get(ZONE))

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions that the browser asks for; empty: the whole page."""
        return region_names(self.request.headers.get(REGION))

    def wants(self, *regions: str) -> bool:
        """Return whether one of these regions is rendered: a page need not read what is not shown."""
        return not self.regions or not set(regions).isdisjoint(self.regions)

    @property
    def query(self) -> dict[str, str]:
        """The query parameters that are not empty."""
        return {key: value for key, value in self.request.query_params.items() if value}

    def may(self, action: Action) -> bool:
        """Return whether the role of the caller allows the action. The services check it again."""
        if action == "operate" and self.principal.workspace is not None:
            return False
        return self.principal.role in MAY[action]

    async def rights(self, jobs: Iterable[JobRecord]) -> Rights:
        """Return what the caller may do with these jobs."""
        return await self.services.rights.load(self.principal, self.workspace, (job.agent for job in jobs))

    def url(self, *parts: str, **query: object) -> str:
        """Return the address of a page of the workspace: `page.url("runs", run_id)`."""
        return _address(href("/workspaces"), self.workspace, parts, query)

    def api(self, *parts: str, **query: object) -> str:
        """Return the address of a path of the API in the workspace: `page.api("runs", run_id, "stop")`."""
        return _address(href("/api/workspaces"), self.workspace, parts, query)

    def here(self, **query: object) -> str:
        """Return the address of this page with these query parameters changed; None removes one."""
        changed = {**self.query, **query}
        given = {key: str(value) for key, value in changed.items() if value is not None and value != ""}
        return self.request.url.path + (f"?{urlencode(given)}" if given else "")

    def render(
        self, template: str, *, title: str, active: str = "", status: int = 200, **values: Any
    ) -> Response:
        """Return the page. `active` is the entry of the navigation that it belongs to."""
        given = {"page": self, "title": title, "active": active, **values}
        return render_page(template, given, status, self.regions)


def chosen_theme(request: Request) -> str | None:
    """Return the theme that the user chose; None: that of the browser."""
    chosen = request.cookies.get(THEME)
    return chosen if chosen in THEMES else None


@lru_cache(maxsize=2048)
def _quote(part: str) -> str:
    return quote(part, safe="")


def _address(root: str, workspace: str, parts: tuple[str, ...], query: dict[str, object]) -> str:
    path = "/".join(map(_quote, (workspace, *parts)))
    given = {key: str(value) for key, value in query.items() if value is not None and value != ""}
    slash = "" if parts else "/"
    return f"{root}/{path}{slash}" + (f"?{urlencode(given)}" if given else "")


async def _page(request: Request, workspace: str) -> PageRequest:
    services = services_of(request)
    principal = await current_principal(request)
    await services.accounts.authorize(principal, "read", workspace)
    csrf = masked(str(getattr(request.state, "csrf", "")))
    # Before anything that the page shows is read, so that no change between is missed.
    position = 0 if REGION in request.headers else await services.live.position()
    return PageRequest(request, services, principal, workspace, services.now_ms(), csrf, position)


#: The request of a page.
PageDep = Annotated[PageRequest, Depends(_page)]


class PageRoute(APIRoute):
    """A route whose errors are HTML pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, with the errors of the services as pages."""
        handle = super().get_route_handler()

        async def handle_page(request: Request) -> Response:
            response = await respond(request)
            for name, value in PAGE_HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        async def respond(request: Request) -> Response:
            try:
                header = request.headers.get(REGION)
                if header is None or request.method != "GET" or "workspace" not in request.path_params:
                    return await handle(request)
                principal = await current_principal(request)
                url = request.scope["path"] + "?" + request.scope["query_string"].decode("latin-1")
                zone = formats.known_zone(request.cookies.get(ZONE))
                return await _regions(request).get(
                    region_key(principal, url, header, zone),
                    lambda: handle(request),
                    position=await services_of(request).live.position(),
                    after=wanted_position(request.headers.get(AFTER)),
                    gzip=may_compress(request.headers),
                )
            except Unauthenticated as error:
                return _sign_in(request, error)
            except WakefulError as error:
                return error_page(status_of(error), error.message)
            except RequestValidationError:
                return error_page(
                    422, "a parameter of this address is not valid; open the page from the menu"
                )

        return handle_page


def _regions(request: Request) -> RegionCache:
    """Return the cache of the app."""
    state = request.app.state
    if not hasattr(state, "regions"):
        state.regions = RegionCache()
    return cast(RegionCache, state.regions)


def page_router() -> APIRouter:
    """Return a router for pages of a workspace."""
    return APIRouter(prefix="/workspaces/{workspace}", route_class=PageRoute, include_in_schema=False)


def _sign_in(request: Request, error: Unauthenticated) -> Response:
    """Send the browser to the sign-in page; a region gets the status, so that its page reloads.

    A link on another site opens a page without the cookie, because it is `SameSite=Strict`. Such a request
    gets a page that loads the address again, now from this site and with the cookie.
    """
    if request.headers.get(REGION):
        return Response(error.message, 401, media_type="text/plain")
    back = requested_path(request)
    if request.headers.get("sec-fetch-site") == "cross-site" and session_token(request) is None:
        return render_page("load_again.html", {"title": "Wakeful", "address": back})
    return RedirectResponse(f"{href('/sign-in')}?{urlencode({'next': back})}", 303)


def error_page(status: int, message: str) -> Response:
    """Return an error as a page."""
    return render_page("error.html", {"title": _TITLES.get(status, "Error"), "message": message}, status)


_TITLES: Final = {
    403: "Not allowed",
    404: "Not found",
    422: "Not valid",
    429: "Too many requests",
    503: "Unavailable",
}


def local_path(text: str | None) -> str:
    """Return the text if it is a path of this server, else the home page.

    >>> local_path("/workspaces/default/jobs?state=paused"), local_path("//evil.example"), local_path("x")
    ('/workspaces/default/jobs?state=paused', '/', '/')
    """
    if text is None or len(text) > _LONGEST_PATH or not _LOCAL.fullmatch(text):
        return href(HOME)
    return text


def requested_path(request: Request) -> str:
    """Return the path and query of a request, as the browser sent them."""
    raw = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope.get("query_string", b"")
    return local_path((raw + (b"?" + query if query else b"")).decode("latin-1"))
