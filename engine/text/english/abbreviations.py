"""Tables of the normaliser: pauses, months, abbreviations, units, scales, symbols."""

PAUSES = frozenset(",.?!")
MONTHS = (
    "january february march april may june july august september october november december"
).split()
SHORT_MONTHS = {name[:3]: name for name in MONTHS if name != "may"} | {"sept": "september"}
TITLES = {
    "mr": "mister",
    "mrs": "missus",
    "ms": "miz",
    "dr": "doctor",
    "prof": "professor",
    "gen": "general",
    "sen": "senator",
    "rep": "representative",
    "vs": "versus",
    "no": "number",
    "ext": "extension",
    "approx": "approximately",
    "dept": "department",
    "tel": "telephone",
}
"""Abbreviations after which no sentence ends."""
CLIPPED = {
    "st": "street",
    "ave": "avenue",
    "rd": "road",
    "blvd": "boulevard",
    "apt": "apartment",
    "etc": "et cetera",
    "inc": "incorporated",
    "ltd": "limited",
    "corp": "corporation",
    "jr": "junior",
    "sr": "senior",
} | SHORT_MONTHS
"""Abbreviations that may close a sentence."""
UNITS = {
    "kg": "kilogram",
    "g": "gram",
    "mg": "milligram",
    "km": "kilometer",
    "m": "meter",
    "cm": "centimeter",
    "mm": "millimeter",
    "kb": "kilobyte",
    "mb": "megabyte",
    "gb": "gigabyte",
    "tb": "terabyte",
    "lb": "pound",
    "lbs": "pound",
    "oz": "ounce",
    "mi": "mile",
    "hr": "hour",
    "hrs": "hour",
    "min": "minute",
    "mins": "minute",
    "sec": "second",
    "secs": "second",
    "s": "second",
    "ms": "millisecond",
    "w": "watt",
    "kw": "kilowatt",
    "kwh": "kilowatt hour",
    "l": "liter",
    "ml": "milliliter",
}
FIXED_UNITS = {
    "ft": "feet",
    "mph": "miles per hour",
    "hz": "hertz",
    "khz": "kilohertz",
    "mhz": "megahertz",
    "ghz": "gigahertz",
    "f": "fahrenheit",
    "c": "celsius",
    "km/h": "kilometers per hour",
    "m/s": "meters per second",
}
SCALES = {"k": "thousand", "m": "million", "b": "billion", "bn": "billion"}
"""Scales of amounts of money; of bare figures only the first is one."""
SCALE_WORDS = frozenset(("hundred", "thousand", "million", "billion", "trillion"))
CODE_WORDS = frozenset(
    "code pin number extension passcode digits id zip order ticket case reference "
    "confirmation".split()
)
"""Words after which four and more figures are read one by one."""
SYMBOLS = {
    "&": "and",
    "@": "at",
    "%": "percent",
    "+": "plus",
    "=": "equals",
    "°": "degrees",
    "×": "times",
    "÷": "divided by",
    "^": "to the power of",
    "²": "squared",
    "³": "cubed",
    "<": "less than",
    ">": "more than",
    "≤": "at most",
    "≥": "at least",
    "≠": "is not",
    "±": "plus or minus",
    "~": "about",
    "≈": "about",
}
ADDRESS_MARKS = {"@": "at", ".": "dot", "/": "slash", "_": "underscore", "-": "dash", "+": "plus"}
DOMAINS = "com|org|net|edu|gov|io|dev|ai|co|us|uk|app|info"
