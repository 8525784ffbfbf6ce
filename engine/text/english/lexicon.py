"""Words to phonemes: CMUdict look-up, weak forms, suffixes, compounds, letter-to-sound rules.

A pronunciation is a string of one-character phonemes (the alphabet in phonemes.py) with `ˈ` or
`ˌ` before a stressed vowel. Pure; a lexicon is shared and never changes once loaded.
"""

import gzip
from functools import lru_cache
from pathlib import Path

from playhead.engine.errors import CheckpointError
from playhead.engine.text.english.phonemes import SOUNDS_OPEN

LEXICON_FILE = "lexicon.txt.gz"
VOWELS = frozenset("AIOWYiuæɑɔəɛɜɪʊʌ")

WEAK = {
    **{"a": "ə", "an": "ən", "the": "ðə", "of": "əv", "to": "tə", "and": "ænd", "in": "ɪn"},
    **{"on": "ɔn", "at": "æt", "for": "fɔɹ", "with": "wɪð", "from": "fɹʌm", "by": "bI"},
    **{"as": "æz", "is": "ɪz", "was": "wʌz", "are": "ɑɹ", "were": "wɜɹ", "be": "bi"},
    **{"been": "bɪn", "it": "ɪt", "its": "ɪts", "he": "hi", "she": "ʃi", "we": "wi"},
    **{"they": "ðA", "you": "ju", "your": "jʊɹ", "my": "mI", "his": "hɪz", "her": "hɜɹ"},
    **{"our": "Wɹ", "their": "ðɛɹ", "me": "mi", "him": "hɪm", "them": "ðɛm", "us": "ʌs"},
    **{"or": "ɔɹ", "but": "bʌt", "that": "ðæt", "this": "ðɪs", "if": "ɪf", "than": "ðæn"},
    **{"can": "kæn", "will": "wɪl", "would": "wʊd", "could": "kʊd", "should": "ʃʊd"},
    **{"have": "hæv", "has": "hæz", "had": "hæd", "do": "du", "does": "dʌz", "did": "dɪd"},
    **{"so": "sO", "i": "I", "am": "æm", "i'm": "Im", "i'll": "Il", "i've": "Iv"},
    **{"it's": "ɪts", "into": "ɪntu"},
}
"""Function words inside a phrase: their stressed forms make the voice shout them."""
STRONG_BEFORE_PAUSE = frozenset(
    "of to in on at for with from by is was are were be it he she we they you me him them us "
    "that this can will would could should have has had do does did so am".split()
)
"""Weak words that take their full form before a pause ('I can.', 'what for?')."""
LETTERS = {
    **{"A": "ˈA", "B": "bˈi", "C": "sˈi", "D": "dˈi", "E": "ˈi", "F": "ˈɛf", "G": "ʤˈi"},
    **{"H": "ˈAʧ", "I": "ˈI", "J": "ʤˈA", "K": "kˈA", "L": "ˈɛl", "M": "ˈɛm", "N": "ˈɛn"},
    **{"O": "ˈO", "P": "pˈi", "Q": "kjˈu", "R": "ˈɑɹ", "S": "ˈɛs", "T": "tˈi", "U": "jˈu"},
    **{"V": "vˈi", "W": "dˈʌbəlju", "X": "ˈɛks", "Y": "wˈI", "Z": "zˈi"},
}
OWN = {"ok": "OkˈA", "o'clock": "əklˈɑk", "app": "ˈæp", "apps": "ˈæps", "wifi": "wˈIfˌI"}
SUFFIXES = (
    ("ing", "ɪŋ"),
    ("ness", "nəs"),
    ("less", "ləs"),
    ("ment", "mənt"),
    ("able", "əbəl"),
    ("er", "əɹ"),
    ("est", "əst"),
    ("ly", "li"),
    ("ed", "d"),
    ("s", "z"),
)
RULES = (
    *(("tion", "ʃən"), ("sion", "ʒən"), ("cious", "ʃəs"), ("tious", "ʃəs"), ("ough", "ˈO")),
    *(("eigh", "ˈA"), ("igh", "ˈI"), ("tch", "ʧ"), ("sch", "sk"), ("dge", "ʤ"), ("ch", "ʧ")),
    *(("sh", "ʃ"), ("th", "θ"), ("ph", "f"), ("gh", "ɡ"), ("wh", "w"), ("wr", "ɹ")),
    *(("kn", "n"), ("ck", "k"), ("ng", "ŋ"), ("qu", "kw"), ("ee", "ˈi"), ("ea", "ˈi")),
    *(("oo", "ˈu"), ("ou", "ˈW"), ("ow", "ˈO"), ("oa", "ˈO"), ("ai", "ˈA"), ("ay", "ˈA")),
    *(("oi", "ˈY"), ("oy", "ˈY"), ("au", "ˈɔ"), ("aw", "ˈɔ"), ("ie", "ˈi"), ("ei", "ˈA")),
    *(("ar", "ˈɑɹ"), ("er", "əɹ"), ("ir", "ˈɜɹ"), ("or", "ˈɔɹ"), ("ur", "ˈɜɹ"), ("bb", "b")),
    *(("cc", "k"), ("dd", "d"), ("ff", "f"), ("gg", "ɡ"), ("ll", "l"), ("mm", "m")),
    *(("nn", "n"), ("pp", "p"), ("rr", "ɹ"), ("ss", "s"), ("tt", "t"), ("zz", "z")),
    *(("ce", "s"), ("ci", "sˈɪ"), ("cy", "si"), ("a", "ˈæ"), ("b", "b"), ("c", "k")),
    *(("d", "d"), ("e", "ˈɛ"), ("f", "f"), ("g", "ɡ"), ("h", "h"), ("i", "ˈɪ")),
    *(("j", "ʤ"), ("k", "k"), ("l", "l"), ("m", "m"), ("n", "n"), ("o", "ˈɑ"), ("p", "p")),
    *(("q", "k"), ("r", "ɹ"), ("s", "s"), ("t", "t"), ("u", "ˈʌ"), ("v", "v"), ("w", "w")),
    *(("x", "ks"), ("y", "i"), ("z", "z")),
)
"""Letters to sounds for words nothing else knows; the first match wins."""


class Lexicon:
    """Pronunciations of English words."""

    def __init__(self, entries: dict[str, str]) -> None:
        """Take word -> phonemes; words in lower case."""
        self._entries = entries

    def pronounce(self, word: str, before_pause: bool) -> list[str]:
        """Return the phonemes of a spoken word, one string a sounding word.

        A capital is a letter's name; an acronym that is no word is spelled, so several strings.
        What begins with SOUNDS_OPEN is phonemes already.
        """
        if word[0] == SOUNDS_OPEN:
            return [word[1:]]
        low = word.lower()
        if word.isupper() and word not in ("I", "OK"):
            if len(word) == 1:
                return [LETTERS[word]]
            if len(word) <= 3 or low not in self._entries:
                return [LETTERS[letter] for letter in word if letter in LETTERS]
        if low in OWN:
            return [OWN[low]]
        if low in WEAK and not (before_pause and low in STRONG_BEFORE_PAUSE):
            return [WEAK[low]]
        return [self._known(low) or self._derived(low) or by_rule(low)]

    def _known(self, word: str) -> str | None:
        found = self._entries.get(word)
        if found is None and word in WEAK:
            return WEAK[word]
        return found

    def _derived(self, word: str) -> str | None:
        """Return base plus suffix, or two known words written as one."""
        if word.endswith("'s") or word.endswith("s'"):
            base = self._known(word[:-2])
            return base + _plural(base) if base else None
        for suffix, sound in SUFFIXES:
            stem = word.removesuffix(suffix)
            if stem == word or len(stem) < 3:
                continue
            base = self._known(stem) or (self._known(stem + "e") if suffix[0] in "aei" else None)
            if base is None and suffix[0] in "aei" and stem[-1] == stem[-2]:
                base = self._known(stem[:-1])
            if base:
                return base + (_plural(base) if suffix == "s" else _past(base, suffix, sound))
        return self._compound(word)

    def _compound(self, word: str) -> str | None:
        middle = len(word) / 2
        cuts = sorted(range(3, len(word) - 2), key=lambda cut: abs(cut - middle))
        for cut in cuts:
            head, tail = self._entries.get(word[:cut]), self._entries.get(word[cut:])
            if head and tail:
                return head + tail.replace("ˈ", "ˌ")
        return None


def _plural(base: str) -> str:
    if base[-1] in "szʃʒʧʤ":
        return "ɪz"
    return "s" if base[-1] in "ptkfθ" else "z"


def _past(base: str, suffix: str, sound: str) -> str:
    if suffix != "ed":
        return sound
    if base[-1] in "td":
        return "ɪd"
    return "t" if base[-1] in "pkfsʃʧθ" else "d"


def by_rule(word: str) -> str:
    """Return a guess from letters alone; the first vowel carries the stress."""
    sounds: list[str] = []
    at, stressed = 0, False
    while at < len(word):
        for letters, sound in RULES:
            if not word.startswith(letters, at):
                continue
            final_e = letters == "e" and at == len(word) - 1 and len(word) > 2
            if not final_e:
                sounds.append(sound.replace("ˈ", "") if stressed else sound)
                stressed = stressed or "ˈ" in sound
            at += len(letters)
            break
        else:
            at += 1
    return "".join(sounds)


@lru_cache(maxsize=4)
def load_lexicon(folder: Path) -> Lexicon:
    """Load the lexicon of a checkpoint folder (about 0.15 s, then kept).

    Raises CheckpointError when the file is missing.
    """
    path = folder / LEXICON_FILE
    if not path.is_file():
        raise CheckpointError(f"{path} is missing: the English front end needs its lexicon")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        entries = dict(line.rstrip("\n").split("\t") for line in lines)
    return Lexicon(entries)
