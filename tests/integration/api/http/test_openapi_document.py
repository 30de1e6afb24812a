"""The OpenAPI document describes every path and every field."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape

from tests.integration.conftest import on_one_store
from tests.support.api_client import ApiClient
from tests.support.openapi import openapi_document
from wakeful.api.http.schemas import SCHEMAS
from wakeful.document import Defaults, read_definition
from wakeful.document.definition import IGNORED, NAMES
from wakeful.job.job import JobRecord
from wakeful.service.auth.access import LOCAL
from wakeful.service.serializers import serialize_job


def test_every_operation_is_documented():
    for path, methods in openapi_document()["paths"].items():
        for method, operation in methods.items():
            where = (method, path)
            assert operation["summary"], where
            assert operation["description"], where
            assert operation["tags"], where
            if path.startswith("/api"):
                assert operation["security"] == [{"bearer": []}], where
                assert {"400", "401", "403", "404", "503"} <= operation["responses"].keys(), where
            if "requestBody" in operation:
                contents = operation["requestBody"]["content"].values()
                assert all("example" in content for content in contents), where
                assert {"413", "422"} <= operation["responses"].keys(), where


def test_every_referenced_schema_exists_and_every_schema_is_referenced():
    named: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("$ref"), str):
                named.add(value["$ref"].removeprefix("#/components/schemas/"))
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(openapi_document())
    assert named == openapi_document()["components"]["schemas"].keys()


def test_the_job_document_schema_has_every_accepted_field():
    taken = SCHEMAS["JobDocument"]["properties"].keys()
    assert NAMES.keys() | IGNORED == taken


def test_the_job_schema_has_every_returned_field():
    definition = read_definition({"name": "a", "schedule": "@daily"}, now_ms=0, defaults=Defaults())
    job = JobRecord("id", "default", "default", definition, True, 0, 0, 0, 0, 0)
    schema = SCHEMAS["Job"]
    assert set(schema["required"]) <= serialize_job(LOCAL, job).keys() <= schema["properties"].keys()


@on_one_store
async def test_the_document_and_its_page_need_no_key(ask: ApiClient):
    anonymous = ask.with_key(None)
    assert (await anonymous("GET", "/openapi.json")).body["info"]["title"] == "Wakeful"
    assert "Wakeful HTTP API" in (await anonymous("GET", "/docs")).body


@on_one_store
async def test_the_page_shows_every_path_and_schema_without_external_resources(ask: ApiClient):
    reply = await ask("GET", "/docs")
    whole = unescape(re.sub("<[^>]*>", "", reply.body))
    for path, verbs in openapi_document()["paths"].items():
        for verb, operation in verbs.items():
            assert f"{verb.upper()}{path}" in whole
            assert operation["summary"] in whole
    anchors = set(re.findall(r'id="([^"]+)"', reply.body))
    linked = set(re.findall(r'href="#([^"]+)"', reply.body))
    assert linked <= anchors
    assert {f"schema-{name.lower()}" for name in openapi_document()["components"]["schemas"]} <= anchors
    assert not re.search(r"<script|<link|<img|src=|@import|url\(|style=", reply.body)
    assert re.findall(r'href="([^#][^"]*)"', reply.body) == ["openapi.json"]
    (style,) = re.findall(r"<style>(.*)</style>", reply.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = reply.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'")
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["x-frame-options"] == "DENY"
