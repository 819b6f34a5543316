"""Whatever a model or an endpoint says: a valid, grounded order, or one coded error."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fulfillment_cli.adapters.model import read_order
from fulfillment_cli.adapters.replies import read_completion
from fulfillment_cli.domain.errors import AnswerRefused, ModelError

TEXT = "Fulfillment request. SKU: SKU-731; quantity: 2; delivery address: Dock-North.\n"

SCRAPS = """SKU-731|731|SKU|2|２|٢|²|1|12|Dock-North|Dock|North|, | |\n|\r\n|:|;|.|"|{|}|\u202e
|\u200b|\ufeff|quantity: |delivery address: |to |9 Mill Lane, Cork|件|ß|-|_"""
scraps = st.sampled_from([*SCRAPS.split("|"), "|"])
texts = st.lists(scraps | st.text(max_size=5), max_size=25).map("".join)
facts = st.fixed_dictionaries(
    {
        "sku": scraps | st.text(max_size=8) | st.none(),
        "quantity": st.integers(-2, 120) | st.floats() | st.booleans() | st.text(max_size=2),
        "address": texts | st.none(),
    }
)
wrapped = st.sampled_from(["{}", "```json\n{}\n```", "<think>{{}}</think>{}", "Here: {}", "{}{}"])
answers = (
    st.text()
    | texts
    | facts.map(json.dumps)
    | st.tuples(wrapped, facts.map(json.dumps)).map(lambda pair: pair[0].replace("{}", pair[1]))
)


@settings(max_examples=400, deadline=None)
@given(content=answers, text=texts)
@example(content="\ud800", text=TEXT)
@example(content='{"sku": "\\ud800", "quantity": 2, "address": "\\udfff"}', text="\ud800 2")
@example(content="[" * 100_000, text=TEXT)
def test_whatever_a_model_says(content: str, text: str) -> None:
    try:
        order = read_order(content, text)
    except AnswerRefused:
        return
    assert order.sku in text
    assert order.address in text
    assert 1 <= order.quantity <= 100
    assert order.quantity in numbers(text)


@settings(max_examples=200, deadline=None)
@given(
    st.tuples(st.sampled_from(["SKU-7", "A_1", "900200"]), st.integers(1, 100)),
    st.sampled_from(["Dock-North", "9 Mill Lane, Cork", "Halle 4, Tor 2, 20457 Hamburg"]),
    st.data(),
)
def test_a_right_order_is_accepted_and_a_part_of_its_address_is_not(
    known: tuple[str, int], address: str, data: st.DataObject
) -> None:
    sku, quantity = known
    text = f"Fulfillment request. SKU: {sku}; quantity: {quantity}; delivery address: {address}."
    right = {"sku": sku, "quantity": quantity, "address": address}
    assert read_order(json.dumps(right), text).to_json() == right
    start = data.draw(st.integers(0, len(address) - 1))
    part = address[start : data.draw(st.integers(start + 1, len(address)))]
    if part.strip() != address:
        with pytest.raises(AnswerRefused):
            read_order(json.dumps(right | {"address": part}), text)


@settings(max_examples=300, deadline=None)
@given(
    st.binary()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "content", "usage", "error", "refusal"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=12,
    ).map(lambda value: json.dumps(value).encode())
)
def test_whatever_an_endpoint_sends(body: bytes) -> None:
    try:
        read_completion(body)
    except ModelError as error:
        assert error.code == "MODEL_INVALID_RESPONSE"


def numbers(text: str) -> set[int]:
    """The numbers in a text, read without the product's rules."""
    found, digits = set(), ""
    for character in text + " ":
        if character.isdecimal():
            digits += character
        elif digits:
            found.add(int(digits))
            digits = ""
    return found
