"""The kinds of tokenizer.json that compare.py makes: each trained with the library itself."""

import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

import texts

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
GPT2_SHORT = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
U, L = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
LEAD = r"[^\r\n\p{L}\p{N}]?"
SLASH = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = LEAD + U + "*" + L + "+|" + LEAD + U + "+" + L + r"*|\p{N}" + SLASH
HAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
DEEPSEEK_CODER = ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", HAN]
FOLD = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    LEAD + U + "*" + L + "+" + FOLD + "|" + LEAD + U + "+" + L + "*" + FOLD + r"|\p{N}{1,3}" + SLASH
)


# DeepSeek-LLM, in this order; then Digits
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼ"
    "ℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄ"
    "Ⰰ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
DEEPSEEK_LLM = [
    "[\r\n]",
    r"\s?[" + CASED + "]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    HAN,
]
# DeepSeek-V3 and R1
DEEPSEEK_V3 = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
BLOOM = " ?[^(\\s|[.,!?…。，、।۔،])]+"
KIMI = (
    r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
EXAONE4 = LLAMA3.replace(r"\p{L}+", r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", 1).replace("{1,3}", "")
EXAONE4 = EXAONE4.replace(r"[\r\n]*|\s*[\r\n]+", r"[\r\n/]?|\s*[\r\n]")
BAILING = CL100K.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"\p{L}+|", r"[\p{L}\p{M}]+|", 1).replace(r"\s\p{L}", r"\s\p{L}\p{M}")
SEED = QWEN2.replace(r"+[\r\n]*", "+").replace(r"\s\p{L}\p{N}]", r"\s\p{L}\p{N}\r\n]")
WIDTHS = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1]
JAIS2 = LLAMA3.removesuffix(r"|\s*[\r\n]+|\s+(?!\S)|\s+") + "|".join(
    ["", *(r"\s{%d}(?!\S)" % n for n in WIDTHS), *(r"\s{%d}" % n for n in WIDTHS)]
)
AFMOE = (
    "[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+"
    r"|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
)
THOUSANDS = r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))"
# By what uses them; those that further models share stand once.
PATTERNS = {
    "GPT-2, Granite, StarCoder2, Command-R, SmolLM": GPT2,
    "ByteLevel": GPT2_SHORT,
    "Llama-3, Phi-4, GLM-4, OLMo-2, Falcon3, StableLM-2": LLAMA3,
    "cl100k": CL100K,
    "Qwen2, Qwen3": QWEN2,
    "Qwen3.5": QWEN35,
    "Mistral Nemo (tekken)": TEKKEN,
    "GPT-4o (o200k), Llama-4": O200K,
    **{"DeepSeek-Coder %d" % i: p for i, p in enumerate(DEEPSEEK_CODER)},
    **{"DeepSeek-LLM %d" % i: p for i, p in enumerate(DEEPSEEK_LLM)},
    **{"DeepSeek-V3 %d" % i: p for i, p in enumerate(DEEPSEEK_V3)},
    "BLOOM": BLOOM,
    "BLOOM without nesting": BLOOM.replace("[.", ".").replace("])", ")"),
    "Kimi-K2": KIMI,
    "EXAONE-4": EXAONE4,
    "Ling": BAILING,
    "Seed-Coder": SEED,
    "Jais-2": JAIS2,
    "AFMoE": AFMOE,
    "Falcon": "[0-9][0-9][0-9]",
    "Chameleon": r"<sentinel:[0-9]+>|(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z|([\t\n]|    |  )",
    "SuperBPE": r"(?=(\d{3})+(?!\d))",
    "thousands": THOUSANDS,
}


def split(regex, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(regex), behavior, invert)


def bytes_of(regex=None, prefix=False, **how):
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=regex is None)
    return pre_tokenizers.Sequence([split(regex, **how), last]) if regex else last


BEHAVIORS = ["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]


def behaving(how, invert):
    """A split by a pattern and by a text, of the same behavior."""
    by = [pre_tokenizers.Split(Regex(r"\s|[a-e]+?"), how, invert)]
    by += [pre_tokenizers.Split("l", how), pre_tokenizers.Split(".", how)]
    return lambda: byte_level(pre_tokenizers.Sequence([*by, bytes_of()]))


def byte_level(pre, normalizer=None, ignore_merges=False, post=None):
    t = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
    if normalizer:
        t.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        show_progress=False,
        special_tokens=["<s>", "</s>"],
        max_token_length=10,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    return t, trainer, post


def with_bytes(pre=None, normalizer=None, decoder=None, fallback=True, fuse=True, unk="<unk>"):
    t = Tokenizer(models.BPE(unk_token=unk, byte_fallback=fallback, fuse_unk=fuse))
    if pre:
        t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    if decoder:
        t.decoder = decoder
    special = ["<unk>", "<s>", "</s>"]
    if fallback:
        special += ["<0x%02X>" % b for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=2500,
        show_progress=False,
        special_tokens=special,
        limit_alphabet=300,
        max_token_length=12,
    )
    return t, trainer, processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])


def chain(strip=True):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + [decoders.Strip(" ", 1, 0)] * strip)


def metaspace(scheme, split_it):
    return pre_tokenizers.Metaspace("▁", prepend_scheme=scheme, split=split_it)


LLAMA2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
LLAMA3_POST = processors.Sequence(
    [
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<s> $A </s>", "<s> $A $B", [("<s>", 0), ("</s>", 1)]),
    ]
)

KINDS = {
    "gpt2": lambda: byte_level(bytes_of()),
    "gpt2-prefix": lambda: byte_level(bytes_of(prefix=True), post=processors.ByteLevel()),
    "gpt2-split": lambda: byte_level(bytes_of(GPT2)),
    "gpt2-short": lambda: byte_level(bytes_of(GPT2_SHORT)),
    "llama3": lambda: byte_level(bytes_of(LLAMA3), ignore_merges=True, post=LLAMA3_POST),
    "cl100k": lambda: byte_level(bytes_of(CL100K, behavior="removed", invert=True)),
    "qwen2": lambda: byte_level(bytes_of(QWEN2), normalizer=normalizers.NFC()),
    "smollm": lambda: byte_level(
        pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), bytes_of()])
    ),
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=False), bytes_of(prefix=True)]
        )
    ),
    "deepseek-coder": lambda: byte_level(
        pre_tokenizers.Sequence(
            [split(regex) for regex in DEEPSEEK_CODER]
            + [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "falcon3": lambda: byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                bytes_of(),
                pre_tokenizers.Digits(individual_digits=False),
                split("[0-9][0-9][0-9]"),
            ]
        )
    ),
    "tekken": lambda: byte_level(bytes_of(TEKKEN), ignore_merges=True),
    "o200k": lambda: byte_level(bytes_of(O200K)),
    "deepseek-llm": lambda: byte_level(
        pre_tokenizers.Sequence(
            [split(regex) for regex in DEEPSEEK_LLM]
            + [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "deepseek-v3": lambda: byte_level(
        pre_tokenizers.Sequence(
            [split(regex) for regex in DEEPSEEK_V3]
            + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    ),
    "bloom": lambda: byte_level(bytes_of(BLOOM)),
    "kimi": lambda: byte_level(bytes_of(KIMI, behavior="removed", invert=True)),
    "punctuation": lambda: byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Punctuation(how) for how in ("isolated", "merged_with_next")]
            + [bytes_of()]
        )
    ),
    **{"split-" + how: behaving(how, False) for how in BEHAVIORS},
    **{"inverse-" + how: behaving(how, True) for how in BEHAVIORS},
    "llama2": lambda: with_bytes(normalizer=LLAMA2, decoder=chain()),
    "mistral": lambda: with_bytes(metaspace("first", False), decoder=chain()),
    "gemma": lambda: with_bytes(
        pre_tokenizers.Split(" ", "merged_with_previous"),
        normalizers.Replace(" ", "▁"),
        chain(strip=False),
    ),
    "after-space": lambda: with_bytes(
        pre_tokenizers.Split(" ", "merged_with_previous"), decoder=chain(strip=False)
    ),
    "metaspace": lambda: with_bytes(
        metaspace("always", True),
        fallback=False,
        decoder=decoders.Metaspace(prepend_scheme="always"),
    ),
    "never": lambda: with_bytes(
        metaspace("never", True),
        fallback=False,
        fuse=False,
        decoder=decoders.Metaspace(prepend_scheme="never"),
    ),
    "nfc-first": lambda: with_bytes(
        metaspace("first", True),
        normalizers.NFC(),
        fuse=False,
        decoder=decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    ),
    "no-decoder": lambda: with_bytes(metaspace("always", False), fallback=False, unk=None),
}

ADDED = [
    AddedToken("<|im_start|>", special=True, normalized=False),
    AddedToken("<|im_end|>", special=True, normalized=False),
    AddedToken("<|im", special=False, normalized=False),
    AddedToken("<tool>", special=False, normalized=False, lstrip=True),
    AddedToken("</tool>", special=False, normalized=False, rstrip=True),
    AddedToken("<mask>", special=True, normalized=True, lstrip=True, rstrip=True),
    AddedToken("hello", special=False, normalized=True, single_word=True),
    AddedToken("hello world", special=False, normalized=True),
    AddedToken("wörd", special=False, normalized=False, single_word=True, lstrip=True),
    AddedToken("  ", special=False, normalized=False),
    AddedToken("\n\n", special=False, normalized=True),
    AddedToken("e\u0301t\u00e9", special=False, normalized=True),
    AddedToken("你好", special=True, normalized=True),
    AddedToken("▁▁▁", special=False, normalized=False),
    AddedToken("<", special=False, normalized=False, single_word=True),
]


def unsplit(tokenizer):
    if isinstance(tokenizer.decoder, decoders.ByteLevel):
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return metaspace("never", False)


def make(name, added, folder):
    """Trains a kind into folder/tokenizer.json; returns the library's tokenizer of that file."""
    path = os.path.join(folder, "tokenizer.json")
    tokenizer, trainer, post = KINDS[name]()
    # Trained on text that is not split, so that merges reach over the cuts: where a cut is then
    # missing or too much, other ids come out.
    split, tokenizer.pre_tokenizer = tokenizer.pre_tokenizer, unsplit(tokenizer)
    tokenizer.train_from_iterator(texts.corpus(), trainer)
    tokenizer.pre_tokenizer = split
    if post:
        tokenizer.post_processor = post
    if added:
        tokenizer.add_tokens(ADDED)
    os.makedirs(folder, exist_ok=True)
    tokenizer.save(path)
    return Tokenizer.from_file(path)
