//! How much memory this process has in place, for cases, tests and benches that bound it.

/// Resident bytes of this process; zero where the system doesn't say, which is everywhere but on Linux.
///
/// ```
/// assert!(codemode_cli::memory::resident_bytes() > 0 || !cfg!(target_os = "linux"));
/// ```
pub fn resident_bytes() -> u64 {
    const PAGE_BYTES: u64 = 4_096;
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * PAGE_BYTES
}
