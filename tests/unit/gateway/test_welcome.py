"""The first page and the page of the interface, as programs and browsers get them."""

import re
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from anabranch.gateway.http.openapi import TAGS
from anabranch.gateway.http.routes import docs_page
from anabranch.gateway.http.routes.welcome import LINKS, address_of, prefers_html
from anabranch.gateway.settings import Settings
from kit.gateway_bench import gateway

BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
LOADING = {"src", "href", "srcset", "data", "action", "poster"}


class Addresses(HTMLParser):
    """Every address that a page names, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if name in LOADING and value]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("path", ["/", "/v1"])
async def test_a_program_learns_what_answers_and_every_link_leads_somewhere(path: str) -> None:
    async with gateway() as g:
        answer = await g.http.get(path)
        document = answer.json()
        followed = {
            link: (await g.http.get(link)).status_code for link in document["links"].values()
        }

    assert answer.headers["content-type"] == "application/json"
    assert set(document) == {"name", "version", "description", "links"}
    assert document["name"] == "Anabranch"
    assert {"/docs", "/openapi.json", "/v1", "/healthz", "/metrics"} <= followed.keys()
    assert set(followed.values()) == {200}


async def test_a_browser_gets_a_page_with_the_address_that_it_used() -> None:
    async with gateway() as g:
        answer = await g.http.get("/", headers={**BROWSER, "host": "streams.example:8081"})
    page = Addresses(answer.text)

    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["vary"] == "accept"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert page.text.count("curl ") == page.text.count("http://streams.example:8081/v1/") == 4
    assert {f".{path}" for path, _ in LINKS.values()} <= set(page.found)
    assert all(not urlsplit(address).netloc for address in page.found)


@pytest.mark.parametrize(
    "host",
    ["<script>alert(1)</script>", "a';rm -rf .;'", "$(reboot)", "a b", 'x"y', "a/b", "", "a:b"],
)
async def test_a_host_that_is_not_one_enters_no_page(host: str) -> None:
    async with gateway(Settings(bind="127.0.0.1:8099")) as g:
        answer = await g.http.get("/", headers={**BROWSER, "host": host})

    assert not host or f"http://{host}" not in Addresses(answer.text).text
    assert "http://127.0.0.1:8099/v1/scopes" in answer.text
    assert "alert" not in answer.text


def test_names_and_addresses_of_either_kind_are_hosts() -> None:
    for host in ("localhost", "my_gateway:8080", "10.0.0.1:80", "[::1]:8080", "[fe80::1]"):
        assert address_of("http", host, "x") == f"http://{host}"


@pytest.mark.parametrize(
    ("accept", "html"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("image/png", False),
        ("application/json, text/html", False),
        ("text/html", True),
        ("Text/HTML;q=0.9, */*", True),
        (BROWSER["accept"], True),
    ],
)
def test_a_page_is_for_callers_that_name_html_first(accept: str, html: bool) -> None:
    assert prefers_html(accept) is html


async def test_the_page_of_the_interface_loads_nothing_from_another_host() -> None:
    async with gateway() as g:
        page = await g.http.get("/docs", headers=BROWSER)
        addresses = Addresses(page.text).found
        loaded = {address: await g.http.get(f"/{address}") for address in addresses}
    policy_parts = page.headers["content-security-policy"].split("; ")
    policy = dict(part.split(" ", 1) for part in policy_parts)

    assert page.status_code == 200
    assert len(addresses) == 5
    assert all(re.fullmatch(r"[a-z][a-z./-]*", address) for address in addresses)
    assert {answer.status_code for answer in loaded.values()} == {200}
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    sources = {source for text in policy.values() for source in text.split()}
    assert sources == {"'none'", "'self'", "'unsafe-inline'", "data:"}
    start = loaded["docs/start.js"].text
    assert re.findall(r'url: "(.*)"', start) == ["openapi.json"]
    assert re.search(r"^ +validatorUrl: null,$", start, re.MULTILINE)
    assert "<script>" not in page.text


async def test_files_of_the_page_have_their_types_and_no_other_file_is_served() -> None:
    async with gateway() as g:
        served = {**docs_page.BUNDLED, **docs_page.OWN}
        for name, media_type in served.items():
            answer = await g.http.get(f"/docs/{name}")
            assert answer.headers["content-type"].startswith(media_type)
            assert answer.headers["x-content-type-options"] == "nosniff"
        for name in ("core.py", "docs.html", "..%2fcore.py", "%2e%2e"):
            refused = await g.http.get(f"/docs/{name}")
            assert (refused.status_code, refused.json()["code"]) == (404, "not-found")


async def test_every_route_belongs_to_a_described_group() -> None:
    async with gateway() as g:
        document = (await g.http.get("/openapi.json")).json()
    operations = [each for item in document["paths"].values() for each in item.values()]
    used = {tag for operation in operations for tag in operation["tags"]}

    assert used == set(TAGS)
    assert [tag["name"] for tag in document["tags"]] == list(TAGS)
    assert {"/", "/v1", "/docs", "/docs/{asset}"} <= document["paths"].keys()
