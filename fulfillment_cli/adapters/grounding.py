"""Does an order stand in the text it was extracted from? A model's word alone is never enough.

* The sku stands in the text as a whole token: ``731`` is not in ``SKU-731``.
* The quantity stands there as a number of its own, outside the sku and the address.
* The address stands there as one run, white space aside, and is *whole*: it starts and ends where
  an address can start and end on its line, so that half an address is not taken for one.

Every doubt is a refusal (``ORDER_NOT_GROUNDED``): a refused order is asked again, a wrong one is
shipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fulfillment_cli.domain.errors import AnswerRefused
from fulfillment_cli.domain.order import Order

_TOKEN = re.compile(r"[A-Za-z0-9_-]+")

# A number of its own: no letter, digit, sign, separator or currency touches it, except what
# counts things ("2x", "x2", "5pcs"). \d takes the decimal digits of every script, as int() does;
# superscripts are not among them. CJK letters may touch: "2个" is a number and a counter.
_LATIN = r"A-Za-z\u00aa-\u02af"
_NUMBER = re.compile(
    rf"(?<![{_LATIN}\d_.,:/#$€£¥+\-])(?:[xX×])?(\d+)"
    rf"(?:(?:[xX]|pcs|pc|ea|stk|Stk)(?![{_LATIN}\d_-])|(?![{_LATIN}\d_%°/-]|[.,:]\d))"
)
_NUMBER_AFTER_SEPARATOR = re.compile(rf"(?<=[,:=|/+-])\s*(\d+)(?![{_LATIN}\d_%°/-]|[.,:]\d)")

# What can stand before an address on its line.
_OPENS = "\n:=|;\"'“„«(<[{>\t：；，「『（*`"
_LEADS = re.compile(
    r"(?:^|[\s,.;:(])(?:to|at|into|address|addr|destination|an|nach|zu|ans|zur|zum|in|adresse"
    r"|à|a|au|aux|vers|chez|al|en|dirección|direccion|indirizzo|para|naar|do|na|til|till|is|ist|est"
    r"|es|goes to|ship to|deliver to)$",
    re.IGNORECASE,
)
_CJK_LEADS = "到至往寄送给址是へに宛先은는로"

# What can stand behind it.
_CLOSES = "\n;|\"'”“»)>]}\t；。」』）！!?？*`"
_TRAILS = re.compile(
    r"^[\s,，、]*(?:please|thanks|thank|thx|by|before|until|till|asap|on|for|attn|no later|if|and"
    r"|as|with|bitte|danke|bis|am|vor|mit|und|merci|avant|s'il|svp|le|por favor|gracias|antes|para"
    r"|y|per favore|grazie|entro|prego|obrigado|dank|graag|tak|cheers|regards|when|this|today"
    r"|tomorrow|in time|we|i|the order|qty|quantity|sku|item"
    r"|请|谢谢|お願い|に|へ|まで|です|로|으로)"
    r"(?![A-Za-z])",
    re.IGNORECASE,
)


def sku_candidates(text: str) -> list[str]:
    """Tokens of the text that can be a sku, in order, each once."""
    found: dict[str, None] = {}
    for match in _TOKEN.finditer(text):
        token = match.group()
        for candidate in (token, token.strip("-_")):
            if 1 <= len(candidate) <= 80:
                found.setdefault(candidate)
    return list(found)


def quantity_candidates(text: str) -> list[int]:
    """Numbers from 1 to 100 that stand in the text on their own, in order, each once."""
    found = dict.fromkeys(number for number, _, _ in _numbers(text) if 1 <= number <= 100)
    return list(found)


def ground(order: Order, text: str) -> Order:
    """Return the order if it stands in the text.

    Raises:
        AnswerRefused: ``ORDER_NOT_GROUNDED``; the message names what does not stand there.
    """
    spans = list(_whole_addresses(order, text))
    if not spans:
        raise _refused(f"the address {order.address!r} is not one whole run of the text")
    for start, end in spans:
        outside = text[:start] + "\n" + text[end:]
        if order.sku in sku_candidates(outside) and order.quantity in quantity_candidates(outside):
            return order
    if order.sku not in sku_candidates(text):
        raise _refused(f"the sku {order.sku!r} does not stand in the text as a whole token")
    raise _refused(f"the quantity {order.quantity} does not stand in the text on its own")


def _refused(reason: str) -> AnswerRefused:
    return AnswerRefused(f"Not grounded: {reason}.", code="ORDER_NOT_GROUNDED")


def _numbers(text: str) -> Iterator[tuple[int, int, int]]:
    for pattern in (_NUMBER, _NUMBER_AFTER_SEPARATOR):
        for match in pattern.finditer(text):
            # Longer ones are no quantities, and int() would take its time with them.
            if len(match.group(1)) <= 6 and not _inside_token(text, *match.span(1)):
                yield int(match.group(1)), match.start(1), match.end(1)


def _inside_token(text: str, start: int, end: int) -> bool:
    """Whether the number is a piece of something longer: a date, a time, a decimal, a sku."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    return bool(re.search(r"(?:\d[.,:/-]|[A-Za-z0-9_]-)$", before) and before[-1:] not in ",") or (
        re.match(r"[.:/-]\d", after) is not None
    )


def _whole_addresses(order: Order, text: str) -> Iterator[tuple[int, int]]:
    words = order.address.split()
    if not words:
        return
    pattern = re.compile(r"\s+".join(re.escape(word) for word in words))
    for match in pattern.finditer(text):
        if _opens(text[: match.start()], order) and _closes(text[match.end() :], order):
            yield match.span()


def _opens(before: str, order: Order) -> bool:
    """Whether an address can start behind this."""
    stripped = before.rstrip(" \u3000\u00a0\r")
    if not stripped or stripped[-1] in _OPENS or stripped[-1] in _CJK_LEADS:
        return True
    if stripped[-1] in ",->–—":
        # A list of fields: the one before this is the sku or the quantity.
        field = re.split(r"[,;|\n\t]|->|–|—", stripped.rstrip(",->–— "))[-1].strip().strip("\"'")
        names = {order.sku, str(order.quantity), f"{order.quantity}x"}
        return stripped[-1] in ">–—" or field in names or not field
    return len(stripped) < len(before) and _LEADS.search(stripped) is not None


def _closes(after: str, order: Order) -> bool:
    """Whether an address can end before this."""
    stripped = after.lstrip(" \u3000\u00a0\r")
    if not stripped or stripped[0] in _CLOSES:
        return True
    if re.match(r"[.…](?:\s|$|[\"')])", stripped):
        return True
    if _TRAILS.match(after) and not re.match(r"[A-Za-z0-9_-]", after):
        return True
    # A list of fields: the next one is the sku or the quantity.
    field = re.match(r"[,，]\s*[\"']?([^,;|\n\t\"']*)", stripped)
    return field is not None and field.group(1).strip() in {order.sku, str(order.quantity), ""}
