//! What one step runs on: new tokens of several sequences, one after the other.

/// New tokens of one sequence.
#[derive(Clone, Debug)]
pub struct Chunk<'a> {
    /// The tokens, consecutive in the sequence.
    pub tokens: &'a [u32],
    /// Position of the first: how many of the sequence's tokens were computed before.
    pub position: usize,
    /// The sequence's blocks; must hold `position + tokens.len()` tokens.
    pub blocks: &'a [u32],
    /// Which rows of the chunk logits are wanted for, ascending.
    pub logits: Logits,
}

/// Rows of a chunk that logits are wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// None: more of the prompt follows.
    None,
    /// The last.
    Last,
    /// Every one (perplexity).
    All,
}

/// A ragged batch, flattened into the arrays that kernels read.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Token of each row.
    pub tokens: Vec<i32>,
    /// Position of each row in its sequence.
    pub positions: Vec<i32>,
    /// Cache slot of each row: block · block size + offset.
    pub slots: Vec<i32>,
    /// Rows that logits are wanted for.
    pub logit_rows: Vec<i32>,
    /// First row, count, position, sequence of each chunk.
    pub chunks: Vec<[i32; 4]>,
    /// Block tables, `[sequences][width]`, filled up with 0.
    pub tables: Vec<i32>,
    /// Width of the block tables.
    pub width: usize,
}

impl Batch {
    /// Flattens chunks. `block` is the number of tokens in a cache block. Every chunk must have a token and blocks enough.
    pub fn new(chunks: &[Chunk<'_>], block: usize) -> Batch {
        let mut b =
            Batch { width: chunks.iter().map(|c| c.blocks.len()).max().unwrap_or(0).max(1), ..Batch::default() };
        for (sequence, c) in chunks.iter().enumerate() {
            assert!(
                !c.tokens.is_empty() && c.blocks.len() * block >= c.position + c.tokens.len(),
                "a chunk without tokens or blocks"
            );
            let row = b.tokens.len() as i32;
            b.chunks.push([row, c.tokens.len() as i32, c.position as i32, sequence as i32]);
            for (i, &t) in c.tokens.iter().enumerate() {
                let position = c.position + i;
                b.tokens.push(t as i32);
                b.positions.push(position as i32);
                b.slots.push((c.blocks[position / block] as usize * block + position % block) as i32);
            }
            let rows = row..b.tokens.len() as i32;
            match c.logits {
                Logits::None => {}
                Logits::Last => b.logit_rows.push(rows.end - 1),
                Logits::All => b.logit_rows.extend(rows),
            }
            b.tables.extend(c.blocks.iter().map(|&x| x as i32));
            b.tables.resize((sequence + 1) * b.width, 0);
        }
        b
    }

    /// Work items for attention: chunks cut into at most `rows` tokens.
    pub fn work(&self, rows: usize) -> Vec<[i32; 4]> {
        let mut items = vec![];
        for &[row, count, position, sequence] in &self.chunks {
            for start in (0..count).step_by(rows) {
                items.push([row + start, (count - start).min(rows as i32), position + start, sequence]);
            }
        }
        items
    }
}
