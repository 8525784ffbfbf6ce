"""Words of nine languages around the numbers, where CLDR has none; English is in english.py."""

from dataclasses import dataclass, field
from typing import Literal

DateOrder = Literal["dmy", "ymd"]


@dataclass(frozen=True, slots=True)
class Words:
    """What a language says for marks, and how it writes dates and amounts."""

    point: str
    minus: str
    to: str
    """Between the ends of a range."""
    symbols: dict[str, str]
    date: str
    """Of a day {d}, a month {m} and a year {y}."""
    clock: str
    """Of an hour {h} and a minute {m} that is not 0."""
    full_hour: str
    cents: str
    """Of an amount {a} and its hundredths {c}."""
    money: dict[str, tuple[str, ...]]
    """Sign -> singular and plural (Russian: one, few, many)."""
    of: str = ""
    """Between a million and the money."""
    order: DateOrder = "dmy"
    group: str = "."
    """Marks between thousands."""
    decimal: str = ","
    scales: str = r"(?!)"
    """Words behind an amount that scale it."""
    abbreviations: dict[str, str] = field(default_factory=dict)
    closing: frozenset[str] = frozenset()
    """Abbreviations after which a sentence may end."""


def _symbols(words: str) -> dict[str, str]:
    """Map the signs in their order to words; `_` stands for a space inside one."""
    said = (word.replace("_", " ") for word in words.split())
    return dict(zip("+=×÷&@/_#№§", said, strict=True))


GERMAN = Words(
    point="Komma",
    minus="minus",
    to="bis",
    symbols=_symbols(
        "plus gleich mal durch und ät Schrägstrich Unterstrich Nummer Nummer Paragraf"
    ),
    date="{d} {m} {y}",
    clock="{h} Uhr {m}",
    full_hour="{h} Uhr",
    cents="{a} {c}",
    money={"$": ("Dollar",), "€": ("Euro",), "£": ("Pfund",), "¥": ("Yen",)},
    scales=r"(?:Tausend\b|Million(?:en)?\b|Milliarden?\b|Mio\.|Mrd\.)",
    abbreviations={
        **{"z. B.": "zum Beispiel", "z.B.": "zum Beispiel", "d. h.": "das heißt"},
        **{"d.h.": "das heißt", "u. a.": "unter anderem", "u.a.": "unter anderem"},
        **{"bzw.": "beziehungsweise", "usw.": "und so weiter", "etc.": "et cetera"},
        **{"ca.": "circa", "Nr.": "Nummer", "Dr.": "Doktor", "Prof.": "Professor"},
        **{"Hr.": "Herr", "Fr.": "Frau", "Tel.": "Telefon", "inkl.": "inklusive"},
        **{"ggf.": "gegebenenfalls", "evtl.": "eventuell", "vgl.": "vergleiche"},
        **{"Mio.": "Millionen", "Mrd.": "Milliarden", "max.": "maximal", "min.": "minimal"},
    },
    closing=frozenset(("usw.", "etc.")),
)
FRENCH = Words(
    point="virgule",
    minus="moins",
    to="à",
    symbols=_symbols(
        "plus égale fois divisé_par et arobase barre tiret_bas numéro numéro paragraphe"
    ),
    date="{d} {m} {y}",
    clock="{h} heures {m}",
    full_hour="{h} heures",
    cents="{a} {c}",
    money={
        **{"$": ("dollar", "dollars"), "€": ("euro", "euros")},
        **{"£": ("livre", "livres"), "¥": ("yen", "yens")},
    },
    of="de",
    group=" .\u00a0\u202f",
    scales=r"(?:millions?|milliards?)\b",
    abbreviations={
        **{"M.": "monsieur", "Mme": "madame", "Mlle": "mademoiselle", "Dr": "docteur"},
        **{"p. ex.": "par exemple", "etc.": "et cetera", "n°": "numéro", "env.": "environ"},
        **{"c.-à-d.": "c'est-à-dire", "av.": "avenue", "bd": "boulevard", "tél.": "téléphone"},
    },
    closing=frozenset(("etc.",)),
)
SPANISH = Words(
    point="coma",
    minus="menos",
    to="a",
    symbols=_symbols("más igual por entre y arroba barra guion_bajo número número párrafo"),
    date="{d} de {m} de {y}",
    clock="{h} y {m}",
    full_hour="{h} en punto",
    cents="{a} con {c}",
    money={
        **{"$": ("dólar", "dólares"), "€": ("euro", "euros")},
        **{"£": ("libra", "libras"), "¥": ("yen", "yenes")},
    },
    of="de",
    scales=r"(?:mil )?(?:millón|millones|billones)\b",
    abbreviations={
        **{"Sr.": "señor", "Sra.": "señora", "Srta.": "señorita", "Dr.": "doctor"},
        **{"Dra.": "doctora", "p. ej.": "por ejemplo", "etc.": "etcétera", "Ud.": "usted"},
        **{"Uds.": "ustedes", "EE. UU.": "Estados Unidos", "EE.UU.": "Estados Unidos"},
        **{"n.º": "número", "aprox.": "aproximadamente", "tel.": "teléfono", "Av.": "avenida"},
    },
    closing=frozenset(("etc.", "EE. UU.", "EE.UU.")),
)
ITALIAN = Words(
    point="virgola",
    minus="meno",
    to="a",
    symbols=_symbols(
        "più uguale per diviso e chiocciola barra trattino_basso numero numero paragrafo"
    ),
    date="{d} {m} {y}",
    clock="{h} e {m}",
    full_hour="{h} in punto",
    cents="{a} e {c}",
    money={
        **{"$": ("dollaro", "dollari"), "€": ("euro",)},
        **{"£": ("sterlina", "sterline"), "¥": ("yen",)},
    },
    of="di",
    scales=r"(?:milion[ei]|miliard[oi])\b",
    abbreviations={
        **{"Sig.": "signor", "Sig.ra": "signora", "Dott.": "dottor", "Dott.ssa": "dottoressa"},
        **{"Dr.": "dottor", "Prof.": "professor", "ecc.": "eccetera", "per es.": "per esempio"},
        **{"p. es.": "per esempio", "n.": "numero", "ca.": "circa", "tel.": "telefono"},
    },
    closing=frozenset(("ecc.",)),
)
PORTUGUESE = Words(
    point="vírgula",
    minus="menos",
    to="a",
    symbols=_symbols(
        "mais igual vezes dividido_por e arroba barra sublinhado número número parágrafo"
    ),
    date="{d} de {m} de {y}",
    clock="{h} e {m}",
    full_hour="{h} horas",
    cents="{a} e {c}",
    money={
        **{"$": ("dólar", "dólares"), "€": ("euro", "euros"), "R$": ("real", "reais")},
        **{"£": ("libra", "libras"), "¥": ("iene", "ienes")},
    },
    of="de",
    scales=r"(?:milhão|milhões|bilhão|bilhões)\b",
    abbreviations={
        **{"Sr.": "senhor", "Sra.": "senhora", "Dr.": "doutor", "Dra.": "doutora"},
        **{"p. ex.": "por exemplo", "etc.": "et cetera", "n.º": "número", "nº": "número"},
        **{"aprox.": "aproximadamente", "tel.": "telefone", "Av.": "avenida"},
    },
    closing=frozenset(("etc.",)),
)
RUSSIAN = Words(
    point="запятая",
    minus="минус",
    to="–",
    symbols=_symbols(
        "плюс равно умножить_на разделить_на и собака слэш подчёркивание номер номер параграф"
    ),
    date="{d} {m} {y} года",
    clock="{h} {m}",
    full_hour="{h} ноль-ноль",
    cents="{a} {c}",
    money={
        **{"$": ("доллар", "доллара", "долларов"), "€": ("евро",)},
        **{"£": ("фунт", "фунта", "фунтов"), "¥": ("иена", "иены", "иен")},
        **{"₽": ("рубль", "рубля", "рублей")},
    },
    group=" .\u00a0\u202f",
    scales=r"(?:тысяч[аи]?|миллион(?:а|ов)?|миллиард(?:а|ов)?|тыс\.|млн\.?|млрд\.?)",
    abbreviations={
        **{"т. е.": "то есть", "т.е.": "то есть", "и т. д.": "и так далее"},
        **{"и т.д.": "и так далее", "и т. п.": "и тому подобное", "и т.п.": "и тому подобное"},
        **{"т. к.": "так как", "т.к.": "так как", "напр.": "например", "ул.": "улица"},
        **{"руб.": "рублей", "тыс.": "тысяч", "млн": "миллионов", "млрд": "миллиардов"},
        **{"стр.": "страница", "тел.": "телефон"},
    },
    closing=frozenset(("и т. д.", "и т.д.", "и т. п.", "и т.п.", "руб.")),
)
CHINESE = Words(
    point="点",
    minus="负",
    to="到",
    symbols=_symbols("加 等于 乘以 除以 和 艾特 斜杠 下划线 号 号 节"),
    date="{y}年{m}月{d}日",
    clock="{h}点{m}分",
    full_hour="{h}点",
    cents="{a}{c}",
    money={
        **{"$": ("美元",), "€": ("欧元",), "£": ("英镑",), "¥": ("元",), "￥": ("元",)},
    },
    order="ymd",
    group=",",
    decimal=".",
    scales=r"[十百千万亿萬億]+",
)
JAPANESE = Words(
    point="点",
    minus="マイナス",
    to="から",
    symbols=_symbols(
        "プラス イコール かける わる アンド アット スラッシュ アンダーバー ナンバー ナンバー 節"
    ),
    date="{y}年{m}月{d}日",
    clock="{h}時{m}分",
    full_hour="{h}時",
    cents="{a}{c}",
    money={
        **{"$": ("ドル",), "€": ("ユーロ",), "£": ("ポンド",), "¥": ("円",), "￥": ("円",)},
    },
    order="ymd",
    group=",",
    decimal=".",
    scales=r"[十百千万億兆]+",
)
KOREAN = Words(
    point="점",
    minus="마이너스",
    to="에서",
    symbols=_symbols("더하기 는 곱하기 나누기 그리고 골뱅이 슬래시 밑줄 번호 번호 절"),
    date="{y}년 {m}월 {d}일",
    clock="{h} 시 {m} 분",
    full_hour="{h} 시",
    cents="{a} {c}",
    money={
        **{"$": ("달러",), "€": ("유로",), "£": ("파운드",), "¥": ("엔",), "₩": ("원",)},
    },
    order="ymd",
    group=",",
    decimal=".",
    scales=r"[십백천만억조]+",
)
WORDS = {
    **{"de": GERMAN, "fr": FRENCH, "es": SPANISH, "it": ITALIAN, "pt": PORTUGUESE},
    **{"ru": RUSSIAN, "zh": CHINESE, "ja": JAPANESE, "ko": KOREAN},
}
CODES = {"USD": "$", "EUR": "€", "GBP": "£", "JPY": "¥", "RUB": "₽", "KRW": "₩", "BRL": "R$"}
CENT_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "ru": {"$": ("цент", "цента", "центов"), "₽": ("копейка", "копейки", "копеек")},
    "ko": {"$": ("센트",), "€": ("센트",)},
    "ja": {"$": ("セント",), "€": ("セント",)},
}
"""Said behind the hundredths where a language does not leave them out."""
CENTS_ALONE = {
    **{"de": {"€": "Cent", "$": "Cent"}, "fr": {"€": "centimes", "$": "cents"}},
    **{"es": {"€": "céntimos", "$": "centavos"}, "it": {"€": "centesimi", "$": "centesimi"}},
    **{"pt": {"€": "cêntimos", "$": "centavos", "R$": "centavos"}},
}
"""Said of an amount below one, where the languages leave them out of others."""

UNITS = {
    **{"km": "length-kilometer", "m": "length-meter", "cm": "length-centimeter"},
    **{"mm": "length-millimeter", "mi": "length-mile", "ft": "length-foot"},
    **{"kg": "mass-kilogram", "g": "mass-gram", "mg": "mass-milligram", "t": "mass-tonne"},
    **{"lb": "mass-pound", "lbs": "mass-pound", "oz": "mass-ounce", "l": "volume-liter"},
    **{"L": "volume-liter", "ml": "volume-milliliter", "mL": "volume-milliliter"},
    **{"km/h": "speed-kilometer-per-hour", "m/s": "speed-meter-per-second"},
    **{"mph": "speed-mile-per-hour", "m²": "area-square-meter", "m2": "area-square-meter"},
    **{"km²": "area-square-kilometer", "ha": "area-hectare", "m³": "volume-cubic-meter"},
    **{"°C": "temperature-celsius", "℃": "temperature-celsius", "°F": "temperature-fahrenheit"},
    **{"℉": "temperature-fahrenheit", "°": "angle-degree", "%": "concentr-percent"},
    **{"‰": "concentr-permille", "kB": "digital-kilobyte", "KB": "digital-kilobyte"},
    **{"MB": "digital-megabyte", "GB": "digital-gigabyte", "TB": "digital-terabyte"},
    **{"Mo": "digital-megabyte", "Go": "digital-gigabyte", "To": "digital-terabyte"},
    **{"Hz": "frequency-hertz", "kHz": "frequency-kilohertz", "MHz": "frequency-megahertz"},
    **{"GHz": "frequency-gigahertz", "W": "power-watt", "kW": "power-kilowatt"},
    **{"kWh": "energy-kilowatt-hour", "V": "electric-volt", "h": "duration-hour"},
    **{"min": "duration-minute", "s": "duration-second", "ms": "duration-millisecond"},
    **{"км": "length-kilometer", "м": "length-meter", "см": "length-centimeter"},
    **{"мм": "length-millimeter", "кг": "mass-kilogram", "мг": "mass-milligram"},
    **{"т": "mass-tonne", "л": "volume-liter", "мл": "volume-milliliter"},
    **{"км/ч": "speed-kilometer-per-hour", "м/с": "speed-meter-per-second"},
    **{"ГБ": "digital-gigabyte", "МБ": "digital-megabyte", "кВт": "power-kilowatt"},
    **{"ч": "duration-hour", "мин": "duration-minute", "сек": "duration-second"},
}
"""Signs behind a number -> CLDR units."""
_TIMES = "duration-hour duration-minute duration-second duration-millisecond"
FEMININE_UNITS = {
    "de": f"{_TIMES} length-mile mass-tonne",
    "fr": f"{_TIMES} mass-tonne mass-ounce",
    "es": "duration-hour length-mile mass-tonne mass-ounce mass-pound",
    "it": "duration-hour mass-tonne mass-ounce mass-pound",
    "pt": "duration-hour length-mile mass-tonne mass-ounce mass-pound",
    "ru": "duration-minute duration-second duration-millisecond length-mile mass-tonne mass-ounce",
}
FEMININE_MONEY = {"fr": "£", "es": "£", "it": "£", "pt": "£", "ru": "¥"}
