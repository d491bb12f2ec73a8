//! Linear algebra over F2 on vectors of up to 64 bits.

/// A subspace, kept as an echelon form of the vectors put in; remembers how each basis vector came about.
#[derive(Clone, Debug, Default)]
pub struct Span {
    /// By leading bit: vector, and the set of inserted vectors (by their numbers) that add up to it.
    rows: Vec<(u64, u64)>,
    inserted: u32,
}

impl Span {
    /// The span of vectors; at most 64.
    pub fn of(vectors: impl IntoIterator<Item = u64>) -> Span {
        let mut s = Span::default();
        vectors.into_iter().for_each(|v| {
            s.insert(v);
        });
        s
    }
    /// Adds a vector; whether it was outside.
    pub fn insert(&mut self, v: u64) -> bool {
        let (rest, made_of) = self.reduce(v);
        let number = self.inserted;
        self.inserted += 1;
        if rest == 0 {
            return false;
        }
        self.rows.push((rest, made_of ^ 1 << number));
        self.rows.sort_by_key(|row| std::cmp::Reverse(row.0));
        true
    }
    /// What is left of `v` after taking away basis vectors, and the inserted vectors that those are made of.
    fn reduce(&self, v: u64) -> (u64, u64) {
        self.rows.iter().fold((v, 0), |(v, by), (row, made_of)| {
            // Rows are sorted by leading bit: each removes its own.
            let lead = 63 - row.leading_zeros();
            if v >> lead & 1 != 0 { (v ^ row, by ^ made_of) } else { (v, by) }
        })
    }
    /// Dimension.
    pub fn rank(&self) -> usize {
        self.rows.len()
    }
    /// Whether `v` is inside.
    pub fn contains(&self, v: u64) -> bool {
        self.reduce(v).0 == 0
    }
    /// A set of the inserted vectors (bit i: the i-th) that adds up to `v`. Vectors that were inside already when they
    /// were inserted are not used.
    pub fn coordinates(&self, v: u64) -> Option<u64> {
        let (rest, by) = self.reduce(v);
        (rest == 0).then_some(by)
    }
}

/// A basis of the intersection of two spans.
pub fn intersection(a: &[u64], b: &[u64]) -> Vec<u64> {
    let (a, b) = (independent(a), independent(b));
    let mut span = Span::of(a.iter().copied());
    let mut common = vec![];
    for v in b {
        let (rest, by) = span.reduce(v);
        if rest == 0 {
            // `by` may name vectors of b inserted before; the part that is made of a's is the common vector.
            let from_a = (0..a.len()).filter(|i| by >> i & 1 != 0).fold(0, |x, i| x ^ a[i]);
            common.push(from_a);
        }
        span.insert(v);
    }
    common
}

/// The vectors that are outside the span of those before them.
pub fn independent(vectors: &[u64]) -> Vec<u64> {
    let mut span = Span::default();
    vectors.iter().copied().filter(|v| span.insert(*v)).collect()
}

/// The inverse of a square matrix given by its columns: the columns of the inverse. `None` if it has none.
pub fn inverse(columns: &[u64]) -> Option<Vec<u64>> {
    let span = Span::of(columns.iter().copied());
    (span.rank() == columns.len()).then_some(())?;
    (0..columns.len()).map(|i| span.coordinates(1 << i)).collect()
}

/// The product of a matrix given by its columns and a vector.
pub fn apply(columns: &[u64], v: u64) -> u64 {
    columns.iter().enumerate().filter(|(i, _)| v >> i & 1 != 0).fold(0, |a, (_, c)| a ^ c)
}
