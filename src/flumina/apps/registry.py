"""List the programs by name, for commands."""

from __future__ import annotations

from flumina.apps import fraud, key_counter, outliers, page_views, smart_home, value_barrier
from flumina.apps.app import App
from flumina.errors import UsageError

APPS: dict[str, App] = {
    module.APP.name: module.APP for module in (key_counter, value_barrier, page_views, fraud, outliers, smart_home)
}


def find_app(name: str) -> App:
    """Return the program of this name.

    >>> find_app("fraud").program.__name__
    'Fraud'
    """
    if name not in APPS:
        own = "your own is called module:Program or path/to/file.py:Program"
        raise UsageError("NO_APP", f"there is no program called {name!r}", hint=f"there are {', '.join(APPS)}; {own}")
    return APPS[name]
