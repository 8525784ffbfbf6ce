"""The reader: figures, abbreviations and signs in the engine's ten languages."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from playhead.engine.text.spoken.guess import LANGUAGES
from playhead.engine.text.spoken.reader import Reader
from playhead.engine.text.spoken.words import WORDS
from playhead.engine.text.staged import Span

pytest.importorskip("babel")
pytest.importorskip("unicode_rbnf")


def spans_of(language: str | None, parts: list[str]) -> list[Span]:
    reader = Reader(language)
    return [span for part in parts for span in reader.push(part)] + reader.close()


def read(language: str | None, text: str) -> str:
    return "".join(span.spoken for span in spans_of(language, [text]))


CASES = [
    (
        "de",
        "1.234.567 Leute",
        "eine Million zweihundertvierunddreißigtausendfünfhundertsiebenundsechzig Leute",
    ),
    ("de", "10.000.000", "zehn Millionen"),
    ("de", "42,50 € und 5 Mio. €", "zweiundvierzig Euro fünfzig und fünf Millionen Euro"),
    ("de", "Am 3. März, der 3. März", "Am dritten März, der dritte März"),
    (
        "de",
        "am 01.03.2024 um 15:30 Uhr",
        "am ersten März zweitausendvierundzwanzig um fünfzehn Uhr dreißig",
    ),
    ("de", "seit 1998", "seit neunzehnhundertachtundneunzig"),
    (
        "de",
        "25 °C, 100 km/h, 5 %",
        "fünfundzwanzig Grad Celsius, einhundert Kilometer pro Stunde, fünf Prozent",
    ),
    ("de", "z. B. Nr. 7 usw. Ende", "zum Beispiel Nummer sieben und so weiter. Ende"),
    ("de", "1 Stunde", "1 Stunde"),
    ("de", "die 3. Tür. Es sind 3. Und", "die dritte Tür. Es sind drei. Und"),
    ("de", "v1.2.3 und 3-5 Tage", "v eins Punkt zwei Punkt drei und drei bis fünf Tage"),
    (
        "fr",
        "Le 1er mars 1998, à 14h30",
        "Le premier mars mille neuf cent quatre-vingt-dix-huit, à quatorze heures trente",
    ),
    (
        "fr",
        "1 234 567 gens",
        "un million deux cent trente-quatre mille cinq cent soixante-sept gens",
    ),
    ("fr", "42,50 € ou 3,5 km", "quarante-deux euros cinquante ou trois virgule cinq kilomètres"),
    (
        "fr",
        "M. Dupont au 01 23 45 67 89",
        "monsieur Dupont au zéro un, deux trois, quatre cinq, six sept, huit neuf",
    ),
    ("es", "El 1 de marzo de 1998", "El uno de marzo de mil novecientos noventa y ocho"),
    (
        "es",
        "$1.250,75 y 50%",
        "mil doscientos cincuenta dólares con setenta y cinco y cincuenta por ciento",
    ),
    ("es", "5 millones € en el 3.º piso", "cinco millones de euros en el tercer piso"),
    ("it", "Il 1 marzo alle 15:30", "Il primo marzo alle quindici e trenta"),
    (
        "it",
        "42,50 €, 1.000.000 di persone, ecc. Fine",
        "quarantadue euro e cinquanta, un milione di persone, eccetera. Fine",
    ),
    ("pt", "custa R$ 42,50", "custa quarenta e dois reais e cinquenta"),
    ("pt", "às 15h30, 21%", "às quinze e trinta, vinte e um por cento"),
    (
        "ru",
        "1 марта 1998 г. в 15:30",
        "первого марта тысяча девятьсот девяносто восьмого года в пятнадцать тридцать",
    ),
    ("ru", "42,50 ₽ и 21 км", "сорок два рубля пятьдесят копеек и двадцать один километр"),
    (
        "ru",
        "в 1998 году, и т. д. Конец",
        "в тысяча девятьсот девяносто восьмом году, и так далее. Конец",
    ),
    ("zh", "2024年3月5日，我有2个苹果", "二零二四年三月五日，我有两个苹果"),
    ("zh", "￥42.50，25℃，50%，5km", "四十二点五元，二十五摄氏度，百分之五十，五公里"),
    ("zh", "15:05，13812345678，3-5天", "十五点零五分，一三八一二三四五六七八，三到五天"),
    ("ja", "2024年3月5日、3つで1,250円", "二千二十四年三月五日、三つで千二百五十円"),
    ("ja", "03-1234-5678に電話、10km", "ゼロ三、一二三四、五六七八に電話、十キロメートル"),
    ("ko", "2024년 6월 5일, 사과 3개", "이천이십사년 유월 오일, 사과 세 개"),
    ("ko", "3시 30분, $42.50", "세 시 삼십분, 사십이 달러 오십 센트"),
    (
        "en",
        "On March 3rd, 1998 at 7:30 PM",
        "On March third, nineteen ninety eight at seven thirty PM",
    ),
    ("en", "Dr. Smith paid $5 million.", "doctor Smith paid five million dollars."),
    (
        "en",
        "1,234.56 or $1,000,000",
        "one thousand two hundred thirty four point five six or one million dollars",
    ),
    ("en", "5 kg of well-known v2", "five kilograms of well-known V two"),
    ("en", "mail bob@example.com (50%)", "mail bob at example dot com fifty percent,"),
    (
        "en",
        "on 2026-11-29 in v1.2.3",
        "on november twenty ninth, twenty twenty six in V one point two point three",
    ),
    (
        "en",
        "Call +1 415 555 0100 now",
        "Call plus one four one five, five five five, zero one zero zero now",
    ),
    (
        "en",
        "+44 20 7946 0958.",
        "plus forty four two zero, seven nine four six, zero nine five eight.",
    ),
    (
        "en",
        "In 2024 1500 people, +5 10",
        "In twenty twenty four fifteen hundred people, plus five ten",
    ),
    (
        "en",
        "-$5 and $-5.50, ¥500, 5¢",
        "minus five dollars and minus five dollars and fifty cents, five hundred yen, five cents",
    ),
    ("en", "$5-10M at 9am-5pm", "five to ten million dollars at nine AM to five PM"),
    (
        "en",
        "<5 kg, ≥3, ±2, ≠1",
        "less than five kilograms, at least three, plus or minus two, is not one",
    ),
    ("en", "2½ cups, 50/50, 10^6", "two and one half cups, fifty fifty, ten to the power of six"),
    ("en", "20 kWh at 5 m/s in C#", "twenty kilowatt hours at five meters per second in C sharp"),
    (
        "de",
        "$1,000,000 oder $1,234.50",
        "eine Million Dollar oder eintausendzweihundertvierunddreißig Dollar fünfzig",
    ),
    (
        "de",
        "Ruf 0171 2345678 an",
        "Ruf null eins sieben eins, zwei drei vier fünf sechs sieben acht an",
    ),
    (
        "de",
        "5-10 €, 9:00-17:00, −5 °C",
        "fünf bis zehn Euro, neun Uhr bis siebzehn Uhr, minus fünf Grad Celsius",
    ),
    (
        "fr",
        "1,234.56 ou 5-10 €",
        "mille deux cent trente-quatre virgule cinq six ou cinq à dix euros",
    ),
    ("de", "am 24.12. um 15.30 Uhr", "am vierundzwanzigsten Dezember um fünfzehn Uhr dreißig"),
    ("de", "Es steht 3:2.", "Es steht drei zu zwei."),
    ("de", "die 90er, 3/4 Liter", "die neunziger, drei Viertel Liter"),
    ("de", "1½ Stunden, Version 3.5.", "eineinhalb Stunden, Version drei Komma fünf."),
    ("fr", "5 millions €, 3/4, 1/2 tasse", "cinq millions d'euros, trois quarts, 1/2 tasse"),
    ("fr", "le 24/12, 3:1", "le vingt-quatre décembre, trois à un"),
    ("es", "US$ 5, 1/3 de 12/8", "cinco dólares, un tercio de doce entre ocho"),
    ("it", "alle 14.30, l'1:00", "alle quattordici e trenta, l'una in punto"),
    ("it", "il 3° posto a 30°", "il terzo posto a trenta gradi"),
    ("pt", "US$ 5, 3/4, 2½", "cinco dólares, três quartos, dois e meio"),
    ("ru", "80-е и 1-е", "восьмидесятые и первое"),
    ("ru", "2 млн, 3 тыс. и 2,5 млн", "два миллиона, три тысячи и два с половиной миллиона"),
    (
        "ru",
        "8 (800) 555-35-35",
        "восемь, восемь ноль ноль, пять пять пять, три пять, три пять",
    ),
    ("ru", "3:2, 2/3, 10-12 лет", "три два, две третьих, десять – двенадцать лет"),
    ("zh", "1/2杯，3:0，CA1234", "二分之一杯，三比零，CA 一二三四"),
    ("zh", "12/24，15：30", "十二月二十四日，十五点三十分"),
    ("ja", "10〜12人、1/2、3:2", "十から十二人、二分の一、三対二"),
    ("ko", "제3장, 3개월, 5달러, 3개", "제삼장, 삼개월, 오달러, 세 개"),
    ("ko", "10~12명, 3:2, 1/2", "십에서 열두 명, 삼 대 이, 이분의 일"),
    ("en", "20€, 5 € or 12.50€", "twenty euros, five euros or twelve euros and fifty cents"),
    ("en", "16:9 and 10:15", "sixteen to nine and ten fifteen"),
    ("en", "1 1/2 of 5G in 4K", "one and one half of five G in four K"),
    ("en", "ISBN 978-3-16", "ISBN nine seven eight, three, one six"),
    ("en", "10.0.0.1 on 6 May", "ten dot zero dot zero dot one on sixth of May"),
    ("en", "-40 °F, 1000000", "minus forty degrees fahrenheit, one million"),
    ("en", "Henry VIII, Rocky IV, the IV", "Henry the eighth, Rocky four, the IV"),
    ("en", "mid-1990s, iOS 17.4.1,", "mid nineteen nineties, iOS seventeen point four point one,"),
    ("en", "my_name@mail.com", "my underscore name at mail dot com"),
    (
        "de",
        "0,50 €, 1914–1918",
        "fünfzig Cent, neunzehnhundertvierzehn bis neunzehnhundertachtzehn",
    ),
    ("pt", "R$ 0,50", "cinquenta centavos"),
    ("zh", "第2名，13：00～15：00", "第二名，十三点到十五点"),
    ("ja", "千代田区1-2-3、9:00〜17:00", "千代田区一の二の三、九時から十七時"),
    ("en", "me+you@mail.com", "me plus you at mail dot com"),
]


@pytest.mark.parametrize(("language", "text", "said"), CASES)
def test_figures_are_read_as_words(language: str, text: str, said: str) -> None:
    assert read(language, text) == said


@pytest.mark.parametrize(("language", "text"), [case[:2] for case in CASES])
def test_text_by_characters_is_read_the_same(language: str, text: str) -> None:
    spans = spans_of(language, list(text))
    assert "".join(span.source for span in spans) == text
    assert "".join(span.spoken for span in spans) == read(language, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Order 42 is 3.5 kg", "Order 42 is 3.5 kg"),
        ("42", "42"),
        ("You have the 3 apples", "You have the three apples"),
        ("Das ist nicht die 42.", "Das ist nicht die zweiundvierzig."),
        ("我有3个苹果", "我有三个苹果"),
        ("東京 3", "東京 3"),
        ("これは3つ", "これは三つ"),
        ("사과 3개", "사과 세 개"),
        ("У меня 5 книг", "У меня пять книг"),
        ("Це їхні 5 книг", "Це їхні 5 книг"),
        ("لدي 3 تفاحات", "لدي 3 تفاحات"),
    ],
)
def test_unknown_language_keeps_its_figures(text: str, said: str) -> None:
    assert read(None, text) == said


def test_every_language_of_the_checkpoints_is_covered() -> None:
    for code in set(LANGUAGES.values()):
        assert not any(char.isdigit() for char in read(code, "12:45, 17 %")), code


PIECES = st.sampled_from(
    [
        *list("01259 .,:/-+%€$()°\n'"),
        *(
            "km",
            "kg",
            "Uhr",
            " März",
            "1.000",
            "2024",
            "年",
            "个",
            "월",
            "개",
            " de marzo",
            "z. B. ",
        ),
        *(
            "usw. ",
            "Dr. ",
            "the ",
            "der ",
            "und ",
            "est ",
            "la ",
            "что",
            "今天",
            "です",
            "5 Mio. €",
        ),
        *("A", "EUR ", "h30", "er", "º", "１", "：", "&", "@", "_", "=", "\u00a0"),
    ]
)


@settings(max_examples=200, deadline=None)
@given(
    language=st.sampled_from([None, *sorted(set(LANGUAGES.values()))]),
    parts=st.lists(PIECES, max_size=16),
)
def test_any_text_is_read_the_same_however_it_is_cut(
    language: str | None, parts: list[str]
) -> None:
    text = "".join(parts)
    whole = spans_of(language, [text])
    for spans in (whole, spans_of(language, parts), spans_of(language, list(text))):
        assert "".join(span.source for span in spans) == text
        assert [span.spoken for span in spans if span.spoken != span.source] == [
            span.spoken for span in whole if span.spoken != span.source
        ]
        assert "".join(span.spoken for span in spans) == "".join(span.spoken for span in whole)


FIGURE_MARKS = st.lists(
    st.sampled_from(
        [
            *"0123456789.,:/-–−~+()'%° \u00a0\n",
            *"$€£¥₹₽½²<≠",
            "km",
            "h",
            "年",
            "Uhr",
            "½",
            "〜",
            "：",
            "er",
            "млн",
        ]
    ),
    max_size=16,
)


@settings(max_examples=200, deadline=None)
@given(parts=FIGURE_MARKS, code=st.sampled_from(["en", *WORDS]))
@example(parts=["²", "млн"], code="ru")
def test_figures_of_any_kind_are_read_whole_however_they_come(parts: list[str], code: str) -> None:
    text = "".join(parts)
    spans = spans_of(code, list(text))
    assert "".join(span.source for span in spans) == text
    assert "".join(span.spoken for span in spans) == read(code, text)
