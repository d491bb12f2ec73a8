//! Perplexity, by llama.cpp's method: windows that do not overlap, the second half of each scored.

use crate::Error;
use crate::model::{Batch, Chunk, Decoder, KvCache, kv::BLOCK};

/// Rows whose logits are computed at once.
const ROWS: usize = 64;

/// Mean negative log-likelihood (nats a token) of each window of `window` tokens: positions `window/2 .. window−1` predict
/// the token after them. With `bos`, a window's first token is replaced by it. `each` is called after each window.
pub fn perplexity(
    decoder: &mut Decoder,
    tokens: &[u32],
    bos: Option<u32>,
    windows: usize,
    window: usize,
    mut each: impl FnMut(f64),
) -> Result<Vec<f64>, Error> {
    if tokens.len() < windows * window {
        let most = tokens.len() / window;
        return Err(Error::Usage(format!(
            "{windows} windows of {window} tokens were asked for; a text of {} tokens is enough for {most}",
            tokens.len()
        )));
    }
    let mut kv = KvCache::new(decoder.device(), decoder.config(), window)?;
    let blocks = kv.table();
    let vocab = decoder.config().vocab;
    let mut out = vec![];
    for tokens in tokens.chunks_exact(window).take(windows) {
        let mut tokens = tokens.to_vec();
        if let Some(bos) = bos {
            tokens[0] = bos;
        }
        let half = window / 2;
        let mut total = 0.0;
        for range in [0..half, half..window - 1] {
            let chunk = Chunk { tokens: &tokens[range.clone()], position: range.start, blocks: &blocks };
            decoder.forward(&mut kv, &Batch::new(&[chunk], BLOCK)?)?;
        }
        let scored: Vec<usize> = (0..window - 1 - half).collect();
        for rows in scored.chunks(ROWS) {
            decoder.head(rows)?;
            for (row, logits) in rows.iter().zip(decoder.logits()?.chunks_exact(vocab)) {
                total += nll(logits, tokens[half + row + 1] as usize);
            }
        }
        let mean = total / (window - 1 - half) as f64;
        each(mean);
        out.push(mean);
    }
    Ok(out)
}

/// `−ln softmax(row)[token]`, in f64.
pub fn nll(row: &[f32], token: usize) -> f64 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max) as f64;
    max + row.iter().map(|&x| (x as f64 - max).exp()).sum::<f64>().ln() - row[token] as f64
}
