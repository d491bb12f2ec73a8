"""Writes a model file's tokenizer as Hugging Face's libraries read one: load generators count tokens with it, offline.

    tokenizer.py MODEL.gguf FOLDER

Byte-level BPE only. Needs nothing but Python.
"""

import json
import mmap
import struct
import sys
from pathlib import Path

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
CONTROL = 3
# As its tokenizer has it: digits one by one, then the pieces of GPT-2.
SPLITS = {"smollm": [{"type": "Digits", "individual_digits": True}]}


class Reader:
    """GGUF's header and metadata."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self):
        length = self.scalar("Q")
        self.at += length
        return self.data[self.at - length : self.at].decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            element, length = self.scalar("I"), self.scalar("Q")
            return [self.value(element) for _ in range(length)]
        return self.scalar(SCALARS[kind])

    def metadata(self):
        if self.data[:4] != b"GGUF":
            sys.exit("this is no GGUF file")
        self.at = 4
        self.scalar("I")
        self.scalar("Q")
        return {self.string(): self.value(self.scalar("I")) for _ in range(self.scalar("Q"))}


def main():
    source, folder = map(Path, sys.argv[1:])
    with source.open("rb") as file:
        meta = Reader(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)).metadata()
    if meta["tokenizer.ggml.model"] != "gpt2":
        sys.exit(f"{source} has a tokenizer of the kind {meta['tokenizer.ggml.model']}; only byte-level BPE is known here")
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    special = [i for i, kind in enumerate(kinds) if kind == CONTROL]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": tokens[i], **flags} for i in special],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": SPLITS.get(meta.get("tokenizer.ggml.pre"), []) + [byte_level]},
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": meta["tokenizer.ggml.merges"],
        },
    }
    end = tokens[meta["tokenizer.ggml.eos_token_id"]]
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end, "pad_token": end, "clean_up_tokenization_spaces": False}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


main()
