#!/usr/bin/env python3
"""Expected values for the emulator's tests, computed with exact rational arithmetic (no numpy, no hardware floats).

    python3 make.py        writes conversions.tsv and arithmetic.tsv beside this file (about two minutes)

conversions.tsv: name, number of inputs, CRC-32 of all results (little endian, in the order of the inputs).
arithmetic.tsv: operation, rounding, format, operands and result as hexadecimal bit patterns.
NaN results are the format's canonical one. Inputs are given by the small generators below; the Rust tests have the same.
"""
import os, random, struct, zlib
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))


class Format:
    def __init__(self, name, precision, exponent, nan, finite=False):
        self.name, self.precision, self.exponent, self.nan, self.finite = name, precision, exponent, nan, finite
        self.bits = precision + exponent
        self.bias = (1 << (exponent - 1)) - 1
        self.emin = 1 - self.bias
        self.frac = precision - 1
        self.inf = ((1 << exponent) - 1) << self.frac
        self.max = (nan & ((1 << (self.bits - 1)) - 1)) - 1 if finite else self.inf - 1

    def value(self, b):
        """A Fraction, or 'nan', 'inf', '-inf'; and the sign bit."""
        sign = b >> (self.bits - 1) & 1
        body = b & ((1 << (self.bits - 1)) - 1)
        if self.finite:
            if body == self.nan & ((1 << (self.bits - 1)) - 1):
                return 'nan', sign
        elif body >= self.inf:
            return ('nan' if body > self.inf else '-inf' if sign else 'inf'), sign
        e, f = body >> self.frac, body & ((1 << self.frac) - 1)
        v = Fraction(f) * Fraction(2) ** (self.emin - self.frac) if e == 0 else \
            Fraction(f + (1 << self.frac)) * Fraction(2) ** (e - self.bias - self.frac)
        return (-v if sign else v), sign

    def round(self, v, sign, mode, satfinite=False):
        """The bits of v (Fraction or word) rounded; sign is that of a zero."""
        top = 1 << (self.bits - 1)
        over = self.nan if self.finite else self.inf
        if v == 'nan':
            return self.nan
        if v in ('inf', '-inf'):
            return (top if v == '-inf' else 0) | (self.max if satfinite else over)
        if v == 0:
            return top if sign else 0
        neg, a = v < 0, abs(v)
        # a lies in [2^e, 2^(e+1))
        e = a.numerator.bit_length() - a.denominator.bit_length()
        if Fraction(2) ** e > a:
            e -= 1
        e = max(e, self.emin)
        unit = Fraction(2) ** (e - self.frac)
        q = a / unit
        n = q.numerator // q.denominator
        rest = q - n
        if mode == 'rn':
            n += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and n & 1)
        elif mode == 'rna':
            n += rest >= Fraction(1, 2)
        elif mode == 'rp':
            n += rest > 0 and not neg
        elif mode == 'rm':
            n += rest > 0 and neg
        body = ((e - self.emin) << self.frac) + n
        if body > self.max:
            away = mode in ('rn', 'rna') or (mode == 'rp' and not neg) or (mode == 'rm' and neg)
            body = over if away and not satfinite else self.max
        return (top if neg else 0) | body


F16 = Format('f16', 11, 5, 0x7fff)
BF16 = Format('bf16', 8, 8, 0x7fff)
F32 = Format('f32', 24, 8, 0x7fffffff)
F64 = Format('f64', 53, 11, 0xfff8000000000000)
E4M3 = Format('e4m3', 4, 4, 0x7f, finite=True)
E5M2 = Format('e5m2', 3, 5, 0x7f)
TF32 = Format('tf32', 11, 8, 0x3ffff)
LOWS = [0, 1, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff]


def f32_inputs():
    """Every sign, exponent and upper fraction with telling lower halves."""
    for high in range(0, 65536, 3):
        for low in LOWS:
            yield high << 16 | low


def conversions():
    out = []

    def table(name, source, target, inputs, width, mode, satfinite=False, after=lambda x: x):
        data = bytearray()
        n = 0
        for b in inputs:
            v, sign = source.value(b)
            data += after(target.round(v, sign, mode, satfinite)).to_bytes(width, 'little')
            n += 1
        out.append(f'{name}\t{n}\t{zlib.crc32(bytes(data)):08x}')

    table('f16_to_f32', F16, F32, range(65536), 4, 'rn')
    table('bf16_to_f32', BF16, F32, range(65536), 4, 'rn')
    table('e4m3_to_f16', E4M3, F16, range(256), 2, 'rn')
    table('e5m2_to_f16', E5M2, F16, range(256), 2, 'rn')
    table('f16_to_e4m3', F16, E4M3, range(65536), 1, 'rn', True)
    table('f16_to_e5m2', F16, E5M2, range(65536), 1, 'rn', True)
    table('f16_to_bf16', F16, BF16, range(65536), 2, 'rn')
    table('bf16_to_f16', BF16, F16, range(65536), 2, 'rn')
    for mode in ('rn', 'rz', 'rm', 'rp'):
        table(f'f32_to_f16_{mode}', F32, F16, f32_inputs(), 2, mode)
    for mode in ('rn', 'rz', 'rm', 'rp'):
        table(f'f32_to_bf16_{mode}', F32, BF16, f32_inputs(), 2, mode)
    table('f32_to_e4m3', F32, E4M3, f32_inputs(), 1, 'rn', True)
    table('f32_to_e5m2', F32, E5M2, f32_inputs(), 1, 'rn', True)
    table('f32_to_tf32_rna', F32, TF32, f32_inputs(), 4, 'rna', after=lambda x: 0x7fffffff if x == 0x3ffff else x << 13)
    return out


def exact(op, values, signs, mode):
    """The exact result of an operation: (value, sign of a zero); square roots are bracketed by a longer Fraction."""
    if op == 'sqrt':
        v, s = values[0], signs[0]
        if v == 'nan' or v == '-inf' or (v not in ('inf',) and v < 0):
            return 'nan', 0
        if v == 'inf' or v == 0:
            return v, s
        # floor(sqrt(v * 4^k)) / 2^k, plus a little when not exact: enough bits for any rounding here.
        k = 700
        n = v.numerator * 4 ** k // v.denominator
        r = int_sqrt(n)
        out = Fraction(r, 2 ** k)
        return (out if out * out == v else out + Fraction(1, 2 ** (k + 2))), 0
    a, b = values[0], values[1]
    if 'nan' in values:
        return 'nan', 0
    inf = lambda x: x in ('inf', '-inf')
    word = lambda s: '-inf' if s else 'inf'
    if op in ('mul', 'fma'):
        s = signs[0] ^ signs[1]
        if inf(a) or inf(b):
            p = 'nan' if a == 0 or b == 0 else word(s)
        else:
            p = a * b
        if op == 'mul':
            return p, s
        return exact('add', [p, values[2]], [s, signs[2]], mode)
    if op == 'add':
        if a == 'nan' or b == 'nan' or (inf(a) and inf(b) and a != b):
            return 'nan', 0
        if inf(a) or inf(b):
            return (a if inf(a) else b), 0
        v = a + b
        same = a == 0 and b == 0 and signs[0] == signs[1]
        return v, signs[0] if same else int(mode == 'rm')
    if op == 'div':
        s = signs[0] ^ signs[1]
        if (inf(a) and inf(b)) or (a == 0 and b == 0):
            return 'nan', 0
        if inf(a) or b == 0:
            return word(s), s
        if inf(b):
            return Fraction(0), s
        return a / b, s
    raise ValueError(op)


def int_sqrt(n):
    import math
    return math.isqrt(n)


def interesting(fmt, rng):
    """A bit pattern: an edge or a random number, often close to 1 so that operands meet."""
    top = 1 << (fmt.bits - 1)
    kind = rng.randrange(10)
    if kind == 0:
        return rng.choice([0, 1, 2, fmt.inf, fmt.inf - 1, fmt.inf + 1, (1 << fmt.frac), (1 << fmt.frac) - 1]) | rng.choice([0, top])
    if kind < 4:
        return rng.getrandbits(fmt.bits)
    e = fmt.bias + rng.randrange(-4, 5)
    f = rng.getrandbits(fmt.frac)
    if rng.randrange(3) == 0:
        f &= ~((1 << (fmt.frac // 2)) - 1)
    return e << fmt.frac | f | rng.choice([0, top])


def arithmetic():
    rng = random.Random(20240601)
    out = []
    for fmt, modes, count in ((F32, ('rn', 'rz', 'rm', 'rp'), 40), (F64, ('rn', 'rz', 'rm', 'rp'), 40),
                              (F16, ('rn',), 150), (BF16, ('rn',), 150)):
        for op, arity in (('add', 2), ('mul', 2), ('fma', 3), ('div', 2), ('sqrt', 1)):
            if fmt.bits == 16 and op in ('div', 'sqrt'):
                continue
            for mode in modes:
                for _ in range(count):
                    operands = [interesting(fmt, rng) for _ in range(arity)]
                    if op == 'fma' and rng.randrange(3) == 0:
                        # A sum that nearly cancels, and one far below.
                        p, s = exact('mul', [fmt.value(operands[0])[0], fmt.value(operands[1])[0]],
                                     [fmt.value(operands[0])[1], fmt.value(operands[1])[1]], mode)
                        operands[2] = fmt.round(p, s, 'rz') ^ 1 << (fmt.bits - 1)
                    pairs = [fmt.value(o) for o in operands]
                    v, sign = exact(op, [p[0] for p in pairs], [p[1] for p in pairs], mode)
                    if v == 'nan' and fmt is F64:
                        continue  # f64 keeps payloads: tested by hand
                    result = fmt.round(v, sign, mode)
                    fields = [op, mode, fmt.name, ','.join(f'{o:x}' for o in operands), f'{result:x}']
                    out.append('\t'.join(fields))
    return out


for name, lines in (('arithmetic.tsv', arithmetic()), ('conversions.tsv', conversions())):
    with open(os.path.join(HERE, name), 'w') as f:
        f.write('\n'.join(lines) + '\n')
    print(name, len(lines), 'lines')
