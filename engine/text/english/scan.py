"""SCAN: what a piece of English text is made of, the longest and most special first; pure."""

import re

from playhead.engine.text.english.abbreviations import DOMAINS
from playhead.engine.text.english.phonemes import SOUNDS_CLOSE, SOUNDS_OPEN

SCAN = re.compile(
    rf"""
    (?P<sounds>{SOUNDS_OPEN}[^{SOUNDS_CLOSE}]+{SOUNDS_CLOSE}(?:'s\b)?)
  | (?P<mail>[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:https?://|www\.)\S*\w|[\w-]+(?:\.[\w-]+)*\.(?:{DOMAINS})\b)
  | (?P<money>-?[$€£¥₹₩]\s?-?(?:\d[\d,]*(?:\.\d+)?|\.\d\d\b))
    (?P<most>[-–][$€£¥₹₩]?\d[\d,]*(?:\.\d+)?)?(?P<scale>(?:k|m|bn?)\b)?
  | (?P<point_date>\b\d\d?\.\d\d?\.(?:19|20)\d\d\b)
  | (?P<iso>\b(?:19|20)\d\d-\d\d?-\d\d?\b)
  | (?P<slash_date>\b\d\d?/\d\d?/(?:\d{{4}}|\d\d)\b)
  | (?P<phone>\+?\b\d?(?:[-.]?\(?\d{{3}}\)?[-.])\d{{3}}[-.]\d{{4}}\b
    |\b\d{{3}}-\d{{4}}\b|\(\d{{3}}\))
  | (?P<time>\b\d\d?:\d\d(?::\d\d)?)(?P<half>[ap]\.?m\b\.?)?
  | (?P<ratio>\b\d{{1,3}}:\d{{1,3}}\b(?!:))
  | (?P<hour>\b\d\d?)(?P<hour_half>[ap]\.?m\b\.?)
  | (?P<until>(?:(?<=:\d\d)|(?<=\d[ap]m))[-–](?=\d))
  | (?P<ordinal>\b\d[\d,]*)(?:st|nd|rd|th)\b
  | (?P<fraction>\b\d\d?/\d\d?\b)
  | (?P<version>(?<![\d.])\d+(?:\.\d+){{2,}}(?!\d|,\d))
  | (?P<chain>\b\d+(?:-\d+){{2,}}\b)
  | (?P<span>\b\d[\d,.]*\d|\b\d)[-–](?=\d)
  | (?P<number>-?(?:\d[\d,]*\d|\d)(?:\.\d+)?|\.\d+)
    (?P<unit>°?(?:km/h|m/s|[a-zA-Z]{{1,4}})\b|[¢$€£¥₹₩])?
  | (?P<rate>\b(?:km/h|m/s)\b)
  | (?P<dotted>\b(?:[A-Za-z]\.){{2,}}|\b(?:[A-Za-z]\.)+[A-Za-z]\b)
  | (?P<word>[A-Za-z]+(?:'[A-Za-z]+)*'?)
  | (?P<stop>\.{{2,}}|[.!?…]+)
  | (?P<comma>[,;:()]|—|–|--+)
  | (?P<symbol>[$€£¥₹₩&@%+=°×÷^²³<>≤≥≠±~≈\#])
    """,
    re.VERBOSE | re.IGNORECASE,
)
WHOLE = {
    "scale": "money",
    "most": "money",
    "point_date": "iso",
    "until": "span",
    "half": "time",
    "hour_half": "hour",
    "unit": "number",
}
"""As which kind a match is read that ends with such a part, or is of such a kind."""
