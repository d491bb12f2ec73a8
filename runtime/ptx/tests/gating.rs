//! Instructions in modules whose `.version` or `.target` is too old for them: the table `tables/gating.tsv` says from
//! where on ptxas takes each (least target, least version, a target that does not have it).

mod common;
use common::entry;
use tegula_ptx::Module;

/// What is wrong with a module of one instruction.
fn error(target: &str, version: &str, body: &str) -> Option<String> {
    let registers = ".reg .pred %p<4>; .reg .b8 %b<4>; .reg .b16 %h<4>; .reg .b32 %r<10>; .reg .b64 %rd<4>;
                     .reg .f32 %f<5>; .reg .b128 %q<3>;";
    let text = format!(
        ".version {version}\n.target {target}\n.address_size 64\n{}",
        entry("k", "", &format!("{registers}\n{body}\nret;"))
    );
    match Module::parse(&text, target) {
        Err(e) => Some(e.to_string()),
        Ok(m) => m.unknown().first().map(|e| e.to_string()),
    }
}

const VERSIONS: [&str; 23] = [
    "6.0", "6.1", "6.2", "6.3", "6.4", "6.5", "7.0", "7.1", "7.2", "7.3", "7.4", "7.5", "7.6", "7.7", "7.8", "8.0",
    "8.1", "8.2", "8.3", "8.4", "8.5", "8.6", "8.7",
];

#[test]
fn instructions_are_taken_from_their_target_and_version_on() {
    let mut rows = 0;
    for line in include_str!("tables/gating.tsv").lines() {
        let f: Vec<&str> = line.split('\t').collect();
        let [target, version, lower, body] = f[..] else { panic!("{line}") };
        rows += 1;
        assert_eq!(error(target, version, body), None, "{line}");
        assert_eq!(error(target, "9.0", body), None, "{line}");
        let name = body.split_whitespace().next().unwrap().trim_end_matches(';');
        if !lower.is_empty() {
            let said = error(lower, "9.0", body).unwrap_or_else(|| panic!("{lower} takes {body}"));
            assert!(said.contains(&format!("needs .target {target}")) || target == "sm_100a", "{said}");
            assert!(said.contains("PTX line 6") && said.contains(&format!("the module's is {lower}")), "{said}");
            assert!(said.contains(name) || name == "mov.u32", "{said}");
        }
        let Some(before) = VERSIONS.iter().position(|v| *v == version).and_then(|i| i.checked_sub(1)) else { continue };
        let said = error(target, VERSIONS[before], body).unwrap_or_else(|| panic!("{} takes {body}", VERSIONS[before]));
        assert!(said.contains(&format!("needs .version {version}")) || said.contains(".target"), "{said}");
    }
    assert!(rows > 65, "{rows} rows");
}

#[test]
fn modules_run_only_where_their_target_does() {
    let module = |target: &str, version: &str| {
        format!(".version {version}\n.target {target}\n.address_size 64\n{}", entry("k", "", "ret;"))
    };
    let parse =
        |target, version, device: &str| Module::parse(&module(target, version), device).err().map(|e| e.message);
    for (target, version, device, runs) in [
        ("sm_80", "8.0", "sm_80", true),
        ("sm_80", "8.0", "sm_90a", true),
        ("sm_90", "8.0", "sm_90a", true),
        ("sm_90a", "8.0", "sm_90a", true),
        ("sm_90a", "8.0", "sm_80", false),
        ("sm_90a", "8.0", "sm_90", false),
        ("sm_90a", "8.0", "sm_100a", false),
        ("sm_89", "8.0", "sm_80", false),
        ("sm_100a", "8.6", "sm_90a", false),
        ("sm_100a", "8.6", "sm_100a", true),
    ] {
        let said = parse(target, version, device);
        assert_eq!(said.is_none(), runs, "{target} on {device}: {said:?}");
        if let Some(said) = said {
            assert!(said.contains(target) && said.contains(device), "{said}");
        }
    }
    let said = parse("sm_90a", "7.8", "sm_90a").unwrap();
    assert!(said.contains("`.target sm_90a` needs .version 8.0, the module's is 7.8"), "{said}");
}
