"""Which of a text's tokens can be meant as the sku and the quantity, by labels and shape.

That a fact stands in the text does not yet make it the right one: an order number is a token, a
date has a number, and a hostile line can name another article. Where the text itself does not
decide between two readings, the answer is refused: a person can send the order again, a wrong
parcel is gone. These rules see labels and shapes; they know no article and no language beyond
the labels below.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Span = tuple[int, int]

_SKU_LABEL = re.compile(
    r"(?:\bsku|\bitem(?: (?:no|number|code|id))?|\barticle(?: (?:no|number|code))?|\bartikel(?:-?nr"
    r"|nummer)?|\bart\.?-?(?:nr|no)|\bpart(?: (?:no|number))?|\bproduct(?: (?:code|id|no))?"
    r"|\bproduit|\bprodukt|\bréf(?:érence)?|\bartículo|\bcódigo|\bcodice|\barticolo|\bproduto"
    r"|\bартикул|货号|商品(?:编号|コード|番号)?|型号|品番|品目|رمز المنتج)"
    r"\.?[\"'”]?\s*(?:[:：=#|>]|is|ist|est|es|は)?\s*[\"'“<]?$",
    re.IGNORECASE,
)

_OTHER_LABEL = re.compile(
    r"(?:\border|\bpo|\bp\.o\.|\binvoice|\bref(?:erence)?|\bticket|\bcustomer|\baccount|\bcase|\btel"
    r"|\bphone|\bmobile|\bfax|\bvat|\bquote|\bbestell(?:ung|nummer)?|\bauftrag|\brechnung|\bkunde"
    r"|\bcommande|\bpedido|\bordine|订单号?|注文番号|電話|电话)"
    r"(?: ?(?:no|nr|number|id|n°|code))?\.?\s*[:：=#]?\s*[\"'#]?$",
    re.IGNORECASE,
)

_QUANTITY_LABEL = re.compile(
    r"(?:\bqty|\bquantity|\bmenge|\banzahl|\bquantité|\bqté|\bcantidad|\bquantità|\bquantidade"
    r"|\baantal|\bcount|\bколичество|\bкол-во|数量|個数|الكمية)"
    r"\.?[\"'”]?\s*(?:[:：=|>]|is|ist|est|es|は)?\s*[\"'“<]?$",
    re.IGNORECASE,
)

_COUNTED = re.compile(
    r"\s*(?:x\b|×|\*|pcs\b|pc\b|pieces?\b|units?\b|boxes\b|box\b|of\b|stück\b|stk\b|mal\b|unités?\b"
    r"|pièces?\b|unidades?\b|piezas?\b|pezzi\b|stuks?\b|ea\b|шт|件|个|個|台|箱|本|枚|つ|قطع|وحد)",
    re.IGNORECASE,
)
_COUNTING = re.compile(r"(?:×|\bx)\s?$", re.IGNORECASE)


def sku_choices(text: str, spans: Iterable[Span], *, everywhere: bool = False) -> list[str]:
    """The tokens that can be the sku, in order: the labelled ones, or else what looks like a code.

    Args:
        spans: Where whole tokens stand.
        everywhere: The address is among them, whose post code may look like a code: then long
            numbers count beside codes. Otherwise they count where there is no code.
    """
    labelled: list[str] = []
    codes: list[str] = []
    numbers: list[str] = []
    for start, end in spans:
        token, before = text[start:end], text[max(0, start - 40) : start]
        label = _SKU_LABEL.search(before)
        if label and (
            _is_code(token) or (label.group().rstrip()[-1] in ":：=#|" and token.isupper())
        ):
            labelled.append(token)
        elif not _is_code(token) or _OTHER_LABEL.search(before):
            continue
        elif token.isdigit():
            numbers.append(token)
        else:
            codes.append(token)
    long_numbers = [number for number in numbers if len(number) >= 4]
    unlabelled = codes + long_numbers if everywhere else codes or long_numbers
    return list(dict.fromkeys(labelled or unlabelled))


def labelled_otherwise(text: str, spans: Iterable[Span]) -> bool:
    """Whether one of these tokens is labelled as the sku or the quantity: no address has one."""
    for start, end in spans:
        before = text[max(0, start - 40) : start]
        if _QUANTITY_LABEL.search(before):
            return True
        if _is_code(text[start:end]) and _SKU_LABEL.search(before):
            return True
    return False


def quantity_choices(text: str, spans: Iterable[Span]) -> list[int]:
    """The numbers that can be the quantity, in order: labelled ones, counts of something, others.

    Args:
        spans: Where numbers stand on their own.
    """
    labelled: list[int] = []
    counts: list[int] = []
    others: list[int] = []
    for start, end in spans:
        number, before = int(text[start:end]), text[max(0, start - 40) : start]
        if _QUANTITY_LABEL.search(before):
            labelled.append(number)
        elif _COUNTED.match(text, end) or _COUNTING.search(before):
            counts.append(number)
        else:
            others.append(number)
    return list(dict.fromkeys(labelled or counts or others))


def _is_code(token: str) -> bool:
    return "_" in token.strip("_") or any(character.isdigit() for character in token)
