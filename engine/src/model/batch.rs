//! What one step runs on: new tokens of several sequences, one after the other.

use super::Config;
use crate::Error;

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The tokens, consecutive in the sequence.
    pub tokens: &'a [u32],
    /// Position of the first: how many of the sequence's tokens were computed before.
    pub position: usize,
    /// The sequence's blocks; must hold `position + tokens.len()` tokens.
    pub blocks: &'a [u32],
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
    /// First row, count, position, sequence of each chunk.
    pub chunks: Vec<[i32; 4]>,
    /// Block tables, `[sequences][width]`, filled up with 0.
    pub tables: Vec<i32>,
    /// Width of the block tables: a multiple of four.
    pub width: usize,
}

/// Rows of block tables begin at multiples of 16 bytes: a kernel is compiled for such rows and for others, and so only once.
const WIDTH: usize = 4;

impl Batch {
    /// Flattens chunks. `block` is the number of tokens in a cache block.
    ///
    /// # Errors
    /// If a chunk has no token, or too few blocks.
    pub fn new(chunks: &[Chunk<'_>], block: usize) -> Result<Batch, Error> {
        let widest = chunks.iter().map(|c| c.blocks.len()).max().unwrap_or(0).max(1);
        let mut b = Batch { width: widest.next_multiple_of(WIDTH), ..Batch::default() };
        for (sequence, c) in chunks.iter().enumerate() {
            let (n, end) = (c.tokens.len(), c.position + c.tokens.len());
            if n == 0 || c.blocks.len() * block < end {
                let blocks = c.blocks.len();
                return Err(Error::Step(format!(
                    "chunk {sequence} has {n} tokens from position {} on, and {blocks} blocks of {block} tokens; it must \
                     have a token, and blocks for all",
                    c.position
                )));
            }
            b.chunks.push([b.tokens.len() as i32, n as i32, c.position as i32, sequence as i32]);
            for (position, &token) in (c.position..).zip(c.tokens) {
                b.tokens.push(token as i32);
                b.positions.push(position as i32);
                b.slots.push((c.blocks[position / block] as usize * block + position % block) as i32);
            }
            b.tables.extend(c.blocks.iter().map(|&x| x as i32));
            b.tables.resize((sequence + 1) * b.width, 0);
        }
        Ok(b)
    }

    /// Tokens of all chunks: rows of the step.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The last row of each chunk.
    pub fn last_rows(&self) -> Vec<usize> {
        self.chunks.iter().map(|[row, count, ..]| (row + count) as usize - 1).collect()
    }

    /// Checks that a model of these dimensions, with a cache of so many blocks, can compute it: kernels do not look.
    ///
    /// # Errors
    /// For the first token, position or block that there is not.
    pub fn check(&self, config: &Config, blocks: usize) -> Result<(), Error> {
        let below = |what: &str, values: &[i32], most: usize| {
            let outside = values.iter().find(|x| usize::try_from(**x).map_or(true, |x| x >= most));
            outside.map_or(Ok(()), |x| Err(Error::Step(format!("{what} {x}; there are {most}"))))
        };
        below("token", &self.tokens, config.vocab)?;
        below("position", &self.positions, config.context)?;
        below("block", &self.tables, blocks)
    }

    /// Work items for attention: of the chunks that are a single token, and of the others, cut into at most `rows` tokens.
    /// A single token would fill one row of a tile that is made for many.
    pub fn work(&self, rows: usize) -> [Vec<[i32; 4]>; 2] {
        let [mut single, mut pieces] = [vec![], vec![]];
        for &[row, count, position, sequence] in &self.chunks {
            if count == 1 {
                single.push([row, 1, position, sequence]);
                continue;
            }
            for start in (0..count).step_by(rows) {
                pieces.push([row + start, (count - start).min(rows as i32), position + start, sequence]);
            }
        }
        [single, pieces]
    }
}
