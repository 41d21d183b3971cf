"""The paper's programs in the form that obeys the laws, each with declared state and with its own fork and join."""

from flumina.apps.fraud import Fraud, FraudByHand
from flumina.apps.key_counter import KeyCounter, KeyCounterByHand, KeyCounterMap
from flumina.apps.page_views import PageViews, PageViewsByHand
from flumina.apps.value_barrier import ValueBarrier, ValueBarrierByHand

__all__ = [
    "Fraud",
    "FraudByHand",
    "KeyCounter",
    "KeyCounterByHand",
    "KeyCounterMap",
    "PageViews",
    "PageViewsByHand",
    "ValueBarrier",
    "ValueBarrierByHand",
]
