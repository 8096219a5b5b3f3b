"""The manifest: round trip, damage, and where it is looked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baracuda_registry import ManifestError, Registry, registry
from baracuda_registry import manifest as manifest_module
from baracuda_registry.manifest import Manifest, Variant


@pytest.fixture(scope="module")
def table() -> Manifest:
    return manifest_module.load()


def test_round_trip(table: Manifest) -> None:
    again = Manifest.parse(table.to_json(), table.root)
    assert again.variants == table.variants
    assert dict(again.sources) == dict(table.sources)
    assert again.holes == table.holes
    assert again.to_json() == table.to_json() == (table.root / "manifest.json").read_text()


def test_every_record_round_trips(table: Manifest) -> None:
    for variant in table.variants:
        assert Variant.from_json(json.loads(json.dumps(variant.to_json()))) == variant
        assert variant.id == f"{variant.sku}/{variant.design}"


def test_host_variant_for_every_problem_and_last(table: Manifest) -> None:
    reg = Registry(table.variants, table)
    for sku in reg.skus():
        serving = reg.serving(sku.category, sku.op, sku.element, sku.aux_element)
        assert serving[-1].function is not None
        assert sum(v.function is not None for v in serving) == 1


def test_narrow_form_of_every_vector_design(table: Manifest) -> None:
    """A misaligned pointer must find a variant: each problem has one without demands on alignment or shape."""
    reg = registry()
    for variant in table.variants:
        if variant.alignment > 1:
            serving = reg.serving(
                variant.sku.category, variant.sku.op, variant.sku.element, variant.sku.aux_element
            )
            assert any(v.alignment <= v.sku.element.itemsize and v.source for v in serving), variant.id


def test_sources_are_all_used(table: Manifest) -> None:
    assert {v.source for v in table.variants if v.source} == set(table.sources)


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "",
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 99', 1),
        lambda text: text.replace('"design"', '"dessign"', 1),
        lambda text: text.replace("-none-none-", "-nun-none-", 1),
        lambda text: text.replace('.cu": "', '.cux": "', 1),
        lambda text: text.replace('"rank"', '"rang"', 1),
    ],
)
def test_damage_is_refused_whole(
    table: Manifest, damage: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = damage(table.to_json())  # type: ignore[operator]
    assert text != table.to_json()
    (tmp_path / "manifest.json").write_text(text)
    monkeypatch.setenv("BARACUDA_GENERATED_DIR", str(tmp_path))
    with pytest.raises((ManifestError, ValueError)) as caught:
        manifest_module.load()
    assert "manifest.json" in str(caught.value) or "SKU" in str(caught.value)


def test_missing_manifest_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_GENERATED_DIR", str(tmp_path))
    with pytest.raises(ManifestError, match="make generate"):
        manifest_module.load()


def test_not_text(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="cannot be read"):
        manifest_module.load(tmp_path)
