//! The instruction cases that GPUs run, too: all run on the emulator, fast and strict, on the best and the portable loops,
//! with the same bits; integers, shuffles and products are checked in files of their own.

use tegula_ptx::{
    Completion, Options,
    cases::{self, Check},
};

#[test]
fn every_case_gives_the_same_bits_in_every_mode() {
    let cases = cases::all();
    assert!(cases.len() > 200, "{} cases", cases.len());
    let mut names = std::collections::HashSet::new();
    for case in &cases {
        assert!(names.insert(&case.name), "two cases `{}`", case.name);
        assert!(!case.inputs.is_empty() && case.threads() > 0, "{}", case.name);
        let expected = case.expected().unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let late = Options { completion: Completion::Late, threads: 1, ..Options::default() };
        for options in [late, Options { portable: true, ..Options::fast() }] {
            let got = case.run(options).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(got, expected, "{}", case.name);
        }
        if let Some(truth) = &case.truth {
            assert_eq!(&expected[0].values, truth, "{}", case.name);
        }
        // Results that never change with the input would test nothing.
        for column in &expected {
            let first = column.values[0];
            let constant = column.values.iter().all(|v| *v == first);
            assert!(!constant || case.name.starts_with("vote"), "{} gives {first:#x} everywhere", case.name);
        }
        assert_eq!(case.compare(&expected, &expected).1, 0);
    }
}

#[test]
fn comparison_finds_differences() {
    let case = cases::arithmetic().remove(0);
    let good = case.expected().unwrap();
    let mut bad = good.clone();
    bad[0].values[3] ^= 1;
    assert_eq!(case.compare(&bad, &good), (vec![(0, 3, bad[0].values[3], good[0].values[3])], 1));
    let near = cases::approximations().remove(0);
    assert!(matches!(near.check, Check::Near(_)));
    let good = near.expected().unwrap();
    let one = good[0].values.iter().position(|v| (1.0..2.0).contains(&f32::from_bits(*v as u32))).unwrap();
    let mut close = good.clone();
    close[0].values[one] += 1;
    assert_eq!(near.compare(&close, &good).1, 0);
    close[0].values[one] += 1 << 20;
    assert_eq!(near.compare(&close, &good).1, 1);
}
