"""The report: whole data without a browser, and the page itself in a headless one, where one is installed."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import baracuda_registry as br
from baracuda_registry import cli
from baracuda_registry.report import assemble, gather
from baracuda_registry.report.benchmarks import default_files, read

TABLE = br.registry()
BROWSER = next(
    (p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None
)
RESULTS = {
    "environment": {"gpu": "NVIDIA H200", "date": "2026-12-01", "driver": 13000},
    "copy_bandwidth": 4.25e12,
    "rows": [
        {
            "op": "group_norm", "dtype": "bf16", "shape": [32, 320, 64, 64], "parameters": {"G": 32},
            "design": "some_design", "share": 0.82, "times_us": {"ours": {"median": 48.0}, "torch": {"median": 186.0}},
            "correct": True,
        },
        {
            "op": "group_norm", "dtype": "bf16", "shape": [2, 32], "parameters": {}, "design": "other", "share": 1.2,
            "times_us": {"ours": 10.0, "torch": 5.0, "rival": 20.0}, "correct": False, "unheard_of": [],
        },
        {"op": "group_norm", "dtype": "bf16", "times_us": {"torch": 5.0}},
    ],
}  # fmt: skip


CASES = {
    "format": 2,
    "runs": [
        {"id": "b", "date": "2026-12-02T01:00:00+00:00", "gpu": "NVIDIA H200", "copy_bandwidth": 4.3e12},
        {"id": "a", "date": "2026-12-01T01:00:00+00:00", "gpu": "NVIDIA H200", "copy_bandwidth": 4.2e12},
    ],
    "cases": [
        {
            "case": "lp_pool1d bf16 …", "run": "a", "op": "lp_pool1d", "dtype": "bf16", "shape": [4, 8, 64],
            "parameters": {"k": 2, "s": 2}, "design": "some", "share": 0.5, "times": {"median_us": 20.0}, "correct": True,
            "peers": {
                "torch": {"correct": True, "times": {"median_us": 60.0}},
                "liger": {"absent": "has no such operation"},
                "rival": {"correct": False, "times": {"median_us": 1.0}},
            },
        },
        {
            "op": "lp_pool1d", "dtype": "f32", "shape": [1, 1, 8], "tiny": True, "share": 0.01, "times": {"median_us": 2.0},
            "peers": {},
        },
    ],
    "failures": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("results") / "mine.json"
    path.write_text(json.dumps(RESULTS))
    return path


@pytest.fixture(scope="module")
def gathered(results: Path) -> tuple[dict[str, Any], list[str]]:
    few = [sku for sku in TABLE.skus() if sku.op.name in ("GROUP_NORM", "PER_GROUP", "LP_POOL1D_BACKWARD")]
    part = br.Registry([v for sku in few for v in TABLE.variants(sku)], TABLE.manifest)
    return gather(part, [br.Device.named("H200")], [read(results)], ["sm_90"])


@pytest.fixture(scope="module")
def page(gathered: tuple[dict[str, Any], list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(assemble(*gathered), encoding="utf-8")
    return path


def unpacked(text: str, name: str) -> Any:
    match = re.search(rf'<script id="{name}" type="text/plain">([^<]*)</script>', text)
    assert match is not None
    return json.loads(zlib.decompress(base64.b64decode(match[1])))


def test_data_is_whole(gathered: tuple[dict[str, Any], list[str]], page: Path) -> None:
    catalog, sources = gathered
    text = page.read_text(encoding="utf-8")
    assert unpacked(text, "catalog") == json.loads(json.dumps(catalog))
    packed = unpacked(text, "sources")
    assert ["\n".join(packed["lines"][line] for line in lines) for lines in packed["texts"]] == sources
    for row in catalog["variants"]:
        sku = catalog["skus"][row["sku"]]["id"]
        variant = TABLE.variant(f"{sku}/{row['design']}")
        assert row["summary"] == variant.summary
        assert len(row["constraints"]) == len(variant.constraints)
        if variant.source is not None:
            assert sources[row["source"]] == TABLE.source(variant)
    assert len(sources) == len(set(sources))
    types = {(sku["op"], sku["type"]) for sku in catalog["skus"]}
    assert len(catalog["maps"]) == len(types)


def test_page_asks_for_nothing_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!#)""", text)
    assert not re.search(r"https?://|@import|url\(", text)
    assert "fetch(" not in text


def test_resources_are_those_that_are_compiled() -> None:
    variant = TABLE.find(op="per_group", element="f32", aux_element="s8", backend="bespoke")[0]
    uses = TABLE.resources(variant, architecture="sm_90")
    part = br.Registry([variant], TABLE.manifest)
    catalog, _ = gather(part, [], [], ["sm_90", "sm_53"])
    assert [row[:3] for row in catalog["variants"][0]["resources"]] == [
        ["sm_90", use.role, use.used.registers] for use in uses
    ]


def test_command_writes_the_page(
    tmp_path: Path, results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from baracuda_registry.report import data

    monkeypatch.setattr(data, "_maps", lambda skus, devices, progress: [])
    output = tmp_path / "deep" / "r.html"
    assert cli.main(["report", "-o", str(output), "--bench", str(results), "--device", "A100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == output.stat().st_size < 2 << 20
    assert told["variants"] == len(TABLE)
    catalog = unpacked(output.read_text(encoding="utf-8"), "catalog")
    assert catalog["meta"]["devices"] == ["A100"]
    assert catalog["benchmarks"][0]["title"] == "mine, NVIDIA H200, 2026-12-01"


# Benchmark results --------------------------------------------------------------------------------------------------


def test_rows_without_our_time_are_left_out(results: Path) -> None:
    found = read(results)
    assert [row["case"] for row in found["rows"]] == ["32×320×64×64 G 32", "2×32"]
    assert found["rows"][0]["peers"] == {"torch": 186.0}
    assert found["rows"][1] == {
        "op": "group_norm", "dtype": "bf16", "case": "2×32", "design": "other", "us": 10.0, "share": 1.2,
        "peers": {"torch": 5.0, "rival": 20.0}, "correct": False,
    }  # fmt: skip


def test_cases_with_their_runs_are_read(tmp_path: Path) -> None:
    """Peers that are absent or wrong have no time, a tiny case no share, the title the latest run's date."""
    path = tmp_path / "new.json"
    path.write_text(json.dumps(CASES))
    found = read(path)
    assert found["title"] == "new, NVIDIA H200, 2026-12-02"
    assert found["copy_bandwidth"] == 4.3e12
    pool, tiny = found["rows"]
    assert (pool["case"], pool["us"], pool["share"], pool["peers"]) == (
        "4×8×64 k 2 s 2",
        20.0,
        0.5,
        {"torch": 60.0},
    )
    assert (tiny["us"], tiny["share"], tiny["peers"]) == (2.0, None, {})


@pytest.mark.parametrize(
    "text",
    [
        '{"cases": []}',
        '{"cases": 3, "runs": []}',
        "{",
        "[]",
        "{}",
        '{"rows": []}',
        '{"rows": [1, {"op": 2}]}',
        '{"rows": 3}',
    ],
)
def test_results_of_another_form_are_one_clear_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(br.InvalidProblem, match=r"r\.json are not of a form this version reads"):
        read(path)


def test_results_of_the_checkout_are_readable() -> None:
    assert default_files()
    assert any(read(path)["rows"] for path in default_files())


# In a browser -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield running
        running.close()


def _open(browser: Any, page: Path, **options: Any) -> Any:
    shown = browser.new_page(**options)
    shown.problems = []
    shown.on("console", lambda m: shown.problems.append(m.text) if m.type == "error" else None)
    shown.on("pageerror", lambda error: shown.problems.append(str(error)))
    shown.on(
        "request",
        lambda r: shown.problems.append(r.url) if not r.url.startswith(("file:", "blob:")) else None,
    )
    shown.goto(page.as_uri())
    shown.wait_for_selector("html[data-ready]", timeout=20000)
    return shown


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_page_shows_everything(
    browser: Any, page: Path, gathered: tuple[dict[str, Any], list[str]], scheme: str, width: int
) -> None:
    catalog, sources = gathered
    shown = _open(browser, page, viewport={"width": width, "height": 800}, color_scheme=scheme)
    try:
        assert shown.evaluate("document.documentElement.scrollWidth") <= width
        assert f"{len(catalog['variants'])} variants in {len(catalog['skus'])} SKUs" in shown.inner_text(
            "#count"
        )
        assert shown.locator("#coverage-table tbody tr").count() > 0
        assert shown.locator("#map tbody td").count() > 50
        assert shown.locator("figure").count() == 2
        assert "82 %" in shown.inner_text("#performance-body")
        assert "3.88 ×" in shown.inner_text("#performance-body")
        ink, paper = (
            shown.evaluate(f"getComputedStyle(document.body).{p}") for p in ("color", "backgroundColor")
        )
        assert _contrast(ink, paper) > 7
        shown.fill("#search", "lp_pool1d_backward f32 pinned_nothing")
        shown.wait_for_function("document.querySelector('#count').textContent.startsWith('0 variants')")
        shown.fill("#search", "per_group-f32-s8 bespoke")
        shown.wait_for_function("document.querySelectorAll('.link').length > 0")
        shown.locator(".link").first.click()
        shown.wait_for_selector("#drawer[open] pre code")
        source = shown.locator("#drawer pre[aria-label='CUDA source']").inner_text()
        assert source.strip() in {text.strip() for text in sources}
        assert shown.locator("#drawer pre .k").count() > 0
        assert shown.problems == []
    finally:
        shown.close()


def test_page_is_reachable_by_keyboard(browser: Any, page: Path) -> None:
    shown = _open(browser, page)
    try:
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.className") == "skip"
        seen = []
        for _ in range(12):
            shown.keyboard.press("Tab")
            seen.append(shown.evaluate("document.activeElement.id || document.activeElement.className"))
        assert "search" in seen
        assert "expand" in seen
        shown.keyboard.press("Enter")
        expanded = shown.evaluate("document.activeElement.getAttribute('aria-expanded')")
        assert expanded == "true"
        shown.keyboard.press("Tab")
        assert shown.evaluate("document.activeElement.className") == "link"
        shown.keyboard.press("Enter")
        shown.wait_for_selector("#drawer[open]")
        assert shown.evaluate("document.querySelector('#drawer').contains(document.activeElement)")
        assert "#v=" in shown.url
        shown.keyboard.press("Escape")
        shown.wait_for_selector("#drawer:not([open])", state="attached")
        assert shown.evaluate("document.activeElement.className") == "link"
    finally:
        shown.close()


def test_link_to_a_variant_opens_it(browser: Any, page: Path) -> None:
    variant = TABLE.find(op="per_group", element="f32", aux_element="s8", backend="bespoke")[0]
    shown = browser.new_page()
    try:
        shown.goto(f"{page.as_uri()}#v={variant.id.replace('/', '%2F')}")
        shown.wait_for_selector("#drawer[open]")
        assert variant.design in shown.inner_text("#drawer-title")
        assert variant.id in shown.inner_text("#drawer-body")
    finally:
        shown.close()


def test_page_unpacks_without_the_browsers_help(
    browser: Any, page: Path, gathered: tuple[dict[str, Any], list[str]]
) -> None:
    """Its own decoder, and on data of every kind of block: stored, fixed and dynamic codes."""
    shown = browser.new_page()
    try:
        shown.add_init_script("delete window.DecompressionStream")
        shown.goto(page.as_uri())
        shown.wait_for_selector("html[data-ready]", timeout=20000)
        assert shown.evaluate("unpack('sources').then((s) => s.texts.length)") == len(gathered[1])
        text = json.dumps(gathered[1][:1]).encode()
        for strategy in (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FIXED):
            for level in (0, 1, 9):
                packer = zlib.compressobj(level, zlib.DEFLATED, 15, 9, strategy)
                data = list(packer.compress(text) + packer.flush())
                plain = shown.evaluate("(d) => new TextDecoder().decode(inflate(new Uint8Array(d)))", data)
                assert plain == text.decode()
    finally:
        shown.close()


def test_damaged_page_says_so(browser: Any, page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(
        re.sub(r'(<script id="catalog" type="text/plain">).{40}', r"\1" + "A" * 40, text), encoding="utf-8"
    )
    shown = browser.new_page()
    try:
        shown.goto(broken.as_uri())
        shown.wait_for_selector("#failure:not([hidden])")
        assert "cannot be read" in shown.inner_text("#failure")
    finally:
        shown.close()


def _contrast(first: str, second: str) -> float:
    """WCAG's contrast ratio of two `rgb(r, g, b)` colours."""

    def luminance(text: str) -> float:
        channels = [int(number) / 255 for number in re.findall(r"\d+", text)[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)
