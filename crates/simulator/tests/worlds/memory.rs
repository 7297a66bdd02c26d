//! Memory and GPU of the machine follow what happens in it.

use std::path::Path;
use std::time::Instant;

use crate::sandbox::{Sandbox, eventually, text};

fn page_count(sandbox: &Sandbox, label: &str) -> u64 {
    let shown = text(&sandbox.command("usr/bin/vm_stat", &[]).stdout);
    let line = shown.lines().find(|line| line.starts_with(label)).unwrap().to_owned();
    line.trim_end_matches('.').split_whitespace().next_back().unwrap().parse().unwrap()
}

fn sysctl(sandbox: &Sandbox, name: &str) -> String {
    text(&sandbox.command("usr/sbin/sysctl", &["-n", name]).stdout).trim().to_owned()
}

fn gpu_percent(sandbox: &Sandbox) -> u64 {
    let shown = text(&sandbox.command("usr/sbin/ioreg", &["-r", "-d", "1", "-w", "0", "-c", "IOAccelerator"]).stdout);
    let rest = shown.split("\"Device Utilization %\"=").nth(1).unwrap();
    rest.split(',').next().unwrap().parse().unwrap()
}

/// Real milliseconds of a fixed piece of work.
fn answer_ms(sandbox: &Sandbox) -> u128 {
    let began = Instant::now();
    let body = "{\"model\":\"gemma4:26b\",\"prompt\":\"hello\",\"stream\":false,\"options\":{\"num_predict\":30}}";
    assert_eq!(sandbox.http("POST", "/api/generate", body).0, 200);
    began.elapsed().as_millis()
}

#[test]
fn a_paging_machine_swaps_every_second_and_is_slow() {
    let sandbox = Sandbox::start(&[]);
    answer_ms(&sandbox);
    let sound = answer_ms(&sandbox);
    let (before_in, before_out) = (page_count(&sandbox, "Swapins:"), page_count(&sandbox, "Swapouts:"));
    assert_eq!(page_count(&sandbox, "Swapins:"), before_in);

    sandbox.fault(&["slow-swapping"]);

    let slow = answer_ms(&sandbox);
    assert!(slow > 5 * sound, "{sound} ms, then {slow} ms");
    assert!(page_count(&sandbox, "Swapins:") > before_in + 1_000);
    assert!(page_count(&sandbox, "Swapouts:") > before_out + 1_000);
    assert_eq!(sysctl(&sandbox, "kern.memorystatus_vm_pressure_level"), "2");
    let pages = page_count(&sandbox, "Swapins:");
    eventually(|| page_count(&sandbox, "Swapins:") > pages);
    assert!(!sysctl(&sandbox, "vm.swapusage").contains("used = 0.00M"));

    sandbox.fault(&["clear"]);

    let (kept, level) = (page_count(&sandbox, "Swapins:"), sysctl(&sandbox, "kern.memorystatus_vm_pressure_level"));
    assert!(kept >= pages, "counters never fall");
    assert_eq!(level, "1");
    assert_eq!(page_count(&sandbox, "Swapins:"), kept);
}

#[test]
fn critical_memory_swaps_as_well() {
    let sandbox = Sandbox::start(&["--owner", "none"]);
    sandbox.fault(&["memory-pressure"]);
    assert_eq!(sysctl(&sandbox, "kern.memorystatus_vm_pressure_level"), "4");
    let swapped = page_count(&sandbox, "Swapouts:");
    eventually(|| page_count(&sandbox, "Swapouts:") > swapped);
}

#[test]
fn loaded_models_are_counted_wherever_memory_is_shown() {
    let sandbox = Sandbox::start(&[]);
    let wired = page_count(&sandbox, "Pages wired down:");
    for model in ["gemma4:26b", "qwen3-mlx:4b"] {
        assert_eq!(sandbox.http("POST", "/api/generate", &format!("{{\"model\":\"{model}\"}}")).0, 200);
    }
    let gibibytes = ((page_count(&sandbox, "Pages wired down:") - wired) * 16_384) >> 30;
    assert!((17..50).contains(&gibibytes), "{gibibytes}");
    let footprint = |model: &str| -> u64 {
        let pid = sandbox.runner_of(model)["pid"].to_string();
        let shown = sandbox.command("usr/bin/footprint", &["--noCategories", "-f", "bytes", "-p", &pid]);
        let shown = text(&shown.stdout);
        let rest = shown.split("phys_footprint: ").nth(1).unwrap_or_else(|| unreachable!("{shown}"));
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    assert!(footprint("gemma4:26b") < 16_042_876_928, "mapped weights are not in it");
    assert!(footprint("qwen3-mlx:4b") > 2_263_022_592);
    assert_eq!(sandbox.command("usr/bin/footprint", &["-p", "1"]).status.code(), Some(66));
}

#[test]
fn the_gpu_is_busy_while_a_runner_makes_progress() {
    let sandbox = Sandbox::start(&["--speed", "5"]);
    assert!(gpu_percent(&sandbox) < 10);
    sandbox.fault(&["work-long-prefill", "--model", "smollm:135m"]);
    assert!(gpu_percent(&sandbox) > 90);
    sandbox.fault(&["runner-stuck"]);
    assert!(gpu_percent(&sandbox) < 10);
}

#[test]
fn a_linux_world_has_the_kernels_files() {
    let sandbox = Sandbox::start(&["--os", "linux"]);
    let read = |path: &str| std::fs::read_to_string(sandbox.dir().join(path)).unwrap_or_default();
    let swapped_in = || -> u64 {
        let text = read("proc/vmstat");
        let line = text.lines().find(|line| line.starts_with("pswpin ")).unwrap_or("pswpin 0").to_owned();
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    eventually(|| read("proc/pressure/memory").starts_with("some avg10=0.00 "));
    assert!(read("proc/meminfo").starts_with("MemTotal:       67108864 kB\n"));
    assert!(Path::new(&sandbox.dir().join("proc/vmstat")).exists());
    let before = swapped_in();

    sandbox.fault(&["slow-swapping"]);

    eventually(|| swapped_in() > before + 1_000);
    eventually(|| read("proc/pressure/memory").starts_with("some avg10=34.00 "));
}
