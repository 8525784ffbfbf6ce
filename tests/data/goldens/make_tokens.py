"""Make the tokenizer goldens with the reference's transformers; README.md has the command.

Trains a small byte-level BPE on the strings themselves (the published vocabulary is not needed to
compare pre-tokens, normalisation and merges), then records what the reference's tokenizer class
makes of every string inside the chat wrapper.
"""

import json
import random
import tempfile
from pathlib import Path

from tokenizers import Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer

OUT = Path(__file__).parent / "qwen_bpe"
NUM_STRINGS = 500
NUM_TOKENS = 900
PHRASES = {
    "english": "Hello there|I'll call you back|don't worry|it's 7:30 pm|we've sent $12.50|"
    "Dr. Smith's e-mail|OK|the quick brown fox|U.S.A.|iPhone and eBay|re-check it|they're HERE",
    "german": "Grüß Gott|Straßenbahnhaltestelle|um 18.30 Uhr|ich weiß nicht|z. B. heute|"
    "Übermorgen früh|12,5 %|schön|„Guten Tag“|Äpfel",
    "spanish": "¿Qué tal?|¡Hola!|mañana por la mañana|el niño|3.000 euros|¿dónde está?|Año nuevo",
    "chinese": "你好世界|今天天气很好|我们明天见|一共是12元|请稍等|《红楼梦》|谢谢你|北京",
    "japanese": "こんにちは世界|今日はいい天気ですね|ありがとうございます|東京タワー|カタカナ|"
    "12時に会いましょう|がぎぐ|ﾊﾝｶｸ",
    "french": "ça va bien|l'été prochain|où est-il|déjà vu|« bonjour »|qu'est-ce que c'est|cœur",
    "korean": "안녕하세요|만나서 반갑습니다|오늘은 날씨가 좋아요|서울|12시에|감사합니다",
    "russian": "Привет, мир|как дела|спасибо большое|ёлка и йод|в 12 часов|Москва",
    "italian": "buongiorno a tutti|perché no|l'università|così così|è vero|16,99 €",
    "portuguese": "olá a todos|não sei|amanhã de manhã|coração|às 10h|informações",
    "arabic": "مرحبا بالعالم|كيف حالك؟|شكراً جزيلاً|السَّلامُ عَلَيْكُم|١٢ ساعة",
    "hindi": "नमस्ते दुनिया|आप कैसे हैं|धन्यवाद|क्षत्रिय",
    "marks": "👍🏽|👩‍👩‍👧‍👦|🇩🇪|e\u0301te\u0301|a\u0330\u0301|\u1112\u1161\u11ab|x\u0328\u0301|"
    "ﬁ|№5|1️⃣|…|—|“q”|(a/b)|https://a.b/c?d=e|#tag @me|**bold**|\u00a0|\u3000",
}
LANGUAGES = tuple(PHRASES)[:10]
JOINS = (
    " ",
    " ",
    " ",
    ", ",
    ". ",
    "! ",
    "? ",
    "\n",
    "\n\n",
    "  ",
    " \n ",
    "...",
    "。",
    ",",
    "-",
    "\t",
)


def strings() -> list[str]:
    pick = random.Random(5)
    made: list[str] = []
    while len(made) < NUM_STRINGS:
        own = PHRASES[LANGUAGES[len(made) % len(LANGUAGES)]].split("|")
        extra = PHRASES[pick.choice(("arabic", "hindi", "marks", "english"))].split("|")
        parts = [
            pick.choice(own if pick.random() < 0.8 else extra) for _ in range(pick.randint(1, 5))
        ]
        text = parts[0]
        for part in parts[1:]:
            text += pick.choice(JOINS) + part
        text += pick.choice(("", "", ".", "!", "?", " ", "…", "\n"))
        if text.lstrip("\r\n") == text and text not in made:  # spec section 2: a leading newline
            made.append(text)
    return made


def train(texts: list[str]) -> None:
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = normalizers.NFC()
    # The GPT-2 split of ByteLevel: merges learned here never depend on our own pattern.
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = BpeTrainer(vocab_size=NUM_TOKENS, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*texts, "assistant user " * 50], trainer)
    tokenizer.model.save(str(OUT))


def main() -> None:
    texts = strings()
    OUT.mkdir(exist_ok=True)
    train(texts)
    vocab = json.loads((OUT / "vocab.json").read_text(encoding="utf-8"))
    special = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    added = {
        str(len(vocab) + i): {"content": text, "special": True, **flags}
        for i, text in enumerate(special)
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": added,
        "add_prefix_space": False,
        "errors": "replace",
        "model_max_length": 4096,
    }
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("vocab.json", "merges.txt"):
            (folder / name).write_bytes((OUT / name).read_bytes())
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_tts"}))
        reference = AutoTokenizer.from_pretrained(str(folder), fix_mistral_regex=True)
    rows = []
    for text in texts:
        wrapped = f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n"
        ids = reference(wrapped)["input_ids"]
        start = len(reference("<|im_start|>assistant\n")["input_ids"])
        end = len(reference("<|im_end|>\n<|im_start|>assistant\n")["input_ids"])
        rows.append([text, ids[start:-end]])
    instruct = "speak\nslowly, s'il te plaît!"
    turn = reference(f"<|im_start|>user\n{instruct}<|im_end|>\n")["input_ids"]
    record = {
        "im_start": len(vocab) + 1,
        "im_end": len(vocab) + 2,
        "instruct": instruct,
        "turn": turn,
        "rows": rows,
    }
    with (OUT / "ids.json").open("w", encoding="utf-8") as file:
        json.dump(record, file, ensure_ascii=False)
    print(len(rows), "strings,", type(reference).__name__)


if __name__ == "__main__":
    main()
