//! Rotary position embedding, and keys and values into the paged cache.
//!
//! A block of the cache holds `[kv_head][d][token]` keys (a token is a lane of the score product) and `[kv_head][token][d]`
//! values, in f16. Beyond the range of f16 they are the largest finite value of their sign, not infinite: attention
//! multiplies a value that a row must not see by the probability 0, and 0 · ∞ would be NaN. A NaN stays one.

use tegula::prelude::*;

/// Which coordinates turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// (0, 1), (2, 3), …: GGUF's `llama` architecture.
    Adjacent,
    /// (0, d/2), (1, d/2 + 1), …: most others ("neox").
    Halves,
}

/// How heads are laid out in a merged QKV row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Heads {
    /// Query heads.
    pub q: usize,
    /// Key heads, as many as value heads.
    pub kv: usize,
    /// Which coordinates turn together.
    pub pairs: Pairs,
}

/// Turns a head by its angles. HD = d/2 pairs.
#[func]
fn rotate<HD: Dim>(
    x: Tile<f32, (Prod<HD, C<2>>,)>,
    cos: Tile<f32, (HD,)>,
    sin: Tile<f32, (HD,)>,
    pairs: Pairs,
) -> Tile<f32, (Prod<HD, C<2>>,)> {
    match pairs {
        Pairs::Adjacent => {
            let (a, b) = x.reshape::<(HD, C<2>)>().split();
            (a * cos - b * sin).join(a * sin + b * cos).reshape()
        }
        Pairs::Halves => {
            let x = x.reshape::<(C<2>, HD)>();
            let (a, b) = (x.slice::<0, C<1>>(0).reshape::<(HD,)>(), x.slice::<0, C<1>>(1).reshape::<(HD,)>());
            let (lo, hi) = (a * cos - b * sin, a * sin + b * cos);
            lo.reshape::<(One, HD)>().cat::<0, _>(hi.reshape::<(One, HD)>()).reshape()
        }
    }
}

/// As the cache keeps it: rounded to f16, saturated; a NaN stays one.
fn cached<S: Shape>(x: Tile<f32, S>) -> Tile<f16, S> {
    let largest = f16::MAX.to_f32();
    x.maximum_nan(-largest).minimum_nan(largest).cast()
}

/// For each token: turned queries into `q` [tokens, heads · d], turned keys and plain values, saturated, into the cache at
/// the token's slot.
///
/// `qkv` [tokens, (q + 2·kv) · d]: queries, keys, values. `cos`, `sin` [positions, d/2]. `positions[tokens]`. `slots[tokens]` =
/// block · block size + offset, negative for a token that is not stored. `k_cache` [blocks, kv, d, block size], `v_cache`
/// [blocks, kv, block size, d]. Dims: HD = d/2. Grid: tokens, q + 2·kv.
#[kernel]
pub fn rope_and_cache<HD: Dim>(
    qkv: View<f32, 2>,
    cos: View<f32, 2>,
    sin: View<f32, 2>,
    positions: View<i32, 1>,
    slots: View<i32, 1>,
    q: ViewMut<f32, 2>,
    k_cache: ViewMut<f16, 4>,
    v_cache: ViewMut<f16, 4>,
    #[build] heads: Heads,
) {
    let (token, head) = (program_id(0), program_id(1));
    let x = qkv.load::<(One, Prod<HD, C<2>>)>((token, head)).reshape::<(Prod<HD, C<2>>,)>();
    let position = positions.at((token,));
    let cos = cos.load::<(One, HD)>((position, 0)).reshape::<(HD,)>();
    let sin = sin.load::<(One, HD)>((position, 0)).reshape::<(HD,)>();
    let slot = slots.at((token,));
    let size = k_cache.dim::<3>();
    let (block, offset) = (slot / size, slot % size);
    if head < heads.q {
        q.store((token, head), rotate(x, cos, sin, heads.pairs).reshape::<(One, Prod<HD, C<2>>)>());
    } else if slot >= 0 {
        if head < heads.q + heads.kv {
            let key = cached(rotate(x, cos, sin, heads.pairs));
            k_cache.store_at((block, head - heads.q, 0, offset), key.reshape::<(One, One, Prod<HD, C<2>>, One)>());
        } else {
            let value = cached(x);
            v_cache.store_at(
                (block, head - (heads.q + heads.kv), offset, 0),
                value.reshape::<(One, One, One, Prod<HD, C<2>>)>(),
            );
        }
    }
}
