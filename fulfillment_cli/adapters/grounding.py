"""Whether an order's facts stand in the request text: whole tokens, whole runs, no guess.

What a model says is believed only where the text says it too (contract, section 6). The rules
lean one way: a right order that is refused costs a question, a wrong one that is accepted is
shipped. They read no language but know where a word, a number and an address can begin and end:

* A **token** ends where the text does, or at a character that cannot be part of a word, a number
  or a code. So ``731`` is not in ``SKU-731``, ``2`` is not in ``2.5``, ``-2``, ``2/3`` or
  ``2x``; Chinese, Japanese or Arabic letters may follow a token without a space.
* A **quantity** is written in decimal digits, of any script: ``２`` and ``٢`` are 2 (``int``
  reads them so); number words and superscripts are not. ``1 000`` is one number, not two.
* The **address** begins and ends where something else ends and begins (see
  :mod:`~fulfillment_cli.adapters.address_edges`): ``Main Street`` is not
  taken out of ``12 Main Street, Leeds``.
* Where runs of whitespace are the only difference the text's own run counts, and is returned.
* The three must be **apart**: ``12`` of ``12 Main Street`` is no quantity.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

from fulfillment_cli.adapters.address_edges import (
    ends_well,
    labelled_starts,
    starts_well,
    too_long,
)
from fulfillment_cli.adapters.ambiguity import labelled_otherwise, quantity_choices, sku_choices
from fulfillment_cli.adapters.cancelling import taken_back

_SKU = re.compile(r"[A-Za-z0-9_-]+")
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(
    r"[^\s,;:|=\"'“”„«»()<>\[\]{}]+?(?=[.!?。！？]?(?:[\s,;:|=\"'“”„«»()<>\[\]{}]|$))"
)

_NO_ADDRESS = re.compile(r"^[\W\d_]*$|^(?:sku|quantity|qty|address|item|date)$", re.IGNORECASE)
_SEPARATOR = re.compile(r"[;|=:{}<>]")

MAX_ADDRESSES = 60
"""Most runs that are listed as possible addresses; a longer list helps nobody choose."""

_JOINERS = frozenset("-−_./⁄∕+#@'’\\^~*")
"""Between letters or digits these make one code or number of them: ``A/1``, ``2.5``, ``a@b``."""

_NUMBER_JOINERS = _JOINERS | frozenset(",:٫٬")
"""Between digits also these: ``1,000``, ``10:30``."""

_AFTER_CODE = re.compile(r"(?<![\w-])(?=[\w-]*[A-Za-z_])[\w-]+[\"']?,[\"']?$")

_MARKS = "\u200e\u200f\u061c\ufeff"
"""Direction marks and the byte order mark: invisible, part of nothing."""

_NOT_A_COUNT_BEFORE = re.compile(r"(?:[€$£¥₹№#][ \u00a0]?|[-−+.‐-―]|\d[ \u00a0\u2009\u202f])$")
_NOT_A_COUNT_AFTER = re.compile(r"[ \u00a0]?[%‰°€$£¥₹]|[ \u00a0\u2009\u202f]\d{3}(?!\w)")
"""Prices, percentages, signs, and the groups of ``1 000``."""

_CLOCK_BEFORE = re.compile(
    r"(?<!\w)(?:at|by|before|until|till|after|around|um|bis|ab|vor|avant) $", re.I
)
_CLOCK_AFTER = re.compile(r" ?(?:[ap]\.?m\b|o'clock|uhr\b)", re.IGNORECASE)
"""Times of the day: ``by 5``, ``7 pm``."""

_LIST_NUMBER = re.compile(r"(?:^|\n)[ \t>]*\d+[.)][ \t]")
"""``2. `` at the start of a line numbers the line."""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The tokens of a text that an order can be made of, in their order, each once.

    Attributes:
        skus: Up to 80 of ``[A-Za-z0-9_-]`` each.
        quantities: Whole numbers from 1 to 100.
        addresses: Runs of one line that begin and end where an address can.
    """

    skus: tuple[str, ...]
    quantities: tuple[int, ...]
    addresses: tuple[str, ...]


def candidates(text: str, *, address: str | None = None) -> Candidates:
    """What may be answered as ``sku`` and as ``quantity``.

    Args:
        address: Where it is known, the others stand apart from it.
    """
    runs = list(islice(_runs(text, address), 20)) if address is not None else []

    def apart(span: Span) -> bool:
        return not any(_overlap(span, run) for run in runs)

    codes = [span for span in _sku_spans(text) if span[1] - span[0] <= 80 and apart(span)]
    skus = sku_choices(text, codes, everywhere=address is None)
    numbers = quantity_choices(text, [span for span in _number_spans(text) if apart(span)])
    return Candidates(
        tuple(skus),
        tuple(number for number in numbers if 1 <= number <= 100),
        tuple(_whole_addresses(text)),
    )


@dataclass(frozen=True, slots=True)
class Grounded:
    """Where an order's facts stand.

    Attributes:
        address: The run of the text, with the text's own whitespace; also where all that is wrong
            is that another fact stands only in it.
        missing: Why it is not grounded, one line for a person or a model; none where it is.
    """

    address: str = ""
    missing: str | None = None


def ground(text: str, *, sku: str, quantity: int, address: str) -> Grounded:
    """Find the three facts in the text, apart from each other."""
    if taken_back(text):
        return Grounded(missing="the text cancels an order or says what not to send")
    skus = [span for span in _sku_spans(text) if text[slice(*span)] == sku]
    if not skus:
        return Grounded(missing=f"sku {sku!r} is not a whole token of the text")
    quantities = [span for span in _number_spans(text) if int(text[slice(*span)]) == quantity]
    if not quantities:
        return Grounded(missing=f"quantity {quantity} does not stand in the text as a number")
    runs = list(islice(_runs(text, address), 20))
    if not runs:
        return Grounded(
            missing="address is not one run of the text; copy it character by character"
        )
    labelled = labelled_starts(text)
    if labelled and not any(run[0] in labelled for run in runs):
        return Grounded(missing="the text labels another run as the address")
    runs = [run for run in runs if run[0] in labelled] or runs
    whole = [run for run in runs if starts_well(text, run[0]) and ends_well(text, run[1])]
    if not whole:
        return Grounded(missing="address is only a part of the address in the text; copy all of it")
    if _NO_ADDRESS.search(address.strip()):
        return Grounded(missing="address is a number or a label; copy the address itself")
    whole = [run for run in whole if not (too_long(text[slice(*run)]) or _other_fact(text, run))]
    if not whole:
        return Grounded(
            missing="address holds more than the address; leave out the words around it"
        )
    apart = [run for run in whole if _apart(run, skus, quantities)]
    if not apart:
        return Grounded(
            text[slice(*whole[0])], missing="sku, quantity and address overlap in the text"
        )
    for run in apart:
        missing = _doubt(text, run, sku, quantity)
        if missing is None:
            return Grounded(address=text[slice(*run)])
    return Grounded(missing=missing)


def _other_fact(text: str, run: Span) -> bool:
    """Whether the run holds, or is, what the text labels as the sku or the quantity."""
    tokens = chain(_sku_spans(text), _number_spans(text))
    return labelled_otherwise(text, [span for span in tokens if _overlap(span, run)])


def _doubt(text: str, address: Span, sku: str, quantity: int) -> str | None:
    """Why the text may mean another sku or quantity; none where it can only mean these."""
    skus = sku_choices(text, [span for span in _sku_spans(text) if not _overlap(span, address)])
    if skus != [sku]:
        return f"the text names {' and '.join(skus[:3]) or 'no article'}, so {sku!r} is not certain"
    numbers = [
        span
        for span in _number_spans(text)
        if not _overlap(span, address) and text[slice(*span)] != sku
    ]
    quantities = quantity_choices(text, numbers)
    if quantities != [quantity]:
        several = " and ".join(str(number) for number in quantities[:3])
        return f"the text has the numbers {several}, so quantity {quantity} is not certain"
    return None


def _whole_addresses(text: str) -> Iterator[str]:
    """Runs of one line that an address can be, each once.

    None where that would be no help: too many, an address that goes over lines, or a script that
    is written without spaces.
    """
    if any(unicodedata.category(character) == "Lo" for character in text):
        return iter(())
    found: dict[str, None] = {}
    starts = [match.start() for match in _WORD.finditer(text)]
    ends = [match.end() for match in _WORD.finditer(text)]
    labelled = labelled_starts(text)
    begins = [
        start
        for start in starts
        if (not labelled or start in labelled) and starts_well(text, start)
    ]
    stops = [end for end in ends if ends_well(text, end)]
    for start in begins:
        line_end = text.find("\n", start)
        limit = min(start + 200, line_end if line_end >= 0 else len(text))
        runs = [text[start:end] for end in stops if start < end <= limit]
        if not runs:
            return iter(())
        for run in runs:
            if not (too_long(run) or _NO_ADDRESS.search(run) or _SEPARATOR.search(run)):
                found.setdefault(run)
    listed = [run for run in found if run.removesuffix(".") == run or run[:-1] not in found]
    return iter(listed if len(listed) <= MAX_ADDRESSES else ())


def _apart(run: Span, skus: Iterable[Span], quantities: Iterable[Span]) -> bool:
    free_skus = [span for span in skus if not _overlap(span, run)]
    free_quantities = [span for span in quantities if not _overlap(span, run)]
    # One token cannot be both; two of either, and there is a pair that differs.
    return any(
        not _overlap(sku, quantity) for sku in free_skus[:2] for quantity in free_quantities[:2]
    )


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _sku_spans(text: str) -> Iterator[Span]:
    for match in _SKU.finditer(text):
        start, end = match.span()
        if _edge(text, start, -1, _JOINERS) and _edge(text, end, 1, _JOINERS):
            yield match.span()


def _number_spans(text: str) -> Iterator[Span]:
    for match in _NUMBER.finditer(text):
        start, end = match.span()
        digits = match.group()
        if len(digits) > 3 or int(digits[0]) == 0:
            continue
        # Behind a code a comma parts fields: "BRK-118,9" is no decimal.
        opens = _edge(text, start, -1, _NUMBER_JOINERS) or _AFTER_CODE.search(
            text[max(0, start - 82) : start]
        )
        if not opens or not _edge(text, end, 1, _NUMBER_JOINERS):
            continue
        line = text.rfind("\n", 0, start) + 1
        if (
            _NOT_A_COUNT_BEFORE.search(text[max(0, start - 2) : start])
            or _NOT_A_COUNT_AFTER.match(text, end)
            or _LIST_NUMBER.match(text, line, end + 2)
            or _CLOCK_BEFORE.search(text[max(0, start - 8) : start])
            or _CLOCK_AFTER.match(text, end)
        ):
            continue
        yield match.span()


def _edge(text: str, at: int, step: int, joiners: frozenset[str]) -> bool:
    """Whether a token can begin or end at this position, looking outwards (``step`` -1 or 1)."""
    outside, beyond = islice(chain(_outwards(text, at, step), ("", "")), 2)
    if not outside:
        return True
    if _goes_on(outside):
        return False
    if outside not in joiners and unicodedata.category(outside) != "Pd":
        return True
    if outside in ",:٫٬":
        return not beyond.isdecimal()
    return not (beyond.isalnum() or beyond == "_")


def _outwards(text: str, at: int, step: int) -> Iterator[str]:
    positions = range(at - 1, -1, -1) if step < 0 else range(at, len(text))
    return (text[position] for position in positions if text[position] not in _MARKS)


def _goes_on(character: str) -> bool:
    """Whether a token goes on with this character.

    Letters that know case, everything numeric, marks and invisible characters do; letters of
    scripts without case (Chinese, Japanese, Arabic, Thai, ...) do not: they follow a code or a
    number without a space.
    """
    category = unicodedata.category(character)
    return character == "_" or category in ("Lu", "Ll", "Lt", "Cf") or category[0] in "NM"


def _runs(text: str, address: str) -> Iterator[Span]:
    words = address.split()
    if not words:
        return
    pattern = r"\s+".join(re.escape(word) for word in words)
    for match in re.finditer(pattern, text):
        yield match.span()
