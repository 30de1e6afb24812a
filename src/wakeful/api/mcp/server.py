"""The MCP server: one tool, two resources and a prompt, over the scheduler of each request."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    PaginatedRequestParams,
    Prompt,
    PromptMessage,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

from wakeful.errors import WakefulError
from wakeful.service.cron_tool.port import Scheduler
from wakeful.service.cron_tool.texts import ABOUT, ARGUMENTS, CONTENT, INSTRUCTIONS, SCHEDULE_WELL
from wakeful.service.cron_tool.tool import call, listed, recent
from wakeful.values.package import VERSION

Context = ServerRequestContext[Any, Any]

TOOL: Final = "cron"
PROMPT: Final = "schedule-well"
#: The metadata key with the address of the conversation: `{"channel": …, "to": …}`.
CONTEXT: Final = "wakeful/context"
_JSON: Final = "application/json"
_RESOURCES: Final = {
    "wakeful://jobs": ("jobs", "Your jobs, and when each fires next", listed),
    "wakeful://runs": ("runs", "Your runs, newest first", recent),
}


def make_server(scheduler_of: Callable[[Context], Scheduler]) -> Server[Any]:
    """Return a server whose requests use the scheduler that `scheduler_of` returns."""

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        tool = Tool(
            name=TOOL,
            title="Schedule work",
            description=ABOUT,
            input_schema=cast(dict[str, Any], ARGUMENTS),
            output_schema=cast(dict[str, Any], CONTENT),
            annotations=ToolAnnotations(destructive_hint=True, open_world_hint=False),
        )
        return ListToolsResult(tools=[tool])

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult:
        if params.name != TOOL:
            raise MCPError(INVALID_PARAMS, f"there is no tool '{params.name[:64]}'; there is '{TOOL}'")
        meta = (cast(Mapping[str, object], ctx.meta) if ctx.meta else {}).get(CONTEXT)
        result = await call(
            scheduler_of(ctx), params.arguments or {}, meta if isinstance(meta, Mapping) else None
        )
        return CallToolResult(
            content=[TextContent(text=result.text)],
            structured_content=result.content,
            is_error=result.is_error,
        )

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(
            resources=[
                Resource(uri=uri, name=name, description=about, mime_type=_JSON)
                for uri, (name, about, _) in _RESOURCES.items()
            ]
        )

    async def list_resource_templates(
        ctx: Context, params: PaginatedRequestParams | None
    ) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        found = _RESOURCES.get(str(params.uri).rstrip("/"))
        if found is None:
            raise MCPError(
                INVALID_PARAMS,
                f"there is no resource {str(params.uri)[:64]}; there are {', '.join(_RESOURCES)}",
            )
        try:
            content = await found[2](scheduler_of(ctx))
        except WakefulError as error:
            raise MCPError(INVALID_PARAMS, error.message, {"code": error.code}) from error
        text = json.dumps(content, ensure_ascii=False)
        return ReadResourceResult(
            contents=[TextResourceContents(uri=str(params.uri), mime_type=_JSON, text=text)]
        )

    async def list_prompts(ctx: Context, params: PaginatedRequestParams | None) -> ListPromptsResult:
        return ListPromptsResult(prompts=[Prompt(name=PROMPT, description="How to schedule work well")])

    async def get_prompt(ctx: Context, params: GetPromptRequestParams) -> GetPromptResult:
        if params.name != PROMPT:
            raise MCPError(INVALID_PARAMS, f"there is no prompt '{params.name[:64]}'; there is '{PROMPT}'")
        message = PromptMessage(role="user", content=TextContent(text=SCHEDULE_WELL))
        return GetPromptResult(description="How to schedule work well", messages=[message])

    return Server(
        "wakeful",
        version=VERSION,
        title="Wakeful",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_resource_templates,
        on_read_resource=read_resource,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )
