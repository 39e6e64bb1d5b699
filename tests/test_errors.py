"""Words of messages."""

from __future__ import annotations

import time

import pytest
from lines import names

from zkgroup.errors import did_you_mean, near

KNOWN = ["payments", "orders", "order-items", "slow-reader", "list-groups", "--property", "--store", "a", "b"]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("paymets", ["payments"]),
        ("paymentss", ["payments"]),
        ("pyaments", ["payments"]),
        ("Payments", ["payments"]),
        ("slo", ["slow-reader"]),
        ("lis", ["list-groups"]),
        ("ordes", ["orders"]),
        ("order", ["order-items", "orders"]),
        ("--sort", []),
        ("refunds", []),
        ("", []),
        ("c", []),
    ],
)
def test_what_is_meant(name: str, found: list[str]) -> None:
    """What it begins, and what is alike but for a letter or two."""
    assert near(name, KNOWN) == found
    advice = did_you_mean(name, KNOWN, "no")
    assert names(advice, *found) if found else advice == "no"


def test_a_name_that_is_spelt_well_is_not_meant() -> None:
    """A group that is in ZooKeeper is not in Kafka: that is no misspelling."""
    assert did_you_mean("orders", KNOWN, "no") == "no"


def test_tens_of_thousands_of_names_that_are_alike_are_no_wait() -> None:
    """Names that a console consumer makes up are the most that there are."""
    names = [f"console-consumer-{number:05}" for number in range(0, 100_000, 3)]
    start = time.process_time()
    assert near("consoel-consumer-00003", names)[0] == "console-consumer-00003"
    assert time.process_time() - start < 10
