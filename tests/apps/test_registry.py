import pytest

import flumina as fl
from flumina import apps
from flumina.apps.registry import APPS, find_app


def test_names() -> None:
    assert list(APPS) == ["key-counter", "value-barrier", "page-views", "fraud", "outliers", "smart-home"]
    assert find_app("page-views") is APPS["page-views"]
    programs = {p for app in APPS.values() for p in (app.program, app.by_hand) if p is not None}
    assert programs | {apps.KeyCounterMap} == {getattr(apps, name) for name in apps.__all__}


def test_unknown_names() -> None:
    with pytest.raises(fl.UsageError, match=r"no program called 'pages'(?s:.*)key-counter, value-barrier"):
        find_app("pages")
