"""The paper's programs, most with declared state and with their own fork and join.

Each comes with generated input of any size, and a reader of files; :data:`flumina.apps.registry.APPS` has them by name.
"""

from flumina.apps.fraud import Fraud, FraudByHand
from flumina.apps.key_counter import KeyCounter, KeyCounterByHand, KeyCounterMap
from flumina.apps.outliers import Outliers
from flumina.apps.page_views import PageViews, PageViewsByHand
from flumina.apps.smart_home import SmartHome, SmartHomeByHand
from flumina.apps.value_barrier import ValueBarrier, ValueBarrierByHand

__all__ = [
    "Fraud",
    "FraudByHand",
    "KeyCounter",
    "KeyCounterByHand",
    "KeyCounterMap",
    "Outliers",
    "PageViews",
    "PageViewsByHand",
    "SmartHome",
    "SmartHomeByHand",
    "ValueBarrier",
    "ValueBarrierByHand",
]
