"""Sentences for the teacher to read, all made here: no corpus is copied.

Agent talk from templates, everyday clauses from a small grammar, figures and spelled codes, short
answers, and word mixtures that reach every word of a list. Run:
`python -m training.sentences WORDS COUNT SEED > lines.txt` (WORDS: one word a line, frequent
first; without one, pass `-`).
"""

import random
import sys
from pathlib import Path

from training import vocabulary as vocab

AGENT_SHARE, CLAUSE_SHARE, FIGURE_SHARE, SHORT_SHARE = 0.25, 0.2, 0.12, 0.05
"""The rest is word mixtures: most words that are heard wrong are rare ones."""
RARE_WORDS = 1.4
"""1 draws all words of the list alike; above, the frequent ones more often."""
SECOND_SENTENCE_SHARE = 0.4


class Maker:
    """Makes sentences from one seed."""

    def __init__(self, words: list[str], seed: int) -> None:
        """Take the word list of the mixtures."""
        self._words = words
        self._random = random.Random(seed)

    def line(self) -> str:
        """Return one or two sentences."""
        first = self._sentence()
        if self._random.random() < SECOND_SENTENCE_SHARE:
            return f"{first} {self._sentence()}"
        return first

    def _sentence(self) -> str:
        draw = self._random.random()
        if draw < AGENT_SHARE:
            text = self._fill(self._pick(vocab.AGENT))
        elif (draw := draw - AGENT_SHARE) < CLAUSE_SHARE:
            text = self._clauses()
        elif (draw := draw - CLAUSE_SHARE) < FIGURE_SHARE:
            text = self._fill(self._pick(vocab.FIGURES))
        elif draw - FIGURE_SHARE < SHORT_SHARE:
            text = self._fill(self._pick(vocab.SHORT))
        else:
            text = self._mixture()
        return text[0].upper() + text[1:]

    def _pick(self, options: list[str]) -> str:
        return self._random.choice(options)

    def _fill(self, template: str) -> str:
        """Fill each slot on its own, so that repeated slots differ."""
        while "{" in template:
            start = template.index("{")
            end = template.index("}", start)
            value = self._slot(template[start + 1 : end])
            template = template[:start] + value + template[end + 1 :]
        return template

    def _slot(self, name: str) -> str:
        make = getattr(self, f"_{name}", None)
        return make() if make else self._pick(vocab.LISTS[name])

    def _clock(self) -> str:
        minute = self._random.choice((0, 0, 5, 10, 15, 20, 30, 40, 45, self._random.randint(1, 59)))
        half = self._pick([" AM", " PM", " a.m.", " p.m.", "am", "pm", ""])
        hour = self._random.randint(1, 12)
        return f"{hour}{half}" if minute == 0 and half else f"{hour}:{minute:02d}{half}"

    def _money(self) -> str:
        amount = self._random.choice((20, 100, 900, 10_000))
        whole = self._random.randint(1, amount)
        cents = self._pick(["", "", ".99", ".50", ".95", f".{self._random.randint(1, 99):02d}"])
        return f"${whole:,}{cents}"

    def _small(self) -> str:
        return str(self._random.randint(2, 30))

    def _number(self) -> str:
        return str(self._random.randint(10, self._random.choice((99, 999, 9999))))

    def _big(self) -> str:
        return f"{self._random.randint(1000, 999_999):,}"

    def _percent(self) -> str:
        return f"{self._random.randint(1, 100)}{self._pick(['%', ' percent'])}"

    def _place(self) -> str:
        number = self._random.randint(1, 31)
        ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
        return f"{number}{ending or 'th'}"

    def _date(self) -> str:
        month, day = self._pick(vocab.MONTHS), self._place()
        return self._pick([f"{month} {day}", f"the {day} of {month}", f"{month} {day[:-2]}"])

    def _year(self) -> str:
        return str(self._random.randint(1900, 2030))

    def _phone(self) -> str:
        area, head = self._random.randint(200, 999), self._random.randint(200, 999)
        tail = f"{self._random.randint(0, 9999):04d}"
        return self._pick([f"{area}-{head}-{tail}", f"{head}-{tail}", f"({area}) {head}-{tail}"])

    def _spell(self) -> str:
        letters = self._random.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=self._random.randint(3, 7))
        return self._pick([" ", ", "]).join(letters)

    def _digits(self) -> str:
        figures = self._random.choices("0123456789", k=self._random.randint(3, 7))
        return self._pick([" ", ", "]).join(figures)

    def _code(self) -> str:
        signs = self._random.choices("ABCDEFGHJKLMNPQRSTUVWXYZ0123456789", k=5)
        return self._pick([" ", ", ", ""]).join(signs)

    def _decimal(self) -> str:
        return f"{self._random.randint(0, 99)}.{self._random.randint(1, 99)}"

    def _clauses(self) -> str:
        text = self._fill(self._pick(vocab.CLAUSES))
        if self._random.random() < 0.45:
            joint = self._pick(vocab.JOINTS)
            text = f"{text}{joint}{self._fill(self._pick(vocab.CLAUSES))}"
        if self._random.random() < 0.18:
            return self._fill(self._pick(vocab.QUESTION_HEADS)) + f" {text}?"
        return text + self._pick([".", ".", ".", ".", "!"])

    def _word(self) -> str:
        """Prefer frequent words but reach all."""
        return self._words[int(len(self._words) * self._random.random() ** RARE_WORDS)]

    def _mixture(self) -> str:
        parts = []
        for _ in range(self._random.choice((1, 1, 2, 2))):
            part = self._pick(vocab.MIXTURES)
            while "{w}" in part:
                part = part.replace("{w}", self._word(), 1)
            parts.append(self._fill(part))
        return self._pick([", ", ", and "]).join(parts) + self._pick([".", ".", ".", "?"])


def main() -> None:
    """Write lines to standard output."""
    path, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    words = vocab.NOUNS + vocab.ADJECTIVES if path == "-" else Path(path).read_text().split()
    maker = Maker(words, seed)
    seen: set[str] = set()
    while len(seen) < count:
        line = maker.line()
        if 2 <= len(line) <= 190 and line not in seen:
            seen.add(line)
            print(line)


if __name__ == "__main__":
    main()
