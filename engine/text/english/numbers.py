"""Figures to words: cardinals, ordinals, years, digits, money and clock times."""

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
SCALES = (
    (10**15, "quadrillion"),
    (10**12, "trillion"),
    (10**9, "billion"),
    (10**6, "million"),
    (1000, "thousand"),
)
MAX_CARDINAL = 10**18
"""Longer numbers are read digit by digit."""
ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
COINS = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "€": ("euro", "euros", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "¥": ("yen", "yen", "sen", "sen"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "jeon", "jeon"),
}
"""By sign: one and many of the unit, one and many of its hundredth."""


def cardinal(number: int) -> str:
    """Return a whole number as words: 1205 -> 'one thousand two hundred five'."""
    if number < 0:
        return "minus " + cardinal(-number)
    if number >= MAX_CARDINAL:
        return digits(str(number))
    if number < 20:
        return ONES[number]
    if number < 100:
        rest = number % 10
        return TENS[number // 10] + (f" {ONES[rest]}" if rest else "")
    if number < 1000:
        rest = number % 100
        return f"{ONES[number // 100]} hundred" + (f" {cardinal(rest)}" if rest else "")
    value, name = next(scale for scale in SCALES if number >= scale[0])
    rest = number % value
    return f"{cardinal(number // value)} {name}" + (f" {cardinal(rest)}" if rest else "")


def ordinal(number: int) -> str:
    """Return a place in order as words: 22 -> 'twenty second'."""
    words = cardinal(number).split()
    last = words[-1]
    plain = last[:-1] + "ieth" if last.endswith("y") else last + "th"
    return " ".join([*words[:-1], ORDINALS.get(last, plain)])


def year(number: int) -> str:
    """Return a year as words: 1998 -> 'nineteen ninety eight'."""
    high, low = divmod(number, 100)
    if high % 10 == 0 and low < 10:
        return cardinal(number)
    if low == 0:
        return f"{cardinal(high)} hundred"
    return f"{cardinal(high)} {'oh ' + ONES[low] if low < 10 else cardinal(low)}"


def digits(figures: str) -> str:
    """Return figures one by one: '042' -> 'zero four two'."""
    return " ".join(
        ONES[int(figure)] for figure in figures if figure.isascii() and figure.isdigit()
    )


def whole(figures: str) -> str:
    """Return '1,250' or '042' as words; a leading zero means digits."""
    bare = figures.replace(",", "")
    if (len(bare) > 1 and bare[0] == "0") or len(bare) > 18:
        return digits(bare)
    return cardinal(int(bare))


def decimal(figures: str) -> str:
    """Return '3.14' as 'three point one four'; without a point the whole number."""
    head, _, tail = figures.partition(".")
    return f"{whole(head or '0')} point {digits(tail)}" if tail else whole(head)


def money(sign: str, figures: str) -> str:
    """Return an amount with its coin names: '$', '42.50' -> 'forty two dollars and fifty cents'."""
    one, many, coin, coins = COINS[sign]
    head, _, tail = figures.partition(".")
    amount = int(head.replace(",", "") or 0)
    if len(tail) not in (0, 2):
        return f"{decimal(figures)} {many}"
    words = f"{whole(head or '0')} {one if amount == 1 else many}"
    if not tail or int(tail) == 0:
        return words
    small = f"{cardinal(int(tail))} {coin if int(tail) == 1 else coins}"
    return small if amount == 0 else f"{words} and {small}"


def clock(hour: int, minute: int) -> str:
    """Return a time of day: 6, 5 -> 'six oh five'."""
    if minute == 0:
        return cardinal(hour)
    return f"{cardinal(hour)} {'oh ' + ONES[minute] if minute < 10 else cardinal(minute)}"


def fraction(top: int, bottom: int) -> str:
    """Return a fraction: 3, 4 -> 'three quarters'; 24/7 and the like are two numbers."""
    if (top, bottom) in ((24, 7), (9, 11)) or bottom in (0, top):
        return f"{cardinal(top)} {cardinal(bottom)}"
    name = {2: "half", 4: "quarter"}.get(bottom, ordinal(bottom))
    plural = "halves" if (name, top > 1) == ("half", True) else name + "s" * (top > 1)
    return f"{cardinal(top)} {plural}"
