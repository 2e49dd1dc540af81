//! What devices can do at most, as their makers state it.

/// Floating-point operations per second of dense bfloat16 products with float32 sums, by a part of
/// the name that the driver gives; longer parts come first where one holds another. From NVIDIA's
/// data sheets, without sparsity.
const PEAKS: [(&str, f64); 17] = [
    ("GB200", 2500e12),
    ("B200", 2250e12),
    ("GH200", 989.5e12),
    ("H200 NVL", 835.5e12),
    ("H200", 989.5e12),
    ("H100 NVL", 835.5e12),
    ("H100 PCIe", 756e12),
    ("H100", 989.5e12),
    ("H20", 148e12),
    ("A100", 312e12),
    ("A40", 149.7e12),
    ("A10", 125e12),
    ("RTX A6000", 154.8e12),
    ("L40S", 362e12),
    ("L40", 181e12),
    ("L4", 121e12),
    ("RTX 4090", 165.2e12),
];

/// The peak of a device by its name, in operations per second; `None` for one that is not known.
pub fn peak_bf16_flops(name: &str) -> Option<f64> {
    let whole = |part: &str| {
        let after = name.find(part).map(|at| &name[at + part.len()..]);
        after.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    };
    PEAKS.iter().find(|(part, _)| whole(part)).map(|(_, peak)| *peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_drivers_find_their_own_peak_and_no_other() {
        for (name, peak) in [
            ("NVIDIA H200", Some(989.5e12)),
            ("NVIDIA H100 80GB HBM3", Some(989.5e12)),
            ("NVIDIA H100 PCIe", Some(756e12)),
            ("NVIDIA A100-SXM4-80GB", Some(312e12)),
            ("NVIDIA L40S", Some(362e12)),
            ("NVIDIA L4", Some(121e12)),
            ("NVIDIA A10G", None),
            ("Tesla T4", None),
            ("", None),
        ] {
            assert_eq!(peak_bf16_flops(name), peak, "{name}");
        }
    }
}
