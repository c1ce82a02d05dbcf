"""Errors about many things name a few of them, and say how many more there are."""

from __future__ import annotations

from lstm_lower.errors import few_of_each, some


def test_some() -> None:
    assert some([]) == "none"
    assert some(["a"]) == "a"
    assert some("abcde") == "a, b, c, d, e"
    assert some("abcdef") == "a, b, c, d and 2 more"
    assert some(range(9), 1) == "0 and 8 more"


def test_few_of_each() -> None:
    found = [("Qr", f"Qr '{number}': no rule") for number in range(9)] + [("Svd", "Svd 's': no rule")]
    assert few_of_each(found, 2).splitlines() == [
        "Qr '0': no rule",
        "Qr '1': no rule",
        "Qr: 7 more",
        "Svd 's': no rule",
    ]
    assert few_of_each(found[:3], 2).count("no rule") == 3
    assert few_of_each([]) == ""
