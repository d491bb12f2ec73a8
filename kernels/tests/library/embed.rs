//! Rows of a table: exact.

use crate::support::*;
use tegula::{ir::Quant, prelude::*};
use tegula_kernels::embed::embed;

#[test]
fn rows_of_every_format() {
    let mut rng = Rng(10);
    for &quant in Quant::ALL {
        let (h, vocabulary) = (odd_k(quant, 96), 37);
        let w = Weights::random(quant, h, vocabulary, &mut rng);
        for rows in [1, 2, 3, 7, 17] {
            let mut tokens: Vec<i32> = (0..rows).map(|_| rng.below(vocabulary) as i32).collect();
            tokens[rows - 1] = vocabulary as i32 - 1;
            let want: Vec<f32> =
                tokens.iter().flat_map(|&t| (0..h).map(move |k| (k, t))).map(|(k, t)| w.at(k, t as usize)).collect();
            for stream in devices() {
                let mut y = Tensor::<f32>::poisoned([rows, h]).unwrap();
                embed::launch(&w.packed(stream), &tensor([rows], &tokens), &mut y)
                    .dims(h)
                    .grid(rows)
                    .run(stream)
                    .unwrap();
                same_bits(&format!("{quant}, {rows} rows, {}", stream.device().name()), y.as_slice(), &want);
            }
        }
    }
}

#[test]
fn a_token_outside_the_table_is_zeros() {
    let w = Weights::random(Quant::Q8_0, 96, 20, &mut Rng(11));
    for stream in devices() {
        let mut y = Tensor::<f32>::poisoned([3, 96]).unwrap();
        embed::launch(&w.packed(stream), &tensor([3], &[20, -1, 19]), &mut y).dims(96).grid(3).run(stream).unwrap();
        assert!(y.as_slice()[..192].iter().all(|&x| x == 0.0));
        assert!(y.as_slice()[192..].iter().any(|&x| x != 0.0));
    }
}
