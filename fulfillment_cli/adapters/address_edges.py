"""Where an address can begin and end in a request text.

A model that copies half an address gives a run of the text that no look-up can tell from a whole
one: ``12 Main Street`` of ``12 Main Street, Leeds``. So the text around the run has to say that
the address begins and ends there: a label, a quotation mark, a table cell, the end of a line
that is not followed by more of it, a word that leads to an address (``to``) or that cannot go on
with one (``please``). Where it does not say so the answer is refused, not believed.

The words below are those of the languages that ``fixtures/requests`` has. A language that is
missing costs answers that are refused, never wrong ones.
"""

from __future__ import annotations

import re

_LEAD_IN = (
    r"(?:(?:to|at)(?: the)?|address is|nach|an|ist|lautet|naar|à|au|est|al|a|para|es|all'|adres)"
)
_LEAD_IN_CJK = (
    r"(?:到[ ]|送到|送至|寄到|寄至|寄往|发到|发至|发往|运到|运至"
    r"|地址是|地址为|住所は|届け先は|配送先は)"
)

_STOP_WORDS = (
    r"(?:please|pls|plz|thanks|thank you|thx|cheers|asap|by|before|until|till|today|tomorrow"
    r"|tonight|(?:on |next )?(?:mon|tues|wednes|thurs|fri|satur|sun)day|regards|kind regards|best"
    r"|best regards|sincerely|sent from|bitte|danke|vielen dank|bis|spätestens|mit freundlichen"
    r"|viele grüße|mfg|merci|svp|s'il vous plaît|avant|cordialement|bien à vous|por favor|gracias"
    r"|antes|saludos|atentamente|grazie|per favore|cordiali|obrigad[oa]|bedankt|alvast|graag)"
)
_STOP_CJK = (
    r"(?:谢谢|多谢|请|麻烦|尽快|数量|商品|型号|です|でお願い|宛|よろしく|شكرا"
    r"|(?:へ|に|まで)(?:お?送|お?届|発送|配送|出荷|お願))"
)
_STOP = rf"(?:{_STOP_WORDS}(?!\w)|{_STOP_CJK})"

_PART_LABEL = re.compile(
    r"\W*(?:street|road|house|stra(?:ss|ß)e|hausnummer|rue|calle|via|city|town|ort|stadt|ville"
    r"|ciudad|zip|post ?code|postal code|plz|code postal|state|county|country|land|pays|pa[ií]s"
    r"|(?:address )?line \d|unit|floor|building|省|市|区|街道|门牌|邮编|都道府県"
    r"|市区町村|番地|郵便番号)"
    r"\b[^\n:：=]{0,20}[:：=]",
    re.IGNORECASE,
)
"""Labels of forms that ask for an address in parts: none of their values is the whole."""

_LABEL = r"[^\W\d][^\n:：=;|]{0,40}[:：=]"

_ADDRESS_LABEL = re.compile(
    r"(?<!mail )(?<!billing )(?<!invoice )(?<!web )(?<!ip )(?<![^\W\d_])"
    r"(?:(?:delivery |shipping |ship-to )?address|(?:ship|deliver|send|shipping|delivery) to"
    r"|liefer(?:adresse|anschrift)|adresse(?: de livraison)?|direcci[oó]n(?: de (?:entrega|envío))?"
    r"|indirizzo(?: di (?:consegna|spedizione))?|endereço(?: de entrega)?"
    r"|(?:aflever|bezorg)?adres|адрес(?: доставки)?|(?:收货|送货)?地址|(?:お届け|届け|配送)先|住所"
    r"|عنوان(?: التسليم| التوصيل)?)"
    r"[\"'”]?[ \t]*[:：=>]\s*[\"'“„«「『]?\s*",
    re.IGNORECASE,
)
"""Labels of the delivery address: where one is there, no other run can be the address."""

_START = re.compile(
    r"(?:(?<!\d)[:：=][ \t]*[\"'“„«「『（(\[]?[ \t]*"  # a label
    r"|[\"“„«「『（(\[|\t][ \t]*|(?<=[\w\"/])>[ \t]*"  # a quotation, a cell, an element
    r"|[ ]{3,}"  # a column
    r"|(?:->|=>|→|➡)\s*"
    rf"|(?<!\w){_LEAD_IN}[ \t]+[\"'“„«]?|{_LEAD_IN_CJK}\s*"
    r"|(?:^|[,;\n])[ ]?\"?[A-Za-z0-9_-]{1,80}\"?[,;]\"?)$",  # a field after a bare one
    re.IGNORECASE,
)

_END = re.compile(
    r"[.!?;。！？]?\s*\Z|[.!。！]?[ \t]*(?:[\"”“»」』）)\]|\t]|'(?!\w)|<(?=/|br))|[ ]{3,}"
    rf"|[;；,]\s*(?={_LABEL})|[;；][ \t]*(?:\r?\n|\Z)"
    rf"|[.,;，、。!]?\s*(?<![^\W_]){_STOP}"
    rf"|\s*[—–-]?\s+{_STOP}"
    r"|[。！？!?]",
    re.IGNORECASE,
)

_LINE_END = re.compile(r"[.!;,]?[ \t]*\r?\n[> \t]*")
_NEXT_LINE = re.compile(
    rf"\r?\n|\Z|[-*•|#=_+—]|{_LABEL}|{_STOP}|[^\n]{{0,40}}\b(?:regards|grüße|thanks)\b",
    re.IGNORECASE,
)

_SENTENCE_END = re.compile(r"[.][ \t]+(?=[^\W\d_a-z])")

_GREETING = (
    r"(?:hi|hello|hey|dear|good (?:morning|afternoon|evening|day)|hallo|guten (?:tag|morgen|abend)"
    r"|moin|bonjour|hola|buenos días|ciao|buongiorno|olá|bom dia|goedemorgen|здравствуйте)"
)

_TOO_LONG = re.compile(
    rf"^{_GREETING}(?!\w)|^{_LEAD_IN}\s|^{_LABEL}|(?<!\w){_STOP_WORDS}(?!\w)|{_STOP_CJK}$|[\"“”„«»|<>\t]|\n\s*\n|\n{_LABEL}",
    re.IGNORECASE,
)

_CLOSED = re.compile(r"(?:[,;:!?。！]|(?:[^\W\d_]{4}|[\W\d_])[.])\s*\Z")


def labelled_starts(text: str) -> frozenset[int]:
    """Where an address begins by its label; where there are any, it begins nowhere else."""
    return frozenset(label.end() for label in _ADDRESS_LABEL.finditer(text))


def starts_well(text: str, start: int) -> bool:
    """Whether an address can begin here, by what stands before it."""
    before = text[max(0, start - 120) : start]
    line = before[before.rfind("\n") + 1 :]
    if _PART_LABEL.match(line):
        return False
    if line.strip(" \t>*•-\ufeff\u200e\u200f") == "":
        previous = text[:start].rstrip(" \t>*•-\ufeff\u200e\u200f")
        return previous == "" or _opens_block(previous)
    return _START.search(before) is not None


def ends_well(text: str, end: int) -> bool:
    """Whether an address can end here, by what follows it."""
    after = text[end : end + 200]
    if line_end := _LINE_END.match(after):
        rest = after[line_end.end() :]
        return bool(_NEXT_LINE.match(rest)) and not _PART_LABEL.match(rest)
    if found := _END.match(after):
        return not _PART_LABEL.match(after[found.end() :])
    # A full stop ends a sentence only after a word that is no abbreviation ("St. James").
    word = re.search(r"[^\W\d_]*\Z", text[max(0, end - 40) : end])
    return bool(_SENTENCE_END.match(after)) and word is not None and len(word.group()) >= 5


def too_long(address: str) -> bool:
    """Whether the run holds what is not of the address: a label, a lead-in, a greeting, a closing.

    So does a full stop at its end, except after what may be an abbreviation (``12 Main St.``).
    """
    return _TOO_LONG.search(address) is not None or _CLOSED.search(address) is not None


def _opens_block(previous: str) -> bool:
    """Whether the text up to a line break leaves room for an address on the next line."""
    if not previous.endswith("\n"):
        return False
    lines = [line.strip(" \t>") for line in previous.rsplit("\n", 2)[-2:]]
    above = lines[-2] if len(lines) > 1 else ""
    return above.strip("\r") == "" or above.rstrip("\r").endswith((":", "："))
