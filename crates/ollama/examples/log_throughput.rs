//! How fast the log is read, and in how much memory: writes a log of N MB into a temporary folder, follows it (once with
//! every line understood, once with every line counted in the statistics too), searches it for its last config line (once near the end, once at the beginning), and prints one JSON object.
//!
//! `cargo run --release -p stablehand-ollama --example log_throughput -- 256`

use stablehand_engine::time::Wall;
use stablehand_ollama::log::follower::{Follower, Piece, Start};
use stablehand_ollama::log::reader::{Limits, Search, last_config_line};
use stablehand_ollama::log::{Line, Parser};
use stablehand_ollama::log_statistics::Statistics;
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

const MEGABYTE: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let megabytes: u64 = std::env::args().nth(1).map_or(Ok(64), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("stablehand-log-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let outcome = measure(&folder.join("server.log"), megabytes * MEGABYTE);
    std::fs::remove_dir_all(&folder)?;
    println!("{}", outcome?);
    Ok(())
}

fn measure(path: &Path, size_bytes: u64) -> Result<serde_json::Value, Box<dyn Error>> {
    let parser = Parser::local();
    let written_bytes = write_log(path, size_bytes)?;
    let megabytes = written_bytes as f64 / MEGABYTE as f64;

    let (mut lines, mut understood) = (0_u64, 0_u64);
    let began = Instant::now();
    Follower::new(path, Start::Beginning, 64 << 10).poll(u64::MAX, |piece| {
        if let Piece::Line { bytes, .. } = piece {
            lines += 1;
            understood += u64::from(parser.line(bytes) != Line::Other);
        }
    })?;
    let follow = began.elapsed();

    let began = Instant::now();
    let mut statistics = Statistics::new();
    Follower::new(path, Start::Beginning, 64 << 10).poll(u64::MAX, |piece| {
        if let Piece::Line { bytes, .. } = piece {
            let line = parser.line(bytes);
            statistics.line(line.at().unwrap_or_default(), &line);
        }
    })?;
    let count = began.elapsed();
    let finished = statistics.snapshot(Wall::default()).outcomes.total();

    let began = Instant::now();
    let far = last_config_line(path, Limits::default(), &parser)?;
    let search_far = began.elapsed();
    std::fs::OpenOptions::new().append(true).open(path)?.write_all(CONFIG.as_bytes())?;
    let began = Instant::now();
    let near = last_config_line(path, Limits::default(), &parser)?;
    let search_near = began.elapsed();
    if !matches!((&far, &near), (Search::Found(_), Search::Found(_))) {
        return Err("the config line was not found".into());
    }
    Ok(serde_json::json!({
        "log_mb": megabytes,
        "lines": lines,
        "lines_understood": understood,
        "follow_mb_per_s": megabytes / follow.as_secs_f64(),
        "follow_and_count_mb_per_s": megabytes / count.as_secs_f64(),
        "requests_counted": finished,
        "config_line_far_ms": search_far.as_secs_f64() * 1000.0,
        "config_line_near_ms": search_near.as_secs_f64() * 1000.0,
        "peak_memory_kib": peak_memory_kib(),
    }))
}

const CONFIG: &str = "time=2026-11-30T07:10:19.631+01:00 level=INFO source=routes.go:1951 msg=\"server config\" \
                      env=\"map[OLLAMA_MAX_QUEUE:512 OLLAMA_NUM_PARALLEL:4]\"\n";

const MIX: &str = "slot print_timing: id  0 | task 3 | prompt processing, n_tokens =   6144, progress = 0.67, t =   3.25 s / 1889.42 tokens per second
slot   operator(): id  0 | task 3 | cached n_tokens = 2048, memory_seq_rm [2048, end)
slot print_timing: id  0 | task 3 | n_gen =    100, tg =  17.29 t/s, tg_3s =  17.47 t/s
slot      release: id  0 | task 3 | stop processing: n_tokens = 9240, truncated = 0
srv  update_slots: all slots are idle
[GIN] 2026/11/30 - 06:11:20 | 200 |  5.054276458s |       127.0.0.1 | POST     \"/api/chat\"
time=2026-11-30T07:11:03.301+01:00 level=INFO source=sched.go:728 msg=\"loaded runners\" count=1
";

fn write_log(path: &Path, size_bytes: u64) -> std::io::Result<u64> {
    let mut log = BufWriter::new(File::create(path)?);
    log.write_all(CONFIG.as_bytes())?;
    let mut written = CONFIG.len() as u64;
    while written < size_bytes {
        log.write_all(MIX.as_bytes())?;
        written += MIX.len() as u64;
    }
    log.flush()?;
    Ok(written)
}

/// The most memory this process ever had, where the system tells it (Linux).
fn peak_memory_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
