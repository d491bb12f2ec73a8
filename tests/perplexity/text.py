"""Writes the text that perplexity is measured on to the file that is named: the beginning of some articles of the English
Wikipedia (CC BY-SA, so it is not kept here), which the Python package gensim carries for its own tests. Needs gensim 4.4.0:

    python3 -m pip install --target DIR gensim==4.4.0 && PYTHONPATH=DIR python3 text.py FILE
"""

import bz2
import hashlib
import html
import pathlib
import re
import sys

import gensim
from gensim.corpora.wikicorpus import extract_pages, filter_wiki

DUMP = "test/test_data/enwiki-latest-pages-articles1.xml-p000000010p000030302-shortened.bz2"
BYTES = 48 * 1024
SHA256 = "c98f29d9722641b402ed2f4ae928832cc54d11768222c2b4ef983ee0c31069cd"

# In this order: what is taken out of an article before and after gensim removes markup, and what takes its place.
BEFORE = [
    (r"(?is)<!--.*?-->", ""),
    (r"(?is)<ref[^>]*/>", ""),
    (r"(?is)<ref[^>]*>.*?</ref>", ""),
]
AFTER = [
    (r"<[^>]+>", ""),
    (r"'{2,}", ""),  # bold, italic
    (r"(?m)^\s*=+\s*(.*?)\s*=+\s*$", r"= \1 ="),  # headings
    (r"(?m)^[*#:;|!{}].*$", ""),  # lists and tables
    (r"(?m)^\s*(thumb|File:|Image:|Category:).*$", ""),
    (r"\n\s*\n+", "\n\n"),
    (r"[ \t]+", " "),
]


def substituted(text, rules):
    for pattern, by in rules:
        text = re.sub(pattern, by, text)
    return text


def articles():
    dump = pathlib.Path(gensim.__file__).parent / DUMP
    for title, text, _ in extract_pages(bz2.open(dump), ("0",)):
        if text is None or re.match(r"(?i)\s*#redirect", text):
            continue
        text = html.unescape(filter_wiki(substituted(text, BEFORE)))
        text = substituted(text, AFTER).strip()
        if len(text) >= 2000:
            yield f"= {title} =\n\n{text}\n\n\n"


out = b""
for article in articles():
    out += article.encode()
    if len(out) >= BYTES:
        break
out = out[:BYTES].decode(errors="ignore").encode()
found = hashlib.sha256(out).hexdigest()
if found != SHA256:
    sys.exit(f"the text's SHA-256 is {found}, not {SHA256}")
pathlib.Path(sys.argv[1]).write_bytes(out)
