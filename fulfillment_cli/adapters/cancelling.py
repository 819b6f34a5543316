"""Whether a request text takes an order back, or says what is not to be sent.

Every fact of such an order stands in its text, so that nothing else would tell it from one that is
meant. A word such as "not" alone says nothing: many a mail asks not to bend, not to call, not to
deliver on a Sunday.
"""

from __future__ import annotations

import re

_ENGLISH = (
    r"\b(?:do not|don['’]?t|never|stop)(?: please)?"
    r" (?:send|ship|deliver|dispatch|order|process|fulfill?)(?:ing)?\b"
    r"(?! (?:before|after|on|until|till|by|later|earlier|via|with|at|in|any)\b)"
    r"|\bno longer (?:need|want|require)"
    r"|\bcancel(?:l?ing)? (?:(?:my|our|the|this|that|an?) )?(?:\w+ )?"
    r"(?:order|request|delivery|shipment)\b"
    r"|\b(?:order|request|delivery|shipment) (?:is|was|has been|should be|must be) cancell?ed"
)
_OTHERS = (
    r"\bstornier\w*|\bnicht (?:mehr )?(?:liefern|senden|schicken|versenden|bestellen)\b",
    r"\bannul(?:er|ez)\b|\bn['’e] ?(?:pas )?(?:envoye[rz]|livre[rz]|expédie[rz])\b",
    r"\bcancel(?:ar|e|en|em)\b",
    r"\bn(?:o|ão) (?:env[ií]e[ns]?|enviar|entregar|entreguen?|mande[ns]?)\b",
    r"\bannulla(?:re|te)\b|\bnon (?:inviare|inviate|spedire|spedite|consegnare)\b",
    r"\bannuleer\w*|\bniet (?:leveren|versturen|verzenden|sturen)\b",
    r"\bотмен\w+|\bне (?:отправля\w+|доставля\w+|присыла\w+)",
    r"取消|不要再?[发送寄订]|别再?[发送寄]|キャンセル|送らないで|إلغاء|لا ترسل",
)
"""Of the languages that ``fixtures/requests`` has."""

_TAKEN_BACK = re.compile("|".join((_ENGLISH, *_OTHERS)), re.IGNORECASE)


def taken_back(text: str) -> bool:
    """Whether the text cancels an order, or says what is not to be sent."""
    return _TAKEN_BACK.search(" ".join(text.split())) is not None
